package capture

import (
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
)

func TestNodeReadsMetadataAndEdges(t *testing.T) {
	k := kube.Kind{GroupKind: capi.KubeadmControlPlane, Version: "v1beta2", Namespaced: true}
	raw := []byte(`{"apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","kind":"KubeadmControlPlane","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7",
		"labels":{"cluster.x-k8s.io/cluster-name":"a"},"annotations":{"cluster.x-k8s.io/paused":""},"deletionTimestamp":"x",
		"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":"a","uid":"c"}]},
		"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"DevMachineTemplate","name":"t"}}},
		"kubeadmConfigSpec":{"files":[{"path":"/a"},{"contentFrom":{"secret":{"name":"s","key":"k"}}}]}}}`)
	n := NewNodeReader([]kube.Kind{k, kube.SecretKind}, nil).Node(k, raw)
	if n.Ref.String() != "KubeadmControlPlane.controlplane.cluster.x-k8s.io/ns/a" || n.UID != "u" ||
		n.ResourceVersion != "7" || !n.Paused ||
		!n.Deleting || n.Cluster != "a" {
		t.Errorf("node %+v", n)
	}
	if len(n.Owners) != 1 || n.Owners[0].String() != "Cluster.cluster.x-k8s.io/ns/a" ||
		n.Owners[0].UID != "c" {
		t.Errorf("owners %v", n.Owners)
	}
	var named []string
	for _, need := range n.Needs {
		named = append(named, need.Ref.String())
	}
	if strings.Join(named,
		" ") != "DevMachineTemplate.infrastructure.cluster.x-k8s.io/ns/t Secret/ns/s" {
		t.Errorf("needs %v", named)
	}
}
