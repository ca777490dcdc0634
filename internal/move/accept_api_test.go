//go:build api

package move_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
)

// TestAPIMoveEndsOnceItsMachinesAreAccepted: a Machine is deleted on the target right after the
// release, as by a rollout. The move pauses the workload cluster there again, below which the
// Machine never goes. Before the operator accepts that, a resume releases nothing, and says so at
// once. Afterwards it brings the move to its end, also where somebody has ended that pause.
func TestAPIMoveEndsOnceItsMachinesAreAccepted(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "accepted")
	for i, unit := range classyUnits {
		cluster, machine := clusterRef(fx.namespace, unit), fx.one("Machine", unit)
		o := fx.order(doMove).restrict(fx.namespace, unit)
		fx.carryOut(o, catalog.Failed, fx.whenOnce(unit, "release", catalog.StepDone, func() error {
			u := fx.get(1-fx.at, machine)
			return fx.target().Writer().Delete(t.Context(), fx.kind(1-fx.at, machine.GroupKind()),
				machine.Namespace, machine.Name, u.GetUID(), "")
		}))
		if !capi.PausedByUs(fx.get(1-fx.at, cluster).Object) ||
			fx.get(1-fx.at, machine).GetDeletionTimestamp() == nil {
			t.Fatal("it is not paused again, or its Machine is not being deleted")
		}
		resume := fx.order(doResume)
		e := fx.carryOut(resume, catalog.Failed, nil)
		if !slices.ContainsFunc(e.Findings, func(f string) bool {
			return strings.Contains(f, "is being deleted") && strings.Contains(f, machine.Name)
		}) || !capi.PausedByUs(fx.get(1-fx.at, cluster).Object) {
			t.Errorf("before it is accepted: %q", e.Findings)
		}
		if i > 0 {
			fx.change(1-fx.at, cluster, func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, false, "spec", "paused")
			})
		}
		fx.accept(unit)
		fx.carryOut(resume, catalog.Succeeded, nil)
		live := fx.get(1-fx.at, cluster)
		paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused")
		if n := fx.left(unit); n > 0 || paused || capi.PausedByUs(live.Object) {
			t.Errorf("%d objects are left on the source; on the target it is paused: %t, %v", n, paused,
				live.GetAnnotations())
		}
	}
}
