package capi

import (
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// labelProvider is on everything that a provider installs: its namespace, its Deployments, its
// CRDs (Cluster API book: developer/providers/contracts/clusterctl).
const labelProvider = "cluster.x-k8s.io/provider"

// platforms are components of a management cluster that read Secrets or ConfigMaps of their own
// namespace, or run what is there. An object that is created there from a snapshot could have them
// work for its author.
var platforms = []struct {
	name string
	// namespaces are those of its documented installation; one that ends with a dash is a prefix.
	namespaces []string
	// key and value are a label of its Deployments, wherever it is installed.
	key, value string
	source     string
}{
	{name: "cert-manager", namespaces: []string{"cert-manager"},
		key: "app.kubernetes.io/name", value: "cert-manager",
		source: "cert-manager, deploy/charts/cert-manager/templates/deployment.yaml"},
	{name: "Argo CD", namespaces: []string{"argocd"},
		key: "app.kubernetes.io/part-of", value: "argocd",
		source: "argo-cd, manifests/base (labels), docs/operator-manual/declarative-setup.md (Secrets)"},
	{name: "Flux", namespaces: []string{"flux-system"},
		key: "app.kubernetes.io/part-of", value: "flux",
		source: "fluxcd/flux2, manifests/bases"},
	{name: "the Cluster API operator", namespaces: []string{"capi-operator-system"},
		key: "app.kubernetes.io/name", value: "cluster-api-operator",
		source: "kubernetes-sigs/cluster-api-operator, hack/charts/cluster-api-operator"},
	{name: "Rancher", namespaces: []string{"cattle-"}, key: "app", value: "rancher",
		source: "rancher/rancher, chart/templates/deployment.yaml; namespaces cattle-system, " +
			"cattle-fleet-system, cattle-turtles-system"},
	{name: "OpenShift", namespaces: []string{"openshift-"},
		source: "OpenShift documentation: namespaces openshift-* are those of the platform"},
	{name: "Kubernetes", namespaces: []string{"kube-"},
		source: "Kubernetes documentation: the prefix kube- is reserved"},
}

// Component is what runs in a namespace of a management cluster.
type Component struct {
	Name string
	// Provider: it is a provider of Cluster API, and not a part of another platform.
	Provider bool
}

// PlatformNamespace returns the component whose namespace has this name and these labels; without a
// name when it is none.
func PlatformNamespace(name string, labels map[string]string) Component {
	if provider := labels[labelProvider]; provider != "" {
		return Component{provider, true}
	}
	for _, p := range platforms {
		for _, ns := range p.namespaces {
			if name == ns || strings.HasSuffix(ns, "-") && strings.HasPrefix(name, ns) {
				return Component{Name: p.name}
			}
		}
	}
	return Component{}
}

// PlatformWorkload returns the component that a Deployment with these labels runs; without a name
// when it is none.
func PlatformWorkload(labels map[string]string) Component {
	if provider := labels[labelProvider]; provider != "" {
		return Component{provider, true}
	}
	for _, p := range platforms {
		if p.key != "" && labels[p.key] == p.value {
			return Component{Name: p.name}
		}
	}
	return Component{}
}

// IsIdentity reports whether a kind is an identity: credentials with which infrastructure providers
// work, often in a Secret of their own namespace. All of them follow this pattern (OpenStack, AWS,
// Azure, vSphere; see their files).
func IsIdentity(kind object.GroupKind) bool {
	return kind.Group == GroupInfrastructure && strings.HasSuffix(kind.Kind, "Identity")
}
