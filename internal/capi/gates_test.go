package capi

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

func TestKindsNeedTheFeatureGatesOfTheirControllers(t *testing.T) {
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	for _, tt := range []struct {
		gk   object.GroupKind
		gate string
		want bool
	}{
		{MachinePool, "MachinePool", true},
		{object.GroupKind{Group: infrastructure, Kind: "AWSMachinePool"}, "MachinePool", true},
		{object.GroupKind{Group: infrastructure, Kind: "AzureMachinePoolMachine"}, "MachinePool", true},
		{object.GroupKind{Group: infrastructure, Kind: "AWSManagedMachinePool"}, "EKS", true},
		{object.GroupKind{Group: infrastructure, Kind: "AWSMachine"}, "MachinePool", false},
		{object.GroupKind{Group: infrastructure, Kind: "AWSMachine"}, "EKS", false},
		{ClusterClass, "ClusterTopology", true},
		{object.GroupKind{Group: "example.test", Kind: "ClusterClass"}, "ClusterTopology", false},
		{ExtensionConfig, "RuntimeSDK", true},
		{ClusterResourceSet, "ClusterResourceSet", true},
		{ClusterResourceSet, "PriorityQueue", false},
	} {
		if got := NeedsFeatureGate(tt.gk, tt.gate); got != tt.want {
			t.Errorf("%s needs %s: %v", tt.gk, tt.gate, got)
		}
	}
}
