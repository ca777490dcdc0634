package restore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	sharedCharts = `{"kind":"HelmChartProxy","metadata":{"namespace":"n","name":"charts"},` +
		`"spec":{"clusterSelector":{"matchLabels":{"charts":"yes"}}}}`
	chartsRef = "HelmChartProxy.addons.cluster.x-k8s.io/n/charts"
)

// beside is a restore of workload cluster n/w, and of a HelmChartProxy, to a target that gets
// another Cluster with our mark once the plan is made.
func beside(t *testing.T, namespace, label string, paused bool) *trial {
	t.Helper()
	x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w"), sharedCharts),
		newMemory(t, "target"))
	x.begin(t)
	for _, u := range newMemory(t, "other", fmt.Sprintf(`{"kind":"Cluster","metadata":{
		"namespace":%q,"name":"copy","labels":{"charts":%q},
		"annotations":{"mgmtd.dev/was-paused":"absent"}},"spec":{"paused":%v}}`, namespace, label,
		paused)).objects {
		x.target.put(refOf(u), u)
	}
	return x
}

// TestI1WhatUnitsShareStaysPausedBesideACopyOfAnotherOperation: the controller of a HelmChartProxy
// works on each Cluster that it selects, paused or not. A resume releases it once the other
// operation has released its copy.
func TestI1WhatUnitsShareStaysPausedBesideACopyOfAnotherOperation(t *testing.T) {
	x := beside(t, "n", "yes", true)
	failures, err := x.run(t)
	if err == nil || x.released(t) != "n/w" || !strings.Contains(err.Error(), "n/copy") ||
		!slices.ContainsFunc(failures, func(f string) bool { return strings.Contains(f, "n/copy") }) {
		t.Fatalf("released %q, failures %q: %v", x.released(t), failures, err)
	}
	if !capi.PausedByUs(x.target.get(t, chartsRef).Object) {
		t.Error("it is at work beside the copy")
	}
	(*capi.Table)(nil).Unpause(x.target.get(t, "Cluster.cluster.x-k8s.io/n/copy").Object)
	x.load(t)
	if failures, err := x.run(t); err != nil {
		t.Fatalf("resumed without the copy: %v: %q", err, failures)
	}
	if capi.PausedByUs(x.target.get(t, chartsRef).Object) {
		t.Error("it is still paused")
	}
}

// TestWhatUnitsShareIsReleasedBesideWhatItDoesNotActOn: a resume would not help.
func TestWhatUnitsShareIsReleasedBesideWhatItDoesNotActOn(t *testing.T) {
	for name, x := range map[string]*trial{
		"of another namespace":     beside(t, "other", "yes", true),
		"not selected":             beside(t, "n", "no", true),
		"unpaused, with our mark":  beside(t, "n", "yes", false),
		"held by the plan, paused": held(t),
	} {
		if failures, err := x.run(t); err != nil {
			t.Errorf("%s: %v: %q", name, err, failures)
		}
		if capi.PausedByUs(x.target.get(t, chartsRef).Object) {
			t.Errorf("%s: it is still paused", name)
		}
	}
}

// held is a restore of a workload cluster that stays paused, since it is the target itself.
func held(t *testing.T) *trial {
	t.Helper()
	x := newTrial(t, newMemory(t, "source", needsNamespace, realCluster("w"),
		strings.Replace(realCluster("self"), `"name"`, `"labels":{"charts":"yes"},"name"`, 1),
		sharedCharts), newMemory(t, "target"))
	x.begin(t)
	for i := range x.plan.Units {
		x.plan.Units[i].Held = x.plan.Units[i].Name == "n/self"
	}
	return x
}

// TestI1RollbackLeavesWhatACopyOfAnotherOperationUsesPaused: the other operation has adopted it.
func TestI1RollbackLeavesWhatACopyOfAnotherOperationUsesPaused(t *testing.T) {
	for _, paused := range []bool{true, false} {
		x := beside(t, "n", "yes", paused)
		x.plan.Spec.NoRelease = true
		if _, err := x.run(t); err != nil {
			t.Fatal(err)
		}
		x.needed = map[object.Ref]bool{refOf(x.target.get(t, chartsRef)): true}
		if err := x.undo(t, &mortal{memory: x.target, writes: -1}); err != nil {
			t.Fatal(err)
		}
		if capi.PausedByUs(x.target.get(t, chartsRef).Object) != paused {
			t.Errorf("the copy is paused: %v: %v", paused, x.target.get(t, chartsRef).Object)
		}
	}
}
