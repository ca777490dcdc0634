package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vbauerster/mpb/v8"
	"google.golang.org/protobuf/types/known/timestamppb"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func progressEvent(what string, done, total int64) *mgmtv1.Event {
	return &mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_PROGRESS, Progress: what, Done: done,
		Total: total}
}

// TestLinesPrintANumberEveryFiveSeconds: the log of a long run has a number at most every five
// seconds, and always the last one.
func TestLinesPrintANumberEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := &lines{w: &out, units: map[string]string{}}
		for i := range 100 {
			l.show(progressEvent("objects created", int64(i+1), 100))
			if i == 50 {
				l.show(&mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_UNIT, Unit: "a/b",
					UnitState: "released"})
			}
			time.Sleep(200 * time.Millisecond)
		}
		l.show(progressEvent("objects verified", 1, 0))
		l.show(progressEvent("objects verified", 7, 0))
		l.end()
		want := `objects created: 1 of 100
objects created: 26 of 100
objects created: 51 of 100
objects created: 76 of 100 (workload clusters: 1 released)
objects created: 100 of 100 (workload clusters: 1 released)
objects verified: 1 (workload clusters: 1 released)
objects verified: 7 (workload clusters: 1 released)
`
		if out.String() != want {
			t.Errorf("got:\n%swant:\n%s", out.String(), want)
		}
	})
}

// TestLinesPrintNewStatesOfUnits: what was "paused" in the last number is not paused any more, and
// nothing is counted now.
func TestLinesPrintNewStatesOfUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := &lines{w: &out, units: map[string]string{}, last: time.Now()}
		unit := func(name, state string) {
			l.show(&mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_UNIT, Unit: name, UnitState: state})
		}
		unit("a/b", "paused")
		unit("a/c", "pending")
		l.show(progressEvent("objects restored", 5, 5))
		time.Sleep(6 * time.Second)
		unit("a/b", "released")
		unit("a/b", "retired")
		l.end()
		want := `objects restored: 5 of 5 (workload clusters: 1 paused, 1 pending)
workload clusters: 1 pending, 1 released
`
		if out.String() != want {
			t.Errorf("got:\n%swant:\n%s", out.String(), want)
		}
	})
}

// TestRunTalksOnStderr asserts that stdout has the result only.
func TestRunTalksOnStderr(t *testing.T) {
	f := newFake()
	f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
	r := runner{fake: f}.run(t, "restore run --yes"+readFlags)
	golden(t, "restore_run_stderr", r.stderr)
}

// TestAMachinesStopOffersToAcceptTheUnit: a resume alone would stop for the same reason. Copies
// that the run did not release are work that is left, although another unit is blocked.
func TestAMachinesStopOffersToAcceptTheUnit(t *testing.T) {
	const flags = readFlags
	f := newFake()
	f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
	f.operation.Units = map[string]string{"team-a/api": "released", "team-a/db": "copied",
		"team-a/web": "blocked"}
	resume := "\n  mgmtctl operation resume 65f1a2b3c4d5" + flags + "\n"
	runner{fake: f}.run(t, "restore run --yes"+flags).want(t, 4).stderrHas(t, resume)

	f.events = slices.Insert(f.events, len(f.events)-1, &mgmtv1.Event{
		Type: mgmtv1.EventType_EVENT_TYPE_FINDING, Finding: &mgmtv1.Finding{Code: "observe",
			Severity: mgmtv1.Severity_SEVERITY_ERROR, Unit: "team-a/api", Message: "Machines came",
			Hint: "check the controllers"}})
	r := runner{fake: f}.run(t, "restore run --yes"+flags).want(t, 4)
	r.stderrHas(t, "released: Machines of team-a/api came or went")
	r.stderrHas(t, "  kubectl get machines.cluster.x-k8s.io --namespace team-a --selector "+
		"cluster.x-k8s.io/cluster-name=api\n")
	r.stderrHas(t, "\n  mgmtctl operation accept 65f1a2b3c4d5 team-a/api"+flags+resume)
	if !strings.HasSuffix(r.stderr, resume) {
		t.Errorf("the last line is not the resume: %s", r.stderr)
	}
	if !strings.Contains(r.stdout, "mgmtctl operation accept 65f1a2b3c4d5 team-a/api") {
		t.Errorf("the hint has no unit: %s", r.stdout)
	}
}

// TestBarShowsProgressBelowMessages draws numbers, one bar after the other, and messages above
// them.
func TestBarShowsProgressBelowMessages(t *testing.T) {
	var out lockedBuffer
	w := &console{w: &out}
	b := newBar(w, mpb.WithAutoRefresh(), mpb.WithRefreshRate(5*time.Millisecond))
	b.show(progressEvent("kinds read", 3, 0))
	out.wait(t, "kinds read", " 3 ")
	b.show(progressEvent("objects created", 20, 100))
	out.wait(t, "objects created", "20 / 100")
	b.show(&mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_MESSAGE, Message: "a sentence"})
	out.wait(t, "a sentence\n")
	b.show(progressEvent("objects created", 100, 100))
	b.show(progressEvent("objects created", 150, 200)) // a total can grow, also when it was reached
	out.wait(t, "150 / 200")
	b.end()
	fmt.Fprintln(w, "after the bar")
	if !strings.HasSuffix(out.String(), "after the bar\n") {
		t.Error("the bar still holds stderr")
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) wait(t *testing.T, texts ...string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		missing := ""
		for _, text := range texts {
			if !strings.Contains(l.String(), text) {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not drawn: %q in\n%q", missing, l.String())
		}
	}
}

// TestResumeShowsItsOwnRun does not show the events of the earlier run.
func TestResumeShowsItsOwnRun(t *testing.T) {
	f := newFake()
	f.operation = testOperation(succeeded, 0, true)
	for i, e := range []*mgmtv1.Event{stateEvent(running), stateEvent(stopped), stateEvent(running),
		stateEvent(succeeded)} {
		e.Time = timestamppb.New(time.Now().Add(time.Duration(i/2*2-1) * time.Hour))
		f.events = append(f.events, e)
	}
	r := runner{fake: f}.run(t, "operation resume latest"+readFlags).want(t, 0)
	if want := "operation 65f1a2b3c4d5\noperation running\noperation succeeded\n"; r.stderr != want {
		t.Errorf("stderr %q, want %q", r.stderr, want)
	}
}

// TestResumeForgetsFindingsOfTheEarlierRun reports only what was found after the resume.
func TestResumeForgetsFindingsOfTheEarlierRun(t *testing.T) {
	f := newFake()
	f.operation = testOperation(succeeded, 0, true)
	f.events = append(testEvents(stopped), stateEvent(running),
		&mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_FINDING,
			Finding: &mgmtv1.Finding{Severity: mgmtv1.Severity_SEVERITY_WARNING, Code: "new-one",
				Message: "m"}}, stateEvent(succeeded))
	r := runner{fake: f}.run(t, "operation resume latest"+readFlags).want(t, 0)
	if strings.Contains(r.stdout, "owner-missing") || !strings.Contains(r.stdout, "new-one") {
		t.Errorf("stdout:\n%s", r.stdout)
	}
}
