//go:build api

package move_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// poolUnits are three workload clusters of the fleet that have addresses of one pool.
var poolUnits = append(slices.Clone(classyUnits), pausedUnit)

// makePool makes a pool of addresses on the source, and an address of it for each of three workload
// clusters.
func (fx *fixture) makePool() object.Ref {
	fx.t.Helper()
	make := func(kind, text string) *unstructured.Unstructured {
		k := fx.kind(fx.at, object.GroupKind{Group: capi.GroupIPAM, Kind: kind})
		u := &unstructured.Unstructured{}
		must(fx.t, json.Unmarshal([]byte(text), &u.Object))
		u.SetAPIVersion(k.APIVersion())
		u.SetKind(kind)
		u.SetNamespace(fx.namespace)
		u, err := fx.source().Writer().Create(fx.t.Context(), k, u)
		must(fx.t, err)
		return u
	}
	const of = `"poolRef":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"pool"}`
	make("InClusterIPPool", `{"metadata":{"name":"pool"},
		"spec":{"addresses":["192.0.2.10-192.0.2.20"],"prefix":24}}`)
	for i, unit := range poolUnits {
		cluster := fx.get(fx.at, clusterRef(fx.namespace, unit))
		claim := make("IPAddressClaim", fmt.Sprintf(`{"metadata":{"name":"%s-claim",
			"labels":{"cluster.x-k8s.io/cluster-name":%q},"ownerReferences":[{"apiVersion":%q,
				"kind":"Cluster","name":%q,"uid":%q}]},"spec":{"clusterName":%q,%s}}`, unit, unit,
			cluster.GetAPIVersion(), unit, cluster.GetUID(), unit, of))
		make("IPAddress", fmt.Sprintf(`{"metadata":{"name":"%s-claim","ownerReferences":[{
			"apiVersion":%q,"kind":"IPAddressClaim","name":"%s-claim","uid":%q}]},
			"spec":{"address":"192.0.2.1%d","prefix":24,"claimRef":{"name":"%s-claim"},%s}}`, unit,
			claim.GetAPIVersion(), unit, claim.GetUID(), i, unit, of))
	}
	must(fx.t, fx.awaitQuiet())
	return object.Ref{Group: capi.GroupIPAM, Kind: "InClusterIPPool", Namespace: fx.namespace,
		Name: "pool"}
}

// testPoolOfThree: three workload clusters have addresses of one pool. When the first
// one is retired, the source does not know its address any more. So the pool gives none there from
// before the first pause, also when the rest is rolled back then; the next move releases it on the
// target. A resume pauses it again when somebody has ended its pause, before it retires a user.
func testPoolOfThree(t *testing.T) {
	t.Helper()
	t.Parallel()
	fx := newFixture(t, "pools")
	pool := fx.makePool()
	o := fx.order(doMove)
	o.Canary = fx.namespace + "/" + poolUnits[0]
	o.Spec.Selection = restore.Selection{}
	for _, unit := range poolUnits {
		o.Spec.Selection.Workloads = append(o.Spec.Selection.Workloads,
			object.Key{Namespace: fx.namespace, Name: unit})
	}
	paused := func(i int) bool { return (*capi.Table)(nil).StillPaused(fx.get(i, pool).Object) }
	var before, retired bool
	first := fx.whenOnce(poolUnits[0], "pause", catalog.StepBegun,
		func() error { before = paused(fx.at); return nil })
	failing := func(ctx context.Context, r catalog.StepRecord) error {
		if r.Step.Phase == "pause" && r.Step.Unit != o.Canary {
			retired = fx.live(fx.at)[clusterRef(fx.namespace, poolUnits[0])] == nil
			return errors.New("it cannot be paused")
		}
		return first(ctx, r)
	}
	fx.carryOut(o, catalog.Failed, failing)
	fx.change(fx.at, pool, func(u *unstructured.Unstructured) {
		capi.Unannotate(u.Object, capi.AnnotationPaused) // who does that by hand leaves our mark
	})
	fx.carryOut(fx.order(doResume), catalog.Failed, failing)
	if !before || !retired || !paused(fx.at) || !paused(1-fx.at) {
		t.Errorf("paused before the first pause: %t; the first one is retired: %t; the pool is paused "+
			"now: %t, on the target: %t", before, retired, paused(fx.at), paused(1-fx.at))
	}
	e := fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	reports := len(slices.DeleteFunc(slices.Clone(e.Warnings), func(w string) bool {
		return !strings.HasPrefix(w, string(object.CodeSharedKept))
	}))
	if !paused(fx.at) || reports != 3 { // by the move, its resume, and its rollback
		t.Errorf("after the rollback the pool is paused: %t; warnings: %q", paused(fx.at), e.Warnings)
	}
	o = fx.order(doMove)
	o.Kill = &notHandedOver
	_, err := fx.run(o)
	must(t, err)
	if e = fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil); !paused(fx.at) {
		t.Errorf("a rollback has ended the pause of the first move; warnings: %q", e.Warnings)
	}
	retiring := func(fn func() error) func(context.Context, catalog.StepRecord) error {
		return fx.whenOnce(poolUnits[1], "retire", catalog.StepBegun, fn)
	}
	fx.carryOut(fx.order(doMove), catalog.Failed, retiring(func() error {
		return errors.New("the run ends here")
	}))
	fx.change(fx.at, pool, func(u *unstructured.Unstructured) {
		capi.Unannotate(u.Object, capi.AnnotationPaused)
	})
	atWork := true
	fx.carryOut(fx.order(doResume), catalog.Succeeded, retiring(func() error {
		atWork = !paused(fx.at)
		return nil
	}))
	if atWork {
		t.Error("the pool is at work on the source when a resume retires one of its users")
	}
	if fx.live(fx.at)[pool] != nil || paused(1-fx.at) {
		t.Errorf("after the second move the pool is on the source: %t, paused on the target: %t",
			fx.live(fx.at)[pool] != nil, paused(1-fx.at))
	}
}
