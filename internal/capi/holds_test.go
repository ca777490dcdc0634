package capi_test

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
)

func TestAForeignHoldIsOfNoControllerOfClusterAPI(t *testing.T) {
	for name, foreign := range map[string]bool{
		"cluster.cluster.x-k8s.io":                                       false,
		"machine.cluster.x-k8s.io":                                       false,
		"kubeadm.controlplane.cluster.x-k8s.io":                          false,
		"ipam.cluster.x-k8s.io/ReleaseAddress":                           false,
		"foregroundDeletion":                                             false,
		"resources-finalizer.argocd.argoproj.io":                         true,
		"example.com/cluster.x-k8s.io":                                   true,
		"pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup": false,
		"pre-terminate.delete.hook.machine.cluster.x-k8s.io":             false, // k3s
		"pre-drain.delete.hook.machine.cluster.x-k8s.io/storage":         true,
	} {
		if got := capi.IsForeignHold(name); got != foreign {
			t.Errorf("%s: foreign %v", name, got)
		}
	}
}
