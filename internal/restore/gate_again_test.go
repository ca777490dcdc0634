package restore

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

// inState gives a host another state, as its controller does.
func inState(state string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, state, "status", "provisioning", "state")
	}
}

// TestAHostThatWasReleasedIsNotHeldBackByItsState: a run dies between the write that releases a
// host and the one that releases its Cluster. Its controller works on, and a resume goes on.
func TestAHostThatWasReleasedIsNotHeldBackByItsState(t *testing.T) {
	x, w := hostTrial(t, sourceHost("provisioned", ``))
	w.before = func(u *unstructured.Unstructured) {
		paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
		if u.GetKind() == "Cluster" && !paused && !isHostPaused(x.target.get(t, hostRef)) {
			w.writes = w.done
		}
	}
	if _, err := x.run(t); err == nil || isHostPaused(x.target.get(t, hostRef)) ||
		x.released(t) != "" {
		t.Fatalf("it has to die after the release of its host: released %q: %v", x.released(t), err)
	}
	x.target.set(t, hostRef, inState("deprovisioning")) // somebody wants that by now
	x.load(t)
	x.writer = x.target
	if failures, err := x.run(t); err != nil || x.released(t) != "n/w" {
		t.Errorf("resumed: released %q, failures %q: %v", x.released(t), failures, err)
	}
}

// TestAHostThatIsPausedAgainIsReleasedAsItWasThen: its controllers were at work before its unit
// was paused again. Without that status it is not released either.
func TestAHostThatIsPausedAgainIsReleasedAsItWasThen(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(u *unstructured.Unstructured)
		want   string
	}{
		"as it was": {func(*unstructured.Unstructured) {}, "n/w"},
		"wiped":     {wipe, ""},
		"imaged":    {inState("provisioning"), ""},
	} {
		x, _ := hostTrial(t, sourceHost("provisioned", ``))
		if failures, err := x.run(t); err != nil {
			t.Fatalf("%s: %q: %v", name, failures, err)
		}
		x.target.set(t, hostRef, inState("deprovisioning"))
		x.load(t)
		x.repause(t, "n/w")
		if !isHostPaused(x.target.get(t, hostRef)) {
			t.Fatalf("%s: it is not paused again", name)
		}
		x.target.set(t, hostRef, tt.change)
		x.writer = x.target
		failures, err := x.run(t)
		if x.released(t) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: released %q, failures %q: %v", name, x.released(t), failures, err)
		}
	}
}

// repause pauses a released unit again.
func (x *trial) repause(t *testing.T, unit string) {
	t.Helper()
	if err := x.tryRepause(t, unit); err != nil {
		t.Fatal(err)
	}
}

// tryRepause is repause, which may fail.
func (x *trial) tryRepause(t *testing.T, unit string) error {
	t.Helper()
	ctx := t.Context()
	if _, err := x.catalog.SetState(ctx, x.id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	r := newRun(ctx, RunOptions{Plan: x.plan, Contents: x.contents, Reader: x.target, Writer: x.target,
		Kinds: x.target.kinds, Operation: string(x.id), Tuning: x.tuning,
		Journal: x.catalog.Journal(x.id, catalog.JournalOptions{})})
	err := r.prepareRun(ctx)
	for _, u := range x.plan.Units {
		if u.Name == unit && err == nil {
			err = r.repause(ctx, u)
		}
	}
	if _, err := x.catalog.SetState(ctx, x.id, catalog.Failed, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	return err
}

// TestUndoLeavesAFreeHostThatIsAtWork, since a workload cluster may have begun to use it. A
// paused one is removed.
func TestUndoLeavesAFreeHostThatIsAtWork(t *testing.T) {
	x, _ := hostTrial(t, freeHost)
	x.hooks.BeforeRelease = func(context.Context, Unit) error { return errDied }
	if _, err := x.run(t); err == nil {
		t.Fatal("its unit is released")
	}
	x.target.set(t, freeHostRef, func(u *unstructured.Unstructured) { // released, and claimed
		var rows *capi.Table
		rows.Unpause(u.Object)
		_ = unstructured.SetNestedField(u.Object, "m", "spec", "consumerRef", "name")
	})
	if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
		t.Fatal(err)
	}
	if x.target.get(t, freeHostRef) == nil {
		t.Error("it is removed")
	}
	var kept []object.Ref
	for e, err := range x.catalog.Events(t.Context(), x.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if f := e.Finding; f != nil && f.Code == object.CodeSharedKept {
			kept = append(kept, f.Ref)
		}
	}
	if fmt.Sprint(kept) != "["+freeHostRef+"]" {
		t.Errorf("kept: %v", kept)
	}

	x, _ = hostTrial(t, freeHost)
	x.hooks.BeforeRelease = func(context.Context, Unit) error { return errDied }
	if _, err := x.run(t); err == nil {
		t.Fatal("its unit is released")
	}
	if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
		t.Fatal(err)
	}
	if x.target.get(t, freeHostRef) != nil {
		t.Error("a paused one stays")
	}
}

// TestNeededAreCopiesThatAreAtWork: what a host needs stays with it.
func TestNeededAreCopiesThatAreAtWork(t *testing.T) {
	secret := `{"kind":"Secret","metadata":{"namespace":"n","name":"bmc"}}`
	names := func(annotations string) string {
		return fmt.Sprintf(`{"kind":"BareMetalHost","metadata":{"namespace":"n","name":"free",
			"annotations":{%s}},"spec":{"bmc":{"credentialsName":"bmc"}}}`, annotations)
	}
	const mark = `"mgmtd.dev/was-paused":"absent"`
	for annotations, want := range map[string]bool{``: true,
		mark + `,"baremetalhost.metal3.io/paused":"mgmtd.dev"`: false,
		mark: true} { // somebody has ended its pause
		x := newTrial(t, newMemory(t, "source", needsNamespace, secret, names(annotations)),
			newMemory(t, "target"))
		ours := map[object.Ref]bool{}
		for _, n := range x.snapshot.Graph.Nodes {
			ours[n.Ref] = n.Kind != "Namespace"
		}
		needed, err := Needed(x.snapshot.Graph, x.contents, nil, ours)
		host := object.Ref{Group: "metal3.io", Kind: "BareMetalHost", Namespace: "n", Name: "free"}
		bmc := object.Ref{Kind: "Secret", Namespace: "n", Name: "bmc"}
		if err != nil || needed[host] != want || needed[bmc] != want {
			t.Errorf("%q: %v: %v", annotations, needed, err)
		}
	}
}
