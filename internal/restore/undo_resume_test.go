package restore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

// This file has resumes of restores that a rollback has undone in part, since other workload
// clusters of theirs were released.

// TestAResumeRestoresWhatARollbackHasRemoved: the target refuses the removal of any one object.
// What the rollback has removed beside it is created again, and is not taken for what somebody
// else has deleted.
func TestAResumeRestoresWhatARollbackHasRemoved(t *testing.T) {
	refused, all := 0, left(pausedTrial(t, "n").target)
	for _, kept := range all {
		x := pausedTrial(t, "n")
		x.needed = map[object.Ref]bool{} // what is shared is removed last, and only by a whole rollback
		for _, o := range x.plan.Shared.Objects {
			x.needed[o.Ref] = true
		}
		keeps, err := object.ParseRef(kept)
		if err != nil {
			t.Fatal(err)
		}
		if x.undo(t, &mortal{memory: x.target, writes: -1, keeps: keeps}) != nil {
			refused++
		}
		x.load(t)
		if failures, err := x.run(t); err != nil {
			t.Fatalf("%s was kept: %v: %q", keeps, err, failures)
		}
		if got := left(x.target); !slices.Equal(got, all) {
			t.Errorf("%s was kept: %v, want %v", keeps, got, all)
		}
	}
	if refused != 5 { // two workload clusters with three Machines
		t.Errorf("%d rollbacks failed", refused)
	}
}

// TestAResumeAfterARollbackHoldsAndRenewsAgain: the Machines and the kubeconfig that the first run
// changed went with their wave, also when the rollback was refused an earlier one.
func TestAResumeAfterARollbackHoldsAndRenewsAgain(t *testing.T) {
	for _, keeps := range []object.Ref{{}, {Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: "n", Name: "w"}} {
		s := workloadtest.New(t, workloadtest.NewCA(t))
		x := expired(t, s, nil)
		s.Set("w", []workload.Node{realNode("cp", true)}, "cp")
		x.spec.Force = object.Forced{object.CodeMachinesGone: ""}
		x.hooks.BeforeRelease = dies
		if _, err := x.run(t); err == nil || x.kubeconfig(t).IsExpired(time.Now()) {
			t.Fatalf("it was released, or nothing was renewed: %v", err)
		}
		if held := x.skipsRemediation(); !slices.Equal(held, []string{"worker"}) {
			t.Fatalf("held before the rollback: %q", held)
		}
		err := x.undo(t, &mortal{memory: x.target, writes: -1, keeps: keeps})
		if (err != nil) != (keeps.Name != "") {
			t.Fatalf("the rollback, %s kept: %v", keeps, err)
		}
		x.hooks.BeforeRelease = nil
		var atRelease []string
		x.target.onList = func(kube.Kind, kube.ListOptions) {
			if x.released(t) != "" && atRelease == nil {
				atRelease = x.skipsRemediation()
			}
		}
		x.load(t)
		if failures, err := x.run(t); err != nil {
			t.Fatalf("%v: %q", err, failures)
		}
		if !slices.Equal(atRelease, []string{"worker"}) || len(x.skipsRemediation()) > 0 {
			t.Errorf("%s kept: held at the release: %q, afterwards: %q", keeps, atRelease,
				x.skipsRemediation())
		}
		if x.kubeconfig(t).IsExpired(time.Now()) {
			t.Errorf("%s kept: its kubeconfig has expired", keeps)
		}
	}
}

// TestASharedObjectThatCannotBeReleasedKeepsNoOtherPaused: a webhook refuses to unpause the first
// one of two. A resume releases it.
func TestASharedObjectThatCannotBeReleasedKeepsNoOtherPaused(t *testing.T) {
	x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w"), sharedCharts,
		strings.Replace(sharedCharts, `"charts"`, `"zz"`, 1)), newMemory(t, "target"))
	x.target.refuseUpdate = func(u *unstructured.Unstructured) error {
		if u.GetKind() == "HelmChartProxy" && u.GetName() == "charts" && !capi.PausedByUs(u.Object) {
			return apierrors.NewForbidden(resourceOf(kube.Kind{}), u.GetName(), errors.New("it is not ready"))
		}
		return nil
	}
	const other = "HelmChartProxy.addons.cluster.x-k8s.io/n/zz"
	failures, err := x.run(t)
	if incomplete, ok := errors.AsType[*IncompleteError](err); !ok || incomplete.First == nil ||
		len(failures) != 1 || !strings.Contains(failures[0], "403") {
		t.Errorf("it ended with %v: %q", err, failures)
	}
	if !capi.PausedByUs(x.target.get(t, chartsRef).Object) ||
		capi.PausedByUs(x.target.get(t, other).Object) {
		t.Errorf("the refused one is paused: %t, the other one: %t",
			capi.PausedByUs(x.target.get(t, chartsRef).Object),
			capi.PausedByUs(x.target.get(t, other).Object))
	}
	x.target.refuseUpdate = nil
	x.load(t)
	if failures, err := x.run(t); err != nil || capi.PausedByUs(x.target.get(t, chartsRef).Object) {
		t.Errorf("resumed: %v: %q", err, failures)
	}
}

// TestASuspendedHostWritesNoStatus: another host has taken the operation over, and released the
// workload cluster, while this one was suspended before it wrote the status.
func TestASuspendedHostWritesNoStatus(t *testing.T) {
	errLost := errors.New("another host has taken over")
	x := newTrial(t, newMemory(t, "source", needsNamespace, strings.Replace(realCluster("w"),
		`"spec":`, `"status":{"phase":"Provisioned"},"spec":`, 1)), newMemory(t, "target"))
	step := catalog.Step{Unit: "n/w", Phase: "cluster-status"}
	lost := func(ctx context.Context) error {
		state, err := x.journal().State(ctx, step)
		return cmp.Or(err, map[bool]error{true: errLost}[state == catalog.StepBegun])
	}
	x.alive = lost
	if _, err := x.run(t); !errors.Is(err, errLost) {
		t.Errorf("a lost run ended with %v", err)
	}
	phase, _, _ := unstructured.NestedString(x.target.get(t, "Cluster.cluster.x-k8s.io/n/w").Object,
		"status", "phase")
	if phase != "" {
		t.Errorf("a lost run has written the status %q", phase)
	}
}
