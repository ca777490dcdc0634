package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

// dies is the hook of a restore that ends before the release.
func dies(context.Context, Unit) error { return errDied }

// TestUndoOfARepairOfAClusterThatTheOperatorPaused: the operator has paused it, as the finding of
// the plan says, so that what the restore created may go. The Cluster stays.
func TestUndoOfARepairOfAClusterThatTheOperatorPaused(t *testing.T) {
	x := repaired(t, false)
	x.hooks.BeforeRelease = dies
	if _, err := x.again(t); err == nil || x.target.get(t, claimOne) == nil {
		t.Fatalf("the claim was not created, or the repair ended: %v", err)
	}
	if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
		t.Fatal(err)
	}
	if x.target.get(t, claimOne) != nil || x.target.get(t, clusterOne) == nil {
		t.Errorf("left on the target: %q", left(x.target))
	}
}

const secretOfBoth = "Secret/n/both"

// ownedByBoth is a restore that left two workload clusters paused, and a Secret that both own.
func ownedByBoth(t *testing.T) *trial {
	t.Helper()
	x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("a"), realCluster("b"),
		`{"kind":"Secret","metadata":{"namespace":"n","name":"both","ownerReferences":[
			{"kind":"Cluster","name":"a"},{"kind":"Cluster","name":"b"}]},"data":{}}`),
		newMemory(t, "target"))
	x.spec.NoRelease = true
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestUndoKeepsTheOwnersOfWhatWasThere: a second restore adopts two workload clusters that own one
// Secret, and is rolled back. The Secret would go with its last owner.
func TestUndoKeepsTheOwnersOfWhatWasThere(t *testing.T) {
	x := ownedByBoth(t)
	x.spec.NoRelease, x.hooks.BeforeRelease = false, dies
	if _, err := x.again(t); err == nil {
		t.Fatal("the second restore ended")
	}
	if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
		t.Fatal(err)
	}
	if owners := x.target.get(t, secretOfBoth).GetOwnerReferences(); len(owners) != 2 {
		t.Errorf("it is owned by %v", owners)
	}
}

// TestWhatIsSharedAndGoneKeepsTheRestNotPaused: somebody removes a shared object from the target
// before it is released.
func TestWhatIsSharedAndGoneKeepsTheRestNotPaused(t *testing.T) {
	const other = "HelmChartProxy.addons.cluster.x-k8s.io/n/other"
	for name, change := range map[string]func(x *trial){
		"gone": func(x *trial) { x.target.remove(t, chartsRef) },
		"replaced": func(x *trial) {
			x.target.set(t, chartsRef, func(u *unstructured.Unstructured) { u.SetUID("another") })
		},
	} {
		x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w"), sharedCharts,
			`{"kind":"HelmChartProxy","metadata":{"namespace":"n","name":"other"},
				"spec":{"clusterSelector":{"matchLabels":{"charts":"yes"}}}}`), newMemory(t, "target"))
		x.hooks.BeforeRelease = func(context.Context, Unit) error { change(x); return nil }
		if failures, err := x.run(t); err != nil {
			t.Errorf("%s: %v: %q", name, err, failures)
		}
		if capi.PausedByUs(x.target.get(t, other).Object) {
			t.Errorf("%s: the other one is still paused", name)
		}
		var reported []object.Ref
		for e, err := range x.catalog.Events(t.Context(), x.id, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Finding != nil && e.Finding.Code == object.CodeSharedGone {
				reported = append(reported, e.Finding.Ref)
			}
		}
		if fmt.Sprint(reported) != "["+chartsRef+"]" {
			t.Errorf("%s: reported %v", name, reported)
		}
	}
}

// TestMachinesHeldByAnEarlierRestoreAreGivenBack: another restore has adopted what the first one
// held. That one gives them back after its post-flight, whether or not their Nodes are gone still,
// and in its rollback. What somebody else holds stays held.
func TestMachinesHeldByAnEarlierRestoreAreGivenBack(t *testing.T) {
	for name, tt := range map[string]struct{ back, undo bool }{
		"its Node is gone": {}, "its Node is back": {back: true}, "rolled back": {undo: true},
		"rolled back with its Node": {true, true},
	} {
		s := workloadtest.New(t, workloadtest.NewCA(t))
		s.Set("w", []workload.Node{realNode("cp", true)}, "cp")
		x := real(t, s, realMachine("w", "skipped", false,
			`,"annotations":{"cluster.x-k8s.io/skip-remediation":"by hand"}`))
		x.spec.Force = object.Forced{object.CodeMachinesGone: ""}
		x.hooks.BeforeRelease = dies
		if _, err := x.run(t); err == nil {
			t.Fatal("it was released")
		}
		if want := []string{"skipped", "worker"}; !slices.Equal(x.skipsRemediation(), want) {
			t.Fatalf("%s: the first restore holds %q, want %q", name, x.skipsRemediation(), want)
		}
		if tt.back {
			s.Set("w", []workload.Node{realNode("cp", true), realNode("worker", false)}, "cp")
		}
		if !tt.undo {
			x.hooks.BeforeRelease = nil
		}
		if failures, err := x.again(t); (err != nil) != tt.undo {
			t.Fatalf("%s: %v: %q", name, err, failures)
		}
		if tt.undo {
			if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{"skipped"}; !slices.Equal(x.skipsRemediation(), want) {
			t.Errorf("%s: held at the end %q, want %q", name, x.skipsRemediation(), want)
		}
	}
}

// TestMachinesOfACopyThatIsAtWorkStayHeld: somebody ends the pause of a copy in the middle of its
// rollback. A MachineHealthCheck would remediate the Machine without a node, were it given back.
func TestMachinesOfACopyThatIsAtWorkStayHeld(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	x := expired(t, s, nil)
	s.Set("w", []workload.Node{realNode("cp", true)}, "cp")
	x.spec.Force = object.Forced{object.CodeMachinesGone: ""}
	x.hooks.BeforeRelease = dies
	if _, err := x.run(t); err == nil || !slices.Equal(x.skipsRemediation(), []string{"worker"}) {
		t.Fatalf("held before the rollback: %q, %v", x.skipsRemediation(), err)
	}
	x.onStep = func(_ context.Context, r catalog.StepRecord) error {
		if r.State == catalog.StepUndoing && r.Step.Phase == "create" {
			x.target.set(t, "Cluster.cluster.x-k8s.io/n/w", func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "paused")
			})
		}
		return nil
	}
	err := x.undo(t, &mortal{memory: x.target, writes: -1})
	if _, atWork := errors.AsType[*copyAtWorkError](err); !atWork ||
		!slices.Equal(x.skipsRemediation(), []string{"worker"}) {
		t.Errorf("held after it: %q, %v", x.skipsRemediation(), err)
	}
}

// TestI1AFencedClusterIsNotReleasedWithoutARecord: the release would end the fence. A record that
// says to which side the workload cluster belongs accounts for it; the operator may, too.
func TestI1AFencedClusterIsNotReleasedWithoutARecord(t *testing.T) {
	of := func(uid string, trusted bool) ownership.Record {
		return ownership.Record{By: object.Side{UID: uid}, Epoch: 1, Trusted: trusted}
	}
	for name, tt := range map[string]struct {
		record    ownership.Record
		fenced    bool
		force     object.Forced
		noRelease bool
		blocked   bool
	}{
		"no record":         {fenced: true, blocked: true},
		"not fenced":        {},
		"of the source":     {fenced: true, record: of("source", true)},
		"of the target":     {fenced: true, record: of("target", true)},
		"nobody trusts it":  {fenced: true, record: of("target", false), blocked: true},
		"forced":            {fenced: true, force: object.Forced{object.CodeFencedHere: ""}},
		"it stays paused":   {fenced: true, noRelease: true},
		"forced by another": {fenced: true, force: object.Forced{object.CodeNeedMissing: ""}, blocked: true},
	} {
		x := newTrial(t, oneTenant(t, `"mgmtd.dev/workload-id":"w-1"`, false), newMemory(t, "target"))
		x.spec.NoRelease = true
		if _, err := x.run(t); err != nil {
			t.Fatal(err)
		}
		if tt.fenced {
			x.target.set(t, clusterOne, func(u *unstructured.Unstructured) {
				capi.Annotate(u.Object, capi.AnnotationFenced, "operator")
			})
		}
		x.load(t)
		owners := map[string]ownership.Record{}
		if tt.record.Epoch > 0 {
			owners["w-1"] = tt.record
		}
		p, err := NewPlan(t.Context(), Input{Snapshot: x.snapshot, Contents: x.contents,
			Source: Snapshot{ID: "s", Source: object.Side{UID: "source"}, Time: time.Now()},
			Target: object.Side{Name: "target", UID: "target"}, Reader: x.target, Prober: x.target,
			Kinds: x.target.kinds, Owners: owners, Spec: Spec{Force: tt.force, NoRelease: tt.noRelease}})
		if err != nil {
			t.Fatal(err)
		}
		blocks := slices.ContainsFunc(found(p, object.CodeFencedHere),
			func(f object.Finding) bool { return f.Severity >= object.Error && f.Unit == "one/w" })
		if blocks != tt.blocked {
			t.Errorf("%s: blocked %t, want %t: %v", name, blocks, tt.blocked, p.Findings)
		}
	}
}

// TestPlanWithoutUnits: what they share with others is released, but for a pool of addresses that
// one of them uses, and for hosts in the namespace of one.
func TestPlanWithoutUnits(t *testing.T) {
	shared := func(kind, group string, users ...string) Object {
		return Object{Ref: object.Ref{Group: group, Kind: kind, Namespace: "n", Name: "x"}, Users: users}
	}
	p := &Plan{Units: []Unit{{Name: "n/a"}, {Name: "n/b"}}, Shared: Unit{Objects: []Object{
		shared("InClusterIPPool", "ipam.cluster.x-k8s.io", "n/a", "n/b"),
		shared("InClusterIPPool", "ipam.cluster.x-k8s.io", "n/a"),
		shared("ClusterResourceSet", "addons.cluster.x-k8s.io", "n/a", "n/b"),
		shared("BareMetalHost", "metal3.io")}}}
	rest, findings := p.Without(map[string]bool{"n/b": true}, nil)
	if len(findings) != 2 || findings[0].Code != object.CodePoolShared ||
		findings[1].Code != object.CodeSharedKept {
		t.Errorf("findings: %v", findings)
	}
	if len(rest.Units) != 1 || rest.Units[0].Name != "n/a" || len(p.Units) != 2 {
		t.Errorf("it has %v of %v", rest.Units, p.Units)
	}
	late := &Plan{Units: p.Units, Shared: Unit{Objects: slices.Clone(p.Shared.Objects[:1])}}
	late.Shared.Objects[0].Late = true
	if rest, _ := late.Without(map[string]bool{"n/b": true}, nil); rest.Shared.Objects[0].Action != Skip {
		t.Error("a pool that has no pause is created")
	}
	for i, want := range [][]string{{"n/b"}, nil, nil, {"n/b"}} {
		if o := rest.Shared.Objects[i]; !slices.Equal(o.Awaits, want) || p.Shared.Objects[i].Awaits != nil {
			t.Errorf("%s awaits %q, want %q", o.Ref, o.Awaits, want)
		}
	}
}
