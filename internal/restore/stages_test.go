package restore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestStagesDoubleUpToTheirLimit lets twenty units enter as soon as they may; each takes a second.
func TestStagesDoubleUpToTheirLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		together bool
		want     []int // units that enter in each second
	}{
		"in stages": {false, []int{1, 2, 4, 5, 5, 3}},
		"together":  {true, []int{5, 5, 5, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, begin := newStages(5, tt.together), time.Now()
				entered := make([]int, len(tt.want))
				var mu sync.Mutex
				var g sync.WaitGroup
				for range 20 {
					g.Go(func() {
						if err := s.enter(t.Context()); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						entered[int(time.Since(begin).Seconds())]++
						mu.Unlock()
						time.Sleep(time.Second)
						s.leave(true)
					})
				}
				g.Wait()
				if !slices.Equal(entered, tt.want) {
					t.Errorf("stages of %v units, want %v", entered, tt.want)
				}
			})
		})
	}
}

func TestStopLetsNoFurtherUnitEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStages(4, false)
		if err := s.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() { waiting <- s.enter(t.Context()) }()
		synctest.Wait()
		s.stop()
		s.stop() // by two units at once
		s.leave(true)
		if err := <-waiting; !errors.Is(err, errNotReleased) {
			t.Errorf("the one that waited: %v", err)
		}
		if err := s.enter(t.Context()); !errors.Is(err, errNotReleased) {
			t.Errorf("the next one: %v", err)
		}
	})
}

// TestUnitThatIsNotAtWorkMakesNoPlaceForOneMore: the next unit gets its place, and no second one.
func TestUnitThatIsNotAtWorkMakesNoPlaceForOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStages(4, false)
		if err := s.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		entered := make(chan struct{}, 2)
		for range 2 {
			go func() {
				if s.enter(t.Context()) == nil {
					entered <- struct{}{}
				}
			}()
		}
		s.leave(false)
		synctest.Wait()
		if len(entered) != 1 {
			t.Errorf("%d units entered, want 1", len(entered))
		}
		s.stop()
	})
}

func TestEnterEndsWithItsContext(t *testing.T) {
	s := newStages(1, false)
	if err := s.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.enter(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestNextUnitWaitsForControllersAtWorkAndNotForEveryCondition: the first unit stays unhealthy for
// the whole limit of the post-flight. The second one is released long before.
func TestNextUnitWaitsForControllersAtWorkAndNotForEveryCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := twoTenants(t)
		for _, ns := range []string{"one", "two"} {
			source.set(t, "Cluster.cluster.x-k8s.io/"+ns+"/w", setProbe("True"))
		}
		x := newTrial(t, source, newMemory(t, "target"))
		x.tuning.Concurrency, x.tuning.PostFlight = 1, time.Minute
		begin, released := time.Now(), map[string]time.Duration{}
		x.hooks.BeforeRelease = func(_ context.Context, u Unit) error {
			released[u.Name] = time.Since(begin)
			if u.Name == "one/w" {
				x.target.set(t, "Cluster.cluster.x-k8s.io/one/w", setProbe("False"))
			}
			return nil
		}
		if _, err := x.run(t); err == nil || !strings.Contains(err.Error(), "RemoteConnectionProbe") {
			t.Errorf("the first unit: %v", err)
		}
		if at, ok := released["two/w"]; !ok || at > 30*time.Second {
			t.Errorf("the second unit is released after %v (%v)", at, ok)
		}
	})
}

// TestUnitThatStaysPausedNeedsNoPlaceInAStage: the first place is taken for ever.
func TestUnitThatStaysPausedNeedsNoPlaceInAStage(t *testing.T) {
	r := &run{stages: newStages(1, false)}
	if err := r.enterStage(t.Context(), Unit{}, &unitState{}); err != nil {
		t.Fatal(err)
	}
	var s unitState
	if err := r.enterStage(t.Context(), Unit{StaysPaused: true}, &s); err != nil || s.staged {
		t.Errorf("it has a place: %v, %v", s.staged, err)
	}
	r.stages.stop()
	if err := r.enterStage(t.Context(), Unit{StaysPaused: true}, &s); !errors.Is(err, errNotReleased) {
		t.Errorf("after a stop: %v", err)
	}
}

// setProbe sets the condition that tells whether the workload cluster answers.
func setProbe(status string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		u.Object["status"] = map[string]any{"conditions": []any{
			map[string]any{"type": "RemoteConnectionProbe", "status": status}}}
	}
}

// TestAStageWaitsForThoseThatAcknowledgeSoon: a MachineHealthCheck is reconciled every 15 s at
// most. Its acknowledgement is part of the post-flight, and of no stage. What was paused before, or
// publishes nothing of its pause, acknowledges nothing.
func TestAStageWaitsForThoseThatAcknowledgeSoon(t *testing.T) {
	machine := Object{Ref: object.Ref{Group: capi.GroupCore, Kind: "Machine", Namespace: "n",
		Name: "m"}}
	paused := machine
	paused.Name, paused.Paused = "p", true
	check := Object{Ref: object.Ref{Group: capi.GroupCore, Kind: "MachineHealthCheck",
		Namespace: "n", Name: "h"}}
	all := []Object{machine, paused, check}
	for content, want := range map[string][]Object{
		`{"status":{"conditions":[{"type":"Paused","status":"False"}]}}`: {machine},
		`{"status":{}}`: nil,
	} {
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Contents: oneContent(`{"apiVersion":` +
			`"cluster.x-k8s.io/v1beta2","kind":"Machine",` + content[1:])})
		got, err := r.awaitedInStage(all)
		if err != nil || !slices.EqualFunc(got, want,
			func(a, b Object) bool { return a.Ref == b.Ref }) {
			t.Errorf("%s: it waits for %v: %v", content, got, err)
		}
	}
}
