package restore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// TestASuspendedHostWritesNothing: a host is suspended within a step, and another one takes the
// operation over meanwhile and ends it. When the first one wakes up, it neither unpauses, nor
// pauses, nor removes what the other one has left, nor repeats a write to it.
func TestASuspendedHostWritesNothing(t *testing.T) {
	errLost := errors.New("another host has taken over")
	lostIn := func(x *trial, step catalog.Step, in catalog.StepState) {
		x.alive = func(ctx context.Context) error {
			state, err := x.journal().State(ctx, step)
			if err == nil && state == in {
				err = errLost
			}
			return err
		}
	}
	release := releaseStep("one/w")

	x := newTrial(t, twoTenantsOwning(t), newMemory(t, "target"))
	lostIn(x, release, catalog.StepBegun)
	if _, err := x.run(t); !errors.Is(err, errLost) {
		t.Errorf("a lost run ended with %v", err)
	}
	if got := x.released(t); got != "two/w" {
		t.Errorf("a lost run has released %q", got)
	}
	x.alive = nil
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	lostIn(x, release, catalog.StepUndoing)
	r := newRun(t.Context(), RunOptions{Plan: x.plan, Reader: x.target, Writer: x.target,
		Kinds: x.target.kinds, Operation: string(x.id), Journal: x.journal()})
	if err := r.prepareRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.catalog.SetState(t.Context(), x.id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := r.repause(t.Context(), x.plan.Units[0]); !errors.Is(err, errLost) {
		t.Errorf("a lost repause ended with %v", err)
	}
	if got := x.released(t); got != "one/w two/w" {
		t.Errorf("after a lost repause %q are not paused", got)
	}

	x.alive = func(context.Context) error { return errLost }
	r.Journal = x.journal()
	live, writes := x.target.get(t, "Cluster.cluster.x-k8s.io/two/w"), 0
	k := r.kinds[refOf(live).GroupKind()]
	_, err := r.converge(t.Context(), k, live, func(*unstructured.Unstructured) (
		*unstructured.Unstructured, error) {
		writes++
		return nil, apierrors.NewConflict(resourceOf(k), "w", errors.New("it was changed"))
	})
	if !errors.Is(err, errLost) || writes != 1 {
		t.Errorf("a lost host wrote %d times: %v", writes, err)
	}

	x = pausedTrial(t)
	before := left(x.target)
	x.alive = func(context.Context) error { return errLost }
	if err := x.undo(t, &mortal{memory: x.target, writes: -1}); !errors.Is(err, errLost) {
		t.Errorf("a lost rollback ended with %v", err)
	}
	if got := left(x.target); !slices.Equal(got, before) {
		t.Errorf("a lost rollback left %v of %v", got, before)
	}
}

// TestASuspendedHostChangesNothingOfOthers: a host is suspended after it has read what it is about
// to change, a Secret that two workload clusters own, and a Binding that a ClusterResourceSet of
// the target has made.
func TestASuspendedHostChangesNothingOfOthers(t *testing.T) {
	errLost := errors.New("another host has taken over")
	const secret, binding = "Secret/one/shared",
		"ClusterResourceSetBinding.addons.cluster.x-k8s.io/one/v"
	x := newTrial(t, twoTenants(t,
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"v"},"spec":{}}`,
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"u"},"spec":{}}`,
		`{"kind":"Secret","metadata":{"namespace":"one","name":"shared","ownerReferences":[
			{"kind":"Cluster","name":"u"},{"kind":"Cluster","name":"v"}]}}`,
		`{"kind":"ClusterResourceSetBinding","metadata":{"namespace":"one","name":"v"},
			"spec":{"clusterName":"v"}}`), newMemory(t, "target"))
	x.alive = func(ctx context.Context) error {
		for _, unit := range []string{"one/u", "one/v"} {
			state, err := x.journal().State(ctx, catalog.Step{Unit: unit, Phase: "owners"})
			if err != nil || state == catalog.StepBegun {
				return cmp.Or(err, errLost)
			}
		}
		return nil
	}
	if _, err := x.run(t); !errors.Is(err, errLost) {
		t.Errorf("a lost run ended with %v", err)
	}
	owned := func() int { return len(x.target.get(t, secret).GetOwnerReferences()) }
	if got := owned(); got > 0 {
		t.Errorf("the Secret has %d owners after the host was lost", got)
	}
	x.alive = nil
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	if got := owned(); got != 2 {
		t.Errorf("the Secret has %d owners in the end", got)
	}

	op, err := x.catalog.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	x.id = op.ID
	if _, err := x.catalog.SetState(t.Context(), x.id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	r := newRun(t.Context(), RunOptions{Plan: x.plan, Contents: x.contents, Reader: x.target,
		Writer: x.target, Kinds: x.target.kinds, Operation: string(x.id), Journal: x.journal()})
	if err := r.prepareRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := 0
	x.alive = func(context.Context) error {
		if asked++; asked > 1 { // it was suspended after the first time
			return errLost
		}
		return nil
	}
	r.Journal = x.journal()
	was := x.target.get(t, binding)
	_, err = r.createOrFind(t.Context(), r.kinds[refOf(was).GroupKind()], was.DeepCopy(), "one/v",
		Object{Ref: refOf(was), Action: Create})
	if !errors.Is(err, errLost) {
		t.Errorf("a lost host took a Binding over: %v", err)
	}
	if now := x.target.get(t, binding); now.GetResourceVersion() != was.GetResourceVersion() {
		t.Errorf("a lost host wrote a Binding: %v", now)
	}
}
