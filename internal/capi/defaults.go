package capi

import (
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// defaults are the rows of kinds that have none of their own. The first that fits is used; the
// last fits every kind. An empty condition fits all.
var defaults = []struct {
	groups      []string // one of them is the group
	groupSuffix string
	kindSuffix  string
	row         Row
}{
	// What bootstraps machines has their commands and files in it, whichever provider it is of:
	// RKE2, K3s, Talos, EKS, K0s, MicroK8s.
	{groups: machineCodeGroups, kindSuffix: "Template", row: Row{Pause: PauseNone, UsersNamed: true,
		RunsCode: runsMachineCode,
		Source: "cluster-api v1.14, book: developer/providers/contracts (BootstrapConfig, " +
			"ControlPlane: template kinds)"}},
	{groups: machineCodeGroups, row: Row{Pause: PauseWithCluster, RunsCode: runsMachineCode,
		Source: "cluster-api v1.14, book: developer/providers/contracts (BootstrapConfig, " +
			"ControlPlane: pausing)"}},
	// Templates are copied, not reconciled; what uses one names it.
	{groups: contractGroups, kindSuffix: "Template", row: Row{Pause: PauseNone, UsersNamed: true,
		Source: "cluster-api v1.14, book: developer/providers/contracts (template kinds)"}},
	// Identities hold credentials, or name them, for controllers that read them.
	{groups: contractGroups, kindSuffix: "Identity", row: Row{Pause: PauseNone,
		RunsCode: "lets workload clusters of the target use its credentials for the infrastructure",
		Source:   "clusterctl v1.14 contract: identities are global and not reconciled"}},
	// The contract makes controllers of these groups heed the pause of the Cluster.
	{groups: contractGroups, row: Row{Pause: PauseWithCluster,
		Source: "cluster-api v1.14, book: developer/providers/contracts (InfraCluster, InfraMachine, " +
			"BootstrapConfig, ControlPlane: pausing)"}},
	// The addons of StackHPC have a switch of their own: a field of each kind.
	{groups: []string{groupStackHPCAddons}, row: Row{Pause: PauseUnsupported,
		Source: "azimuth-cloud/cluster-api-addon-provider, capi_addons/models/v1alpha1 (spec.paused)"}},
	// Resources of the Azure Service Operator have an annotation of their own (reconcile-policy).
	// Other projects with a group of that domain do not know it.
	{groups: []string{"karpenter.azure.com"}, row: Row{Pause: PauseUnknown,
		Source: "Azure/karpenter-provider-azure, pkg/apis/v1beta1"}},
	{groupSuffix: ".azure.com", row: asoRow},
	{kindSuffix: "Template", row: Row{Pause: PauseUnknown, UsersNamed: true,
		Source: "no contract says how such a kind is paused; what uses a template names it"}},
	{row: Row{Pause: PauseUnknown, Source: "nothing is known of such a kind"}},
}

var (
	contractGroups    = []string{GroupInfrastructure, GroupBootstrap, GroupControlPlane}
	machineCodeGroups = []string{GroupBootstrap, GroupControlPlane}
)

func defaultRow(gk object.GroupKind) *Row {
	for i := range defaults {
		d := &defaults[i]
		if fits(gk.Group, d.groups, d.groupSuffix) && strings.HasSuffix(gk.Kind, d.kindSuffix) {
			return &d.row
		}
	}
	return &defaults[len(defaults)-1].row // the last fits every kind
}

func fits(group string, groups []string, suffix string) bool {
	if !strings.HasSuffix(group, suffix) {
		return false
	}
	for _, g := range groups {
		if g == group {
			return true
		}
	}
	return len(groups) == 0
}

// HoldsNoSecrets reports whether no field of a kind can be a secret, as far as Cluster API says
// what its fields are for. Of the kinds of providers, of add-ons and of unknown groups nobody can
// say that: a cloud-init script, a user of a BMC or the values of a chart are in their fields.
func HoldsNoSecrets(gk object.GroupKind) bool {
	return gk.Group == GroupCore && gk != Cluster && gk != ClusterClass || gk.Group == GroupIPAM
}

// HoldsSecrets reports whether fields of a kind may be secrets: those of the core, those of kinds
// that become bootstrap data, which has files and passwords in it, the variables of a topology, and
// the values of charts.
func HoldsSecrets(gk object.GroupKind) bool {
	return gk.Group == "" || strings.HasPrefix(gk.Group, "bootstrap.") ||
		strings.HasPrefix(gk.Group, "controlplane.") || strings.HasPrefix(gk.Group, "addons.") ||
		gk == Cluster
}
