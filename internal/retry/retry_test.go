package retry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitDoublesUpToTheLongest(t *testing.T) {
	b := Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}
	for failures, want := range map[int]time.Duration{0: 100 * time.Millisecond,
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 6: 3200 * time.Millisecond,
		7: 5 * time.Second, 100: 5 * time.Second} {
		if got := b.Wait(failures); got != want {
			t.Errorf("after %d failures %s, want %s", failures, got, want)
		}
	}
}

// TestManyFailuresOfALongWait: a minute that was doubled 28 times did not fit in a Duration.
func TestManyFailuresOfALongWait(t *testing.T) {
	b := Backoff{First: time.Minute, Longest: 30 * time.Minute, Jitter: true}
	for failures := 6; failures < 200; failures++ {
		if wait := b.Wait(failures); wait < b.Longest/2 || wait > b.Longest {
			t.Fatalf("after %d failures %s", failures, wait)
		}
	}
}

func TestJitterWaitsBetweenHalfAndAll(t *testing.T) {
	b := Backoff{First: time.Second, Longest: 4 * time.Second, Jitter: true}
	seen := map[time.Duration]bool{}
	for range 1000 {
		wait := b.Wait(2)
		if wait < time.Second || wait > 2*time.Second {
			t.Fatalf("it waits %s", wait)
		}
		seen[wait] = true
	}
	if len(seen) < 500 {
		t.Errorf("%d different waits of 1000", len(seen))
	}
}

var errTry = errors.New("try again")

func TestDoWaitsBetweenTriesAndReturnsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, tries := time.Now(), 0
		next := func(failures int, err error) (time.Duration, bool) {
			if !errors.Is(err, errTry) {
				t.Errorf("next was given %v", err)
			}
			return time.Second, failures < 3
		}
		err := Do(t.Context(), next, func(context.Context) error { tries++; return errTry })
		if !errors.Is(err, errTry) || tries != 3 || time.Since(begin) != 2*time.Second {
			t.Errorf("%v after %d tries and %s", err, tries, time.Since(begin))
		}
		tries = 0
		if err := Do(t.Context(), next, func(context.Context) error {
			if tries++; tries == 2 {
				return nil
			}
			return errTry
		}); err != nil || tries != 2 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

func TestDoEndsAWaitWithItsContext(t *testing.T) {
	cause := errors.New("the operator stopped it")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Do(ctx, func(int, error) (time.Duration, bool) { return time.Hour, true },
		func(context.Context) error {
			cancel(cause)
			return errTry
		})
	if !errors.Is(err, cause) {
		t.Errorf("%v, want the cause of the context", err)
	}
}

func TestPollEndsWhenDoneFailedOrLate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		polls int // until done
		err   error
		done  bool
		took  time.Duration
	}{
		{"at once", 1, nil, true, 0},
		{"later", 4, nil, true, 700 * time.Millisecond}, // 100, 200 and 400
		{"never", 1000, nil, false, 5100 * time.Millisecond},
		{"failed", 2, errTry, false, 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, polls := time.Now(), 0
				done, err := Poll(t.Context(), Backoff{First: 100 * time.Millisecond, Longest: 2 * time.Second},
					5*time.Second, func(context.Context) (bool, error) {
						polls++
						return tt.err == nil && polls == tt.polls, map[bool]error{true: tt.err}[polls == tt.polls]
					})
				if done != tt.done || !errors.Is(err, tt.err) || time.Since(begin) != tt.took {
					t.Errorf("%v, %v after %s, want %v after %s", done, err, time.Since(begin), tt.done, tt.took)
				}
			})
		})
	}
}

// TestPollOrWakeIsWoken: what happens during a check wakes the next one, polls go on, and a check
// that is woken may end it.
func TestPollOrWakeIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		event := make(chan struct{})
		wake := func() <-chan struct{} {
			mu.Lock()
			defer mu.Unlock()
			return event
		}
		happen := func() {
			mu.Lock()
			defer mu.Unlock()
			close(event)
			event = make(chan struct{})
		}
		var checks []string
		done, err := PollOrWake(t.Context(), func(int) time.Duration { return time.Second },
			time.Minute, wake, func(_ context.Context, woken bool) (bool, error) {
				checks = append(checks, fmt.Sprint(time.Since(begin), " ", woken))
				switch len(checks) {
				case 1:
					happen()
				case 3:
					time.AfterFunc(time.Second/2, happen)
				}
				return len(checks) == 4, nil
			})
		want := []string{"0s false", "10ms true", "1s false", "1.51s true"}
		if err != nil || !done || !slices.Equal(checks, want) {
			t.Errorf("%v, %v: %q, want %q", done, err, checks, want)
		}
		done, err = PollOrWake(t.Context(), func(int) time.Duration { return time.Hour }, time.Minute,
			func() <-chan struct{} { e := make(chan struct{}); close(e); return e },
			func(_ context.Context, woken bool) (bool, error) {
				return false, map[bool]error{true: errTry}[woken]
			})
		if done || !errors.Is(err, errTry) {
			t.Errorf("%v, %v", done, err)
		}
	})
}
