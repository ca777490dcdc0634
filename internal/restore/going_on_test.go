package restore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestNothingIsReleasedOnceARunHasStopped: a unit that has its place in the stage waits in its hook
// while another one fails. A resume releases both.
func TestNothingIsReleasedOnceARunHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it waits
		x := newTrial(t, twoTenants(t), newMemory(t, "target"))
		x.tuning.MaxFailures, x.hooks.ReleaseTogether = 1, true
		failed, waits := make(chan struct{}), make(chan struct{})
		x.hooks.OnFailed = func(_ context.Context, u Unit) {
			if u.Name == "one/w" {
				close(failed)
			}
		}
		x.hooks.BeforeRelease = func(_ context.Context, u Unit) error {
			if u.Name == "one/w" {
				<-waits
				return errDied
			}
			close(waits)
			<-failed
			return nil
		}
		if _, err := x.run(t); err == nil || x.released(t) != "" {
			t.Errorf("released %q: %v", x.released(t), err)
		}
		x.hooks = Hooks{}
		x.load(t)
		if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" {
			t.Errorf("resumed: released %q: %v", x.released(t), err)
		}
	})
}

// TestAUnitDoesNotReachItsHookOnceARunHasStopped: the hook claims or hands over, which cannot be
// taken back.
func TestAUnitDoesNotReachItsHookOnceARunHasStopped(t *testing.T) {
	r := newRun(t.Context(), RunOptions{Plan: &Plan{}})
	i := slices.IndexFunc(unitPhases, func(p phase) bool { return p.name == phaseBeforeRelease })
	last := unitPhases[i-1]
	if err := last.run(t.Context(), r, Unit{}, &unitState{}); err != nil {
		t.Error(err)
	}
	r.stages.stop()
	if err := last.run(t.Context(), r, Unit{}, &unitState{}); !errors.Is(err, errNotReleased) {
		t.Error(err)
	}
}

// flakyWriter fails the first creation of a Cluster.
type flakyWriter struct {
	*memory
	failed func()
}

func (w *flakyWriter) Create(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if k.GroupKind == capi.Cluster && w.failed != nil {
		w.failed()
		w.failed = nil
		return nil, apierrors.NewServiceUnavailable("no answer")
	}
	return w.memory.Create(ctx, k, u)
}

// TestNothingIsCreatedAfterATakeOver: another host takes the operation over, and perhaps rolls it
// back, while a creation waits to be tried again.
func TestNothingIsCreatedAfterATakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it waits
		x := newTrial(t, twoTenants(t), newMemory(t, "target"))
		x.tuning.Concurrency = 1
		takenOver, errTaken := false, errors.New("another host goes on")
		x.alive = func(context.Context) error {
			if takenOver {
				return errTaken
			}
			return nil
		}
		x.writer = &flakyWriter{memory: x.target, failed: func() { takenOver = true }}
		if _, err := x.run(t); err == nil {
			t.Error("it ended well")
		}
		if slices.ContainsFunc(x.target.created, func(ref object.Ref) bool {
			return ref.GroupKind() == capi.Cluster
		}) {
			t.Errorf("created %v", x.target.created)
		}
	})
}

// TestUndoPassesOverSharedObjectsThatAreGone: a unit whose copies are to go owns a shared object
// that somebody is deleting, or has made again. One that was made again with these owners would go
// with them, by the garbage collector: the copies stay.
func TestUndoPassesOverSharedObjectsThatAreGone(t *testing.T) {
	for name, tt := range map[string]struct {
		change      func(u *unstructured.Unstructured)
		goes, stays bool
	}{
		"it is being deleted": {func(u *unstructured.Unstructured) {
			now := metav1.Now()
			u.SetDeletionTimestamp(&now)
			u.SetFinalizers([]string{"example.test/held"})
		}, true, false},
		"it was made again": {func(u *unstructured.Unstructured) {
			u.SetUID("another")
			u.SetOwnerReferences(nil)
		}, false, false},
		"it was made again with its owners": {func(u *unstructured.Unstructured) {
			u.SetUID("another")
		}, false, true},
	} {
		x := ownedByBoth(t)
		before := left(x.target)
		x.target.set(t, secretOfBoth, tt.change)
		err := x.undo(t, &mortal{memory: x.target, writes: -1})
		want := []string{secretOfBoth}
		if tt.stays {
			want = before
		} else if tt.goes { // its finalizers are ours
			want = nil
		}
		if got := left(x.target); !slices.Equal(got, want) || (err != nil) != tt.stays {
			t.Errorf("%s: left %q: %v", name, got, err)
		}
	}
}
