// Package retry repeats calls that may succeed later. It is the one place of the project that waits
// between two tries; which errors are worth another try is for the packages that make the calls.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait between two tries: First after the first failure, twice as long after
// each further one, at most Longest.
type Backoff struct {
	First, Longest time.Duration
	// Jitter makes each wait a random time between half of that and all of it, so that many callers
	// that failed at once do not come back at once.
	Jitter bool
}

// Wait returns the time to wait after that many failures, from 1 on.
func (b Backoff) Wait(failures int) time.Duration {
	wait := min(b.First, b.Longest)
	for range failures - 1 {
		if wait > b.Longest/2 {
			wait = b.Longest
			break // twice as long might not fit in a Duration
		}
		wait *= 2
	}
	if b.Jitter {
		return wait - time.Duration(rand.Int64N(int64(wait)/2+1)) //nolint:gosec // jitter
	}
	return wait
}

// Sleep waits for d. It returns the cause of ctx when ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Next decides what follows the given number of failures, from 1 on, of which err is the last:
// another try after wait, or none.
type Next func(failures int, err error) (wait time.Duration, again bool)

// Do calls try until it succeeds, and returns nil, or until next allows no other try, and returns
// the error of the last one. It returns the cause of ctx when ctx ends during a wait.
func Do(ctx context.Context, next Next, try func(ctx context.Context) error) error {
	for failures := 1; ; failures++ {
		err := try(ctx)
		if err == nil {
			return nil
		}
		wait, again := next(failures, err)
		if !again {
			return err
		}
		if err := Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Poll calls check until it is done, at once and then after waits of b, and reports whether it was
// done before limit passed. It returns the error of check, and the cause of ctx when ctx ends
// during a wait.
func Poll(ctx context.Context, b Backoff, limit time.Duration,
	check func(ctx context.Context) (done bool, err error)) (done bool, err error) {
	return PollOrWake(ctx, b.Wait, limit, func() <-chan struct{} { return nil },
		func(ctx context.Context, _ bool) (bool, error) { return check(ctx) })
}

// wakeDelay is how long PollOrWake waits after it was woken, so that events which come together
// cause one check.
const wakeDelay = 10 * time.Millisecond

// PollOrWake is Poll that also calls check, with woken, after the channel was closed that wake
// returned last. wait returns how long to wait after that many polls, from 1 on; it is asked again
// after each check.
func PollOrWake(ctx context.Context, wait func(polls int) time.Duration, limit time.Duration,
	wake func() <-chan struct{}, check func(ctx context.Context, woken bool) (done bool, err error)) (
	done bool, err error) {
	deadline := time.Now().Add(limit)
	changed := wake() // before each check, so that nothing is missed during it
	for polls := 1; ; polls++ {
		if done, err := check(ctx, false); err != nil || done {
			return done, err
		}
		if time.Now().After(deadline) {
			return false, nil
		}
		for polled := time.Now(); ; {
			woken, err := sleepOrWake(ctx, wait(polls)-time.Since(polled), changed)
			if err != nil {
				return false, err
			}
			if !woken {
				break
			}
			if err := Sleep(ctx, wakeDelay); err != nil {
				return false, err
			}
			changed = wake()
			if done, err := check(ctx, true); err != nil || done {
				return done, err
			}
		}
	}
}

// sleepOrWake waits for d, or until the channel is closed, and reports whether that came first.
func sleepOrWake(ctx context.Context, d time.Duration, changed <-chan struct{}) (bool, error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
