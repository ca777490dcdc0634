package live

import (
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// window is three full resyncs of the lab's controllers: what they would do to
// a workload cluster that they misunderstand, they have done by then.
const window = 60 * time.Second

// TestWindow looks on, and then at everything once more.
func TestWindow(t *testing.T) {
	w := shared
	if w.watcher == nil {
		t.Skip("there was no outage")
	}
	time.Sleep(window)
	if err := w.watcher.Stop(); err != nil {
		t.Errorf("watch the target: %v", err)
	}
	// What was moved before is not in w.before: nothing of it may come or go.
	none(t, "made anew", observe.Anew(w.watcher.Events(), w.before))
	restored := append(w.namespacesWith("mixed-"), selectionNS, resumeNS, pausedNS, badNS,
		stockNS)
	// that of the workload cluster that was left
	want := len(observe.Machines(w.before.In(restored...))) - 1
	if born := observe.Births(w.watcher.Events(), "Machine"); born != want {
		t.Errorf("the watch has seen %d Machines come, want %d", born, want)
	}
	answers := w.probe.Stop()
	for _, a := range answers {
		if a.Failures > 0 || a.Good == 0 {
			t.Errorf("%s: its API server answered %d times and failed %d times, the first: %s", a.Workload,
				a.Good, a.Failures, a.First)
		}
		t.Logf("%+v", a)
	}
	if len(answers) != w.workloads || w.workloads == 0 {
		t.Errorf("%d workload API servers were asked, want %d", len(answers), w.workloads)
	}
	w.mu.Lock()
	endings := slices.Clone(w.endings)
	w.mu.Unlock()
	for _, e := range endings {
		t.Run(e.name, e.look)
	}
}
