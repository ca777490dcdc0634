//go:build api

package move_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAPIRollbackTakesAHandOverBackBeforeTheCopyGoes: a host is suspended in a hand-over, and wakes
// up while another one removes the copies. What it would hand over is not there any more.
func TestAPIRollbackTakesAHandOverBackBeforeTheCopyGoes(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "takes-back")
	wake, ended := fx.sleepIn("hand-over")
	var once sync.Once
	e, err := carryOut(t.Context(), fx.elsewhere(doRollback), func(_ context.Context,
		r catalog.StepRecord) error {
		if r.State == catalog.StepUndoing && strings.HasPrefix(r.Step.Phase, "create") {
			once.Do(func() {
				wake()
				<-ended
			})
		}
		return nil
	})
	must(t, err)
	if e.State != string(catalog.RolledBack) {
		t.Errorf("the rollback ended as %s: %s", e.State, e.Message)
	}
	if left := fx.live(1 - fx.at); len(left) > 0 {
		t.Errorf("%d objects are left on the target", len(left))
	}
	for _, unit := range classyUnits {
		if capi.PausedByUs(fx.get(fx.at, clusterRef(fx.namespace, unit)).Object) {
			t.Errorf("%s is paused on the source", unit)
		}
	}
}

// TestAPIRollbackOfAClusterWithoutItsLock: somebody removed it while the Cluster is paused. The
// rollback does not pass over that, and ends once the lock is there again.
func TestAPIRollbackOfAClusterWithoutItsLock(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "no-lock")
	unit := classyUnits[0]
	cluster := clusterRef(fx.namespace, unit)
	o := fx.order(doMove)
	o.Canary, o.Kill = fx.namespace+"/"+unit, &notHandedOver
	_, err := fx.run(o)
	must(t, err)
	lock := fx.get(fx.at, cluster).GetAnnotations()[capi.AnnotationOperation]
	fx.change(fx.at, cluster, func(u *unstructured.Unstructured) {
		capi.Unannotate(u.Object, capi.AnnotationOperation)
	})
	e := fx.carryOut(fx.order(doRollback), catalog.Failed, nil)
	if !strings.Contains(e.Message, "the lock of workload cluster") ||
		!capi.PausedByUs(fx.get(fx.at, cluster).Object) {
		t.Errorf("it ended with: %s", e.Message)
	}
	fx.change(fx.at, cluster, func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, capi.AnnotationOperation, lock)
	})
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	if capi.PausedByUs(fx.get(fx.at, cluster).Object) {
		t.Error("it is paused on the source")
	}
}

// TestAPIMoveOfWhatHasComeToOwnAClass: the class is for a workload cluster that stays as well. The
// garbage collector would delete it with an owner that it got after the snapshot.
func TestAPIMoveOfWhatHasComeToOwnAClass(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "owns-class")
	unit := classyUnits[0]
	gk := object.GroupKind{Group: capi.Cluster.Group, Kind: "ClusterClass"}
	var class object.Ref
	for ref := range fx.live(fx.at) {
		if ref.GroupKind() == gk {
			class = ref
		}
	}
	o := fx.order(doMove)
	o.Spec.Selection.Namespaces = nil
	o.Spec.Selection.Workloads = []object.Key{{Namespace: fx.namespace, Name: unit}}
	control := fx.one("KubeadmControlPlane", unit)
	fx.carryOut(o, catalog.Succeeded, fx.whenOnce(unit, "hand-over", catalog.StepDone, func() error {
		owner := fx.get(fx.at, control)
		return fx.tryChange(fx.at, class, func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(),
				Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}})
		})
	}))
	live := fx.live(fx.at)
	if u := live[class]; u == nil || len(u.GetOwnerReferences()) > 0 || u.GetDeletionTimestamp() != nil {
		t.Errorf("on the source the class is %v", u)
	}
	if slices.ContainsFunc([]object.Ref{control, clusterRef(fx.namespace, unit)},
		func(r object.Ref) bool { return live[r] != nil }) {
		t.Error("the unit is not retired")
	}
}
