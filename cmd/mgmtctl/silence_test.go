package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestSilenceIsExplained: while a store hangs, an operation has no events. mgmtctl prints the steps
// that run and how long workload clusters have been paused, at growing intervals. It prints nothing
// once the run has ended.
func TestSilenceIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		begun := time.Now()
		var mu sync.Mutex
		paused := map[string]time.Time{}
		pause := func(unit string) {
			mu.Lock()
			defer mu.Unlock()
			paused[unit] = time.Now()
		}
		s := &silence{
			pausedSince: func() map[string]time.Time {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(paused)
			},
			say: func(format string, args ...any) {
				said = append(said, time.Since(begun).String()+": "+fmt.Sprintf(format, args...))
			}}
		step := func(name, state, unit string) {
			s.note(&mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_STEP, Step: name, StepState: state,
				Unit: unit})
		}
		s.begin()
		time.Sleep(14 * time.Second)
		step("pause-pools", "begun", "")
		step("pause-pools", "done", "")
		step("pause", "begun", "a/b")
		pause("a/b")
		time.Sleep(50 * time.Second) // said after 15 and after 45 s
		step("pause", "done", "a/b")
		for _, name := range []string{"c", "d", "e"} {
			step("lock", "begun", "a/"+name)
			pause("a/" + name)
		}
		step("retire", "undoing", "a/z")
		time.Sleep(16 * time.Second)
		s.stop()
		time.Sleep(time.Hour)
		want := []string{
			"29s: nothing new for 15s; running: pause [a/b]; paused: a/b for 15s",
			"59s: nothing new for 45s; running: pause [a/b]; paused: a/b for 45s",
			"1m19s: nothing new for 15s; running: lock [a/c], lock [a/d], lock [a/e] and 1 more; " +
				"paused: a/b for 65s, a/c for 15s, a/d for 15s and 1 more",
		}
		if !slices.Equal(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	})
}
