//go:build api

package move_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// manyOwners is how many workload clusters own one Secret: with MGMTD_TEST_STATES so many that it
// takes minutes.
func manyOwners() int {
	if only != "" {
		return 300
	}
	return 20
}

// sharedSecret is the name of that Secret.
const sharedSecret = "owned-by-all"

// newOwners makes a fleet of minimal workload clusters on the first side, and a Secret that all of
// them own.
func newOwners(t *testing.T, n int) *fixture {
	t.Helper()
	fx := &fixture{t: t, dir: t.TempDir(), namespace: "owners"}
	for i := range fx.sides {
		s := &side{Mgmt: servers.Connect(t, i)}
		var err error
		s.kinds, err = s.Reader().Kinds(t.Context())
		must(t, err)
		fx.sides[i] = s
	}
	fx.makeStore()
	fx.fill(kube.NamespaceKind, `{"metadata":{"name":"`+fx.namespace+`"}}`)
	cluster := fx.kind(0, capi.Cluster)
	infrastructure := fx.kind(0, object.GroupKind{Group: "infrastructure.cluster.x-k8s.io",
		Kind: "DevCluster"})
	owners := make([]metav1.OwnerReference, n)
	var g task.Group
	g.SetLimit(16)
	for n := range owners {
		g.Go(func() error {
			name := fmt.Sprintf("o-%03d", n)
			u := fx.fill(cluster, `{"metadata":{"name":"`+name+`","finalizers":["cluster.cluster.x-k8s.io"]},
				"spec":{"infrastructureRef":{"apiGroup":"`+infrastructure.Group+`","kind":"`+
				infrastructure.Kind+`","name":"`+name+`"}},
				"status":{"initialization":{"infrastructureProvisioned":true}}}`)
			owners[n] = metav1.OwnerReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(),
				Name: name, UID: u.GetUID()}
			owner, err := json.Marshal(owners[n])
			fx.fill(infrastructure, `{"metadata":{"name":"`+name+`","ownerReferences":[`+string(owner)+`],
				"labels":{"cluster.x-k8s.io/cluster-name":"`+name+`"}},"spec":{"backend":{"inMemory":{}}},
				"status":{"initialization":{"provisioned":true}}}`)
			return err
		})
	}
	must(t, g.Wait())
	text, err := json.Marshal(owners)
	must(t, err)
	fx.fill(kube.SecretKind, `{"metadata":{"name":"`+sharedSecret+`","ownerReferences":`+string(text)+
		`},"data":{"token":"YQ=="}}`)
	for i := range fx.sides {
		fx.sides[i].changed = servers.AcknowledgeIn(t, i, fx.namespace)
	}
	must(t, fx.awaitQuiet())
	return fx
}

// fill creates an object on the source, with its status.
func (fx *fixture) fill(k kube.Kind, text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	err := json.Unmarshal([]byte(text), &u.Object)
	u.SetAPIVersion(k.APIVersion())
	u.SetKind(k.Kind)
	if k.Namespaced {
		u.SetNamespace(fx.namespace)
	}
	status := u.Object["status"]
	if err == nil {
		u, err = fx.source().Writer().Create(fx.t.Context(), k, u)
	}
	if err == nil && status != nil {
		u.Object["status"] = status
		u, err = fx.source().Writer().UpdateStatus(fx.t.Context(), k, u)
	}
	if err != nil {
		panic(err) // in a goroutine
	}
	return u
}

// TestAPIMoveOfManyUnitsThatOwnOneSecret: many workload clusters own one Secret that nothing names.
// None fails because others write their owner reference to it at the same time. A part is moved
// first, and the Secret stays on the source with the owners that stay.
func TestAPIMoveOfManyUnitsThatOwnOneSecret(t *testing.T) {
	t.Parallel()
	n := manyOwners()
	fx := newOwners(t, n)
	check := func(i, want int) {
		t.Helper()
		live := fx.live(i)
		secret := live[object.Ref{Kind: "Secret", Namespace: fx.namespace, Name: sharedSecret}]
		if secret == nil {
			if want > 0 {
				t.Errorf("the Secret is not on side %d", i)
			}
			return
		}
		uids := map[types.UID]bool{}
		for _, o := range secret.GetOwnerReferences() {
			u := live[clusterRef(fx.namespace, o.Name)]
			if u == nil || u.GetUID() != o.UID {
				t.Errorf("side %d: owner %s is not there", i, o.Name)
			}
			uids[o.UID] = true
		}
		if len(uids) != want {
			t.Errorf("side %d: the Secret has %d owners, want %d", i, len(uids), want)
		}
	}
	began := time.Now()
	fx.carryOut(fx.order(doMove).restrict(fx.namespace, "o-001", "o-002", "o-019"),
		catalog.Succeeded, nil)
	check(0, n-3)
	check(1, 3)
	e := fx.carryOut(fx.order(doMove), catalog.Succeeded, nil)
	if len(e.Findings) > 0 {
		t.Errorf("findings: %q", e.Findings)
	}
	check(1, n)
	check(0, 0)
	if left := fx.live(0); len(left) > 0 {
		t.Errorf("%d objects are left on the source", len(left))
	}
	t.Logf("%d workload clusters moved in %s", n, time.Since(began).Round(time.Second))
}
