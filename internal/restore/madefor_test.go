package restore

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestWhatAControllerMakesForAPausedOwnerIsTakenOver: the provider of Azure writes a Secret for
// each AzureMachinePool, also for a paused one, so that the unit failed at the Secret of the
// snapshot. One that somebody else has made stays theirs.
func TestWhatAControllerMakesForAPausedOwnerIsTakenOver(t *testing.T) {
	const pool = "AzureMachinePool.infrastructure.cluster.x-k8s.io/one/pool"
	for _, tt := range []struct {
		name, owner string
		released    string
		byOther     bool // somebody else has made the object on the target
	}{
		{"of a pool", `"ownerReferences":[{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2",
			"kind":"AzureMachinePool","name":"pool"}],`, "one/w two/w", false},
		{"of a pool, and made by somebody else", `"ownerReferences":[{
			"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"AzureMachinePool",
			"name":"pool"}],`, "two/w", true},
		{"of the Cluster", `"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2",
			"kind":"Cluster","name":"w"}],`, "two/w", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newTrial(t, twoTenantsOwning(t, `{"kind":"AzureMachinePool","metadata":{"namespace":"one",
				"name":"pool","labels":{"cluster.x-k8s.io/cluster-name":"w"}},"spec":{}}`,
				`{"kind":"Secret","metadata":{"namespace":"one","name":"pool-azure-json",`+tt.owner+`
				"labels":{"cluster.x-k8s.io/cluster-name":"w"}},"data":{"a":"b2xk"}}`),
				newMemory(t, "target"))
			if tt.name != "of the Cluster" {
				secret := x.source.get(t, "Secret/one/pool-azure-json")
				refs := secret.GetOwnerReferences()
				refs[0].UID = x.source.get(t, pool).GetUID()
				secret.SetOwnerReferences(refs)
			}
			made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
				"kind": "Secret", "metadata": map[string]any{"namespace": "one", "name": "pool-azure-json"},
				"data": map[string]any{"a": "bmV3"}}}
			x.target.onCreate = func(u *unstructured.Unstructured) {
				if refOf(u).String() == pool {
					if !tt.byOther {
						made.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: u.GetAPIVersion(),
							Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}})
					}
					x.target.put(object.Ref{Kind: "Secret", Namespace: "one", Name: made.GetName()}, made)
				}
			}
			_, err := x.run(t)
			if x.released(t) != tt.released {
				t.Fatalf("released %q: %v", x.released(t), err)
			}
			if tt.released == "two/w" {
				return
			}
			secret := x.target.get(t, "Secret/one/pool-azure-json")
			data, _, _ := unstructured.NestedString(secret.Object, "data", "a")
			owner := x.target.get(t, pool).GetUID()
			if data != "b2xk" || len(secret.GetOwnerReferences()) != 1 ||
				secret.GetOwnerReferences()[0].UID != owner {
				t.Errorf("the Secret is %v", secret)
			}
		})
	}
}
