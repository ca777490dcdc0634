//go:build api

package move_test

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestAPIMoveOfNamespaces: the snapshot of a batch has the namespaces of its units alone. A move of
// several namespaces brings all of them all the same, with what they need of others, and what
// nobody uses.
func TestAPIMoveOfNamespaces(t *testing.T) {
	t.Parallel()
	fx := &fixture{t: t, dir: t.TempDir()}
	for i := range fx.sides {
		s := &side{Mgmt: servers.Connect(t, i)}
		var err error
		s.kinds, err = s.Reader().Kinds(t.Context())
		must(t, err)
		fx.sides[i] = s
	}
	fx.makeStore()
	namespaces := []string{"spaces-a", "spaces-b", "spaces-classes", "spaces-releases"}
	for _, namespace := range namespaces {
		fx.namespace = namespace
		fx.fill(kube.NamespaceKind, `{"metadata":{"name":"`+namespace+`"}}`)
	}
	template := fx.kind(0, object.GroupKind{Group: "bootstrap.cluster.x-k8s.io",
		Kind: "KubeadmConfigTemplate"})
	fx.namespace = "spaces-classes"
	fx.fill(template, `{"metadata":{"name":"unused"},"spec":{"template":{"spec":{"format":"cloud-config"}}}}`)
	fx.namespace = "spaces-releases"
	fx.fill(kube.SecretKind, `{"metadata":{"name":"sh.helm.release.v1.web.v1",
		"labels":{"owner":"helm","name":"web"}},"type":"helm.sh/release.v1","data":{"release":"YQ=="}}`)
	cluster := fx.kind(0, capi.Cluster)
	for _, namespace := range namespaces[:2] {
		fx.namespace = namespace
		fx.fill(cluster, `{"metadata":{"name":"`+namespace+`","annotations":{
			"meta.helm.sh/release-name":"web","meta.helm.sh/release-namespace":"spaces-releases"}},
			"spec":{"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"DevCluster",
			"name":"`+namespace+`"}},"status":{"initialization":{"infrastructureProvisioned":true}}}`)
		fx.fill(fx.kind(0, object.GroupKind{Group: "infrastructure.cluster.x-k8s.io",
			Kind: "DevCluster"}), `{"metadata":{"name":"`+namespace+`",
			"labels":{"cluster.x-k8s.io/cluster-name":"`+namespace+`"}},
			"spec":{"backend":{"inMemory":{}}},"status":{"initialization":{"provisioned":true}}}`)
	}
	refs := []object.Ref{clusterRef("spaces-a", "spaces-a"), clusterRef("spaces-b", "spaces-b"),
		{Group: template.Group, Kind: template.Kind, Namespace: "spaces-classes", Name: "unused"},
		{Kind: "Secret", Namespace: "spaces-releases", Name: "sh.helm.release.v1.web.v1"}}
	for i := range fx.sides {
		for _, namespace := range namespaces {
			servers.AcknowledgeIn(t, i, namespace)
		}
	}
	for _, selection := range []restore.Selection{
		{Namespaces: namespaces[:3]},
		{Workloads: []object.Key{{Namespace: "spaces-a", Name: "spaces-a"},
			{Namespace: "spaces-b", Name: "spaces-b"}}},
	} {
		o := fx.order(doMove)
		o.Spec.Selection = selection
		fx.carryOut(o, catalog.Succeeded, nil)
		want := slices.Clone(refs)
		if len(selection.Namespaces) == 0 {
			want = slices.Delete(want, 2, 3) // it stays: nobody uses it, and it was not selected
		}
		for _, ref := range want {
			k := fx.kind(1-fx.at, ref.GroupKind())
			if _, err := fx.target().Reader().Get(t.Context(), k, ref.Namespace, ref.Name); err != nil {
				t.Errorf("%+v: %s: %v", selection, ref, err)
			}
		}
		fx.at = 1 - fx.at
	}
}
