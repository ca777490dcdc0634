package restore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
						s.leave()
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
		s.leave()
		if err := <-waiting; !errors.Is(err, errNotReleased) {
			t.Errorf("the one that waited: %v", err)
		}
		if err := s.enter(t.Context()); !errors.Is(err, errNotReleased) {
			t.Errorf("the next one: %v", err)
		}
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
