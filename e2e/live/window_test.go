package live

import (
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// window is the time of three full resyncs of the lab's controllers. What a controller does wrong
// to a restored workload cluster, it has done by then.
const window = 60 * time.Second

// TestNothingChangesInTheWindow waits for the window to pass and checks the results of all
// scenarios again: nothing was created again or deleted, no workload API server failed.
func TestNothingChangesInTheWindow(t *testing.T) {
	skipInLong(t)
	f := shared
	if f.watcher == nil {
		t.Fatal("TestRestoresAfterAnOutage did not run")
	}
	time.Sleep(window)
	if err := f.watcher.Stop(); err != nil {
		t.Errorf("watch the target: %v", err)
	}
	// f.before does not contain what was moved before the outage: none of it may be created or
	// deleted.
	unexplained := observe.UnexplainedByRestore(f.watcher.Events(), f.before)
	slices.Sort(unexplained)
	assertEqual(t, "created again or deleted", unexplained, f.scaledUp)
	restored := append(f.namespacesWith("mixed-"), selectionNS, resumeNS, pausedNS, badNS,
		stockNS, livedNS)
	// One workload cluster of the selection, with one Machine, is not restored. The target adds one
	// Machine to the control plane that it scales up.
	want := len(observe.Machines(f.before.In(restored...))) - 1 + 1
	if created := observe.CountCreated(f.watcher.Events(), "Machine"); created != want {
		t.Errorf("%d Machines were created, want %d", created, want)
	}
	f.assertAnswered(t)
	f.mu.Lock()
	rechecks := slices.Clone(f.rechecks)
	f.mu.Unlock()
	for _, r := range rechecks {
		t.Run(r.name, r.check)
	}
}

// assertAnswered stops the probes and asserts that the workload API servers have answered all the
// time.
func (f *fixture) assertAnswered(t *testing.T) {
	t.Helper()
	var answers []observe.Answers
	for _, probe := range f.probes {
		answers = append(answers, probe.Stop()...)
	}
	for _, a := range answers {
		if a.Failures > 0 || a.Good == 0 {
			t.Errorf("%s: its API server answered %d times and failed %d times, the first: %s", a.Workload,
				a.Good, a.Failures, a.First)
		}
		t.Logf("%+v", a)
	}
	if len(answers) != f.workloads || f.workloads == 0 {
		t.Errorf("%d workload API servers were asked, want %d", len(answers), f.workloads)
	}
}
