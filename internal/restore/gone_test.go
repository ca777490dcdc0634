package restore

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestWhatIsGoneSinceTheReleaseDoesNotKeepTheRestPaused: a unit is paused again, in which objects
// with switches of their own are gone from the target, are replaced, or cannot be written. Its
// Cluster is paused all the same, and a resume releases it: where something is gone, once the
// operator accepts that.
func TestWhatIsGoneSinceTheReleaseDoesNotKeepTheRestPaused(t *testing.T) {
	const cluster = "Cluster.cluster.x-k8s.io/n/w"
	errRefused := errors.New("a webhook refuses it")
	for name, tt := range map[string]struct {
		change func(x *trial)
		want   error
	}{
		"gone": {func(x *trial) {
			x.target.remove(t, resourceRef)
			x.target.remove(t, addonRef)
			x.target.remove(t, hostRef)
		}, nil},
		"replaced": {func(x *trial) {
			for _, ref := range []string{resourceRef, addonRef, hostRef} {
				x.target.set(t, ref, func(u *unstructured.Unstructured) { u.SetUID("another") })
			}
		}, nil},
		"refused": {func(x *trial) {
			x.target.refuseUpdate = func(u *unstructured.Unstructured) error {
				if refOf(u).String() == addonRef {
					return errRefused
				}
				return nil
			}
		}, errRefused},
	} {
		x := newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra, sourceAddon,
			sourceResource, sourceMetal3Pool, sourceHost("provisioned", ``)), newMemory(t, "target"))
		if failures, err := x.run(t); err != nil {
			t.Fatalf("%s: %q: %v", name, failures, err)
		}
		tt.change(x)
		x.load(t)
		if err := x.tryRepause(t, "n/w"); !errors.Is(err, tt.want) {
			t.Errorf("%s: the repause ended with %v", name, err)
		}
		pool := x.target.get(t, metal3PoolRef)
		if x.released(t) != "" || !capi.PausedByUs(pool.Object) {
			t.Errorf("%s: %q is at work, its pool %v", name, x.released(t), pool.GetAnnotations())
		}
		x.target.refuseUpdate = nil
		if tt.want == nil { // something is gone
			_, err := x.run(t)
			if _, is := errors.AsType[*lostError](err); x.released(t) != "" || !is {
				t.Errorf("%s: before it is accepted %q is released: %v", name, x.released(t), err)
			}
			if err := x.catalog.AcceptUnit(t.Context(), x.id, object.Finding{Severity: object.Warning,
				Code: object.CodeDifferenceAccepted, Unit: "n/w"}); err != nil {
				t.Fatal(err)
			}
		}
		failures, err := x.run(t)
		if err != nil || x.released(t) != "n/w" || capi.PausedByUs(x.target.get(t, cluster).Object) ||
			capi.PausedByUs(x.target.get(t, metal3PoolRef).Object) {
			t.Errorf("%s: a resume has released %q: %q, %v", name, x.released(t), failures, err)
		}
	}
}

// TestTheFirstReleaseEndsAtWhatIsGone, before its Cluster is at work: the unit was never well.
func TestTheFirstReleaseEndsAtWhatIsGone(t *testing.T) {
	x := newTrial(t, newMemory(t, "source", needsNamespace, needsCluster, needsInfra, sourceResource),
		newMemory(t, "target"))
	x.hooks.BeforeRelease = func(context.Context, Unit) error {
		x.target.remove(t, resourceRef)
		return nil
	}
	if _, err := x.run(t); err == nil || x.released(t) != "" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}
