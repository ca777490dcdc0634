package capture

import (
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
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

// TestRowsOfTheConfigurationAreCaptured: a kind that only the configuration knows is selected
// though its CRD has no label, and the fields of its row are edges.
func TestRowsOfTheConfigurationAreCaptured(t *testing.T) {
	pool := kube.Kind{GroupKind: object.GroupKind{Group: "acme.example.org", Kind: "Pool"},
		Version:    "v1",
		Namespaced: true}
	rows, err := capi.New([]capi.Row{{GroupKind: pool.GroupKind, Source: "a test",
		Pause: capi.PauseByAnnotation,
		Refs:  []capi.Reference{{Path: "spec.credentials.#.secretName", To: capi.Secret}}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := customKinds([]kube.Kind{pool}, rows); len(got) != 1 {
		t.Errorf("selected %v", got)
	}
	if got, _ := customKinds([]kube.Kind{pool}, nil); len(got) != 0 {
		t.Errorf("selected without the row: %v", got)
	}
	n := NewNodeReader([]kube.Kind{pool, kube.SecretKind}, rows).Node(pool, []byte(`{"metadata":{"name":"a",
		"namespace":"ns","uid":"u"},"spec":{"credentials":[{"secretName":"x"},{"secretName":"y"}]}}`))
	if len(n.Needs) != 2 || n.Needs[0].String() != "Secret/ns/x" {
		t.Errorf("needs %v", n.Needs)
	}
}

// TestNodeReadsAnnotationsStatusAndTheNamespaceOfControllers: the edges of hosts, of their firmware
// and of identities.
func TestNodeReadsAnnotationsStatusAndTheNamespaceOfControllers(t *testing.T) {
	kind := func(group, kind string) kube.Kind {
		return kube.Kind{GroupKind: object.GroupKind{Group: group, Kind: kind}, Version: "v1",
			Namespaced: true}
	}
	machine, settings := kind(capi.GroupInfrastructure, "Metal3Machine"),
		kind("metal3.io", "HostFirmwareSettings")
	host, identity := kind("metal3.io", "BareMetalHost"),
		kind(capi.GroupInfrastructure, "AWSClusterStaticIdentity")
	identity.Namespaced, identity.Controller = false, "my-capa"
	read := NewNodeReader([]kube.Kind{machine, settings, host, identity, kube.SecretKind}, nil)
	for _, tt := range []struct {
		kind      kube.Kind
		raw, want string
	}{
		{machine, `{"metadata":{"name":"m","namespace":"ns","annotations":{"metal3.io/BareMetalHost":` +
			`"hosts/h"}},"spec":{}}`, "BareMetalHost.metal3.io/hosts/h"},
		{settings, `{"metadata":{"name":"h","namespace":"ns"},"spec":{},"status":{"schema":{"name":"s",` +
			`"namespace":"ns"}}}`, "FirmwareSchema.metal3.io/ns/s"},
		{host, `{"metadata":{"name":"h","namespace":"ns"},"spec":{"consumerRef":{"apiVersion":` +
			`"infrastructure.cluster.x-k8s.io/v1beta1","kind":"Metal3Machine","name":"m"}}}`,
			"Metal3Machine.infrastructure.cluster.x-k8s.io/ns/m back HardwareData.metal3.io/ns/h optional " +
				"HostFirmwareSettings.metal3.io/ns/h optional HostFirmwareComponents.metal3.io/ns/h optional " +
				"HostUpdatePolicy.metal3.io/ns/h optional PreprovisioningImage.metal3.io/ns/h optional " +
				"DataImage.metal3.io/ns/h optional"},
		{identity, `{"metadata":{"name":"i"},"spec":{"secretRef":"s"}}`, "Secret/my-capa/s"},
	} {
		var named []string
		for _, need := range read.Node(tt.kind, []byte(tt.raw)).Needs {
			named = append(named, need.Ref.String())
			if need.Back {
				named = append(named, "back")
			}
			if need.Optional {
				named = append(named, "optional")
			}
		}
		if got := strings.Join(named, " "); got != tt.want {
			t.Errorf("%s names %q, want %q", tt.kind.Kind, got, tt.want)
		}
	}
}
