package capi

import (
	"regexp"

	"github.com/mgmtd/mgmtd/internal/object"
)

// gate is a feature gate of a provider's controllers. While it is off they do not work on objects
// of some kinds, or refuse them.
type gate struct {
	name   string
	source string
	group  string // of the kinds; empty for any
	kinds  *regexp.Regexp
}

// gates are those by which the kinds of a plan show that they are needed. All others change what
// controllers do with kinds that are there without them, such as PriorityQueue.
var gates = []gate{
	// Without it the core controllers refuse a MachinePool, and those of kubeadm make no bootstrap
	// data for one. Each infrastructure provider has the same gate for its own pools.
	{name: "MachinePool", source: "cluster-api v1.14, core/webhooks/admission/machinepool.go; " +
		"bootstrap/kubeadm/reconcilers/kubeadmconfig; cluster-api-provider-aws v2, main.go",
		kinds: regexp.MustCompile(`MachinePools?(Machine)?$`)},
	{name: "ClusterTopology", source: "cluster-api v1.14, core/webhooks/admission/clusterclass.go",
		group: GroupCore, kinds: regexp.MustCompile(`^ClusterClass$`)},
	{name: "RuntimeSDK", source: "cluster-api v1.14, core/webhooks/admission/extensionconfig.go",
		group: GroupRuntime, kinds: regexp.MustCompile(`^ExtensionConfig$`)},
	// Newer versions have no such gate.
	{name: "ClusterResourceSet", source: "cluster-api v1.10, main.go", group: GroupAddons,
		kinds: regexp.MustCompile(`^ClusterResourceSet`)},
	{name: "EKS", source: "cluster-api-provider-aws v2, main.go",
		kinds: regexp.MustCompile(`^AWSManaged|^EKSConfig`)},
	{name: "EKSFargate", source: "cluster-api-provider-aws v2, main.go",
		kinds: regexp.MustCompile(`^AWSFargateProfile$`)},
	{name: "ROSA", source: "cluster-api-provider-aws v2, main.go", kinds: regexp.MustCompile(`^ROSA`)},
	{name: "ASOAPI", source: "cluster-api-provider-azure v1.26, main.go",
		kinds: regexp.MustCompile(`^AzureASO`)},
	{name: "GKE", source: "cluster-api-provider-gcp v1.12, main.go",
		kinds: regexp.MustCompile(`^GCPManaged`)},
}

// NeedsFeatureGate reports whether controllers work on objects of a kind only while a feature gate
// of this name is on.
func NeedsFeatureGate(gk object.GroupKind, name string) bool {
	for _, g := range gates {
		if g.name == name && (g.group == "" || g.group == gk.Group) && g.kinds.MatchString(gk.Kind) {
			return true
		}
	}
	return false
}
