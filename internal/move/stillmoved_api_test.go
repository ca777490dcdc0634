//go:build api

package move_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAPII2NothingIsRetiredThatTheTargetHasLost: a move ends once its units are well on the target.
// Before it is resumed, the etcd of the target is restored from a backup, so that one of them is
// gone there, and another one paused as before its release. Both stay on the source. The run before
// that was stopped when it was about to pause the first one, and pauses nothing any more.
func TestAPII2NothingIsRetiredThatTheTargetHasLost(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "lost-again")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := carryOut(ctx, fx.order(doMove), fx.beginning(classyUnits[0], "pause", func() error {
		stop()
		return nil
	}))
	must(t, err)
	gone, paused := clusterRef(fx.namespace, classyUnits[0]), clusterRef(fx.namespace, classyUnits[1])
	for _, cluster := range []object.Ref{gone, paused} {
		if isPaused(fx.get(fx.at, cluster)) {
			t.Errorf("%s is paused after the run was stopped", cluster)
		}
	}

	errStopped := errors.New("the run ends here")
	fx.carryOut(fx.order(doResume), catalog.Failed, func(_ context.Context,
		r catalog.StepRecord) error {
		if r.Step.Phase == "retire" {
			return errStopped
		}
		return nil
	})
	fx.change(1-fx.at, gone, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
	must(t, fx.target().Writer().Delete(t.Context(), fx.kind(1-fx.at, capi.Cluster), gone.Namespace,
		gone.Name, fx.get(1-fx.at, gone).GetUID(), ""))
	was := fx.get(1-fx.at, paused)
	fx.change(1-fx.at, paused, func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, capi.AnnotationWasPaused, "absent")
		_ = unstructured.SetNestedField(u.Object, true, "spec", "paused")
	})

	e := fx.carryOut(fx.order(doResume), catalog.Failed, nil)
	for cluster, why := range map[object.Ref]string{gone: "is not there any more",
		paused: "has paused its Cluster there"} {
		if !slices.ContainsFunc(e.Findings, func(f string) bool {
			return strings.HasPrefix(f, string(object.CodeNotOnTarget)) && strings.Contains(f, why)
		}) {
			t.Errorf("nothing says of %s that it %s: %q", cluster, why, e.Findings)
		}
		if !isPaused(fx.get(fx.at, cluster)) || fx.left(cluster.Name) < 5 {
			t.Errorf("%s is not left on the source", cluster)
		}
	}
	if n := fx.left(pausedUnit); n > 0 {
		t.Errorf("%d objects of %s, which is well on the target, are left", n, pausedUnit)
	}

	fx.change(1-fx.at, paused, func(u *unstructured.Unstructured) {
		u.Object["spec"] = was.Object["spec"]
		capi.Unannotate(u.Object, capi.AnnotationWasPaused)
	})
	fx.carryOut(fx.order(doResume), catalog.Failed, nil)
	if n := fx.left(paused.Name); n > 0 || fx.left(gone.Name) == 0 {
		t.Errorf("%d objects are left of what is at work on the target again", n)
	}
}
