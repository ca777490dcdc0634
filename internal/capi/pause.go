package capi

import (
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// PauseSwitch says how objects of a kind are kept from being reconciled.
type PauseSwitch int

const (
	// PauseUnknown means: no switch is known. Such objects are created last, when their workload
	// cluster is released.
	PauseUnknown PauseSwitch = iota
	// PauseSpec means: the object's own spec.paused (Cluster).
	PauseSpec
	// PauseWithCluster means: stands still while its Cluster is paused.
	PauseWithCluster
	// PauseAnnotation means: the annotation cluster.x-k8s.io/paused on the object itself; its
	// Cluster's pause does not reach it.
	PauseAnnotation
	// PauseNone means: nothing reconciles it in a way that could do harm.
	PauseNone
	// PauseUnsupported means: it has a switch of its own, which this version does not know how to
	// set and to give back.
	PauseUnsupported
	// PauseNever means: must not be paused, on either side: the Cluster webhook waits seconds for a
	// ClusterClass that is not reconciled.
	PauseNever
)

// pauseSwitches is the table of kinds; sources are the contract of Cluster API and the controllers
// of core and kubeadm at v1.14.
var pauseSwitches = map[object.GroupKind]PauseSwitch{
	{Group: "cluster.x-k8s.io", Kind: "Cluster"}:                   PauseSpec,
	{Group: "cluster.x-k8s.io", Kind: "ClusterClass"}:              PauseNever,
	{Group: "cluster.x-k8s.io", Kind: "Machine"}:                   PauseWithCluster,
	{Group: "cluster.x-k8s.io", Kind: "MachineSet"}:                PauseWithCluster,
	{Group: "cluster.x-k8s.io", Kind: "MachineDeployment"}:         PauseWithCluster,
	{Group: "cluster.x-k8s.io", Kind: "MachinePool"}:               PauseWithCluster,
	{Group: "cluster.x-k8s.io", Kind: "MachineHealthCheck"}:        PauseWithCluster,
	{Group: "cluster.x-k8s.io", Kind: "MachineDrainRule"}:          PauseNone,
	{Group: "addons.cluster.x-k8s.io", Kind: "ClusterResourceSet"}: PauseAnnotation,
	// deleted by its controller while its Cluster is absent, so it comes after it
	{Group: "addons.cluster.x-k8s.io", Kind: "ClusterResourceSetBinding"}: PauseNone,
	{Group: "runtime.cluster.x-k8s.io", Kind: "ExtensionConfig"}:          PauseAnnotation,
	{Group: "ipam.cluster.x-k8s.io", Kind: "IPAddressClaim"}:              PauseWithCluster,
	{Group: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool"}:             PauseAnnotation,
	{Group: "ipam.cluster.x-k8s.io", Kind: "GlobalInClusterIPPool"}:       PauseAnnotation,
	// Restored with an empty status for only a moment, a BareMetalHost has its disk imaged anew; a
	// pool hands out addresses that are in use.
	{Group: "metal3.io", Kind: "BareMetalHost"}:                                 PauseUnsupported,
	{Group: "infrastructure.cluster.x-k8s.io", Kind: "OpenStackFloatingIPPool"}: PauseUnsupported,
	{Group: "infrastructure.cluster.x-k8s.io", Kind: "AWSFargateProfile"}:       PauseUnsupported,
	{Group: "azimuth.stackhpc.com", Kind: "Cluster"}:                            PauseUnsupported,
	{Group: "ipam.cluster.x-k8s.io", Kind: "IPAddress"}:                         PauseNone,
	{Group: "", Kind: "Namespace"}:                                              PauseNone,
	{Group: "", Kind: "Secret"}:                                                 PauseNone,
	{Group: "", Kind: "ConfigMap"}:                                              PauseNone,
}

// providerGroups are the groups whose contract makes their controllers heed the pause of the
// Cluster.
var providerGroups = []string{"infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io",
	"controlplane.cluster.x-k8s.io"}

// PauseOf returns how objects of a kind are paused.
func PauseOf(gk object.GroupKind) PauseSwitch {
	if s, ok := pauseSwitches[gk]; ok {
		return s
	}
	if gk.Group == "addons.stackhpc.com" || strings.HasSuffix(gk.Group, ".azure.com") {
		return PauseUnsupported
	}
	for _, g := range providerGroups {
		if gk.Group != g {
			continue
		}
		if strings.HasSuffix(gk.Kind, "Template") || strings.HasSuffix(gk.Kind, "Identity") {
			return PauseNone
		}
		return PauseWithCluster
	}
	return PauseUnknown
}
