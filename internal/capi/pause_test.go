package capi

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

func TestPauseSwitchOfEachKind(t *testing.T) {
	for gk, want := range map[object.GroupKind]PauseSwitch{
		{Group: "cluster.x-k8s.io", Kind: "Cluster"}:                                 PauseSpec,
		{Group: "cluster.x-k8s.io", Kind: "ClusterClass"}:                            PauseNever,
		{Group: "infrastructure.cluster.x-k8s.io", Kind: "OpenStackMachine"}:         PauseWithCluster,
		{Group: "infrastructure.cluster.x-k8s.io", Kind: "OpenStackMachineTemplate"}: PauseNone,
		{Group: "infrastructure.cluster.x-k8s.io", Kind: "OpenStackFloatingIPPool"}:  PauseUnsupported,
		{Group: "metal3.io", Kind: "BareMetalHost"}:                                  PauseUnsupported,
		{Group: "containerservice.azure.com", Kind: "ManagedCluster"}:                PauseUnsupported,
		{Group: "example.org", Kind: "Thing"}:                                        PauseUnknown,
	} {
		if got := PauseOf(gk); got != want {
			t.Errorf("%s: %d, want %d", gk, got, want)
		}
	}
}
