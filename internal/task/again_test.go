package task

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAgainCallsWhatPanickedAfterAPause: until it returns, or the context ends.
func TestAgainCallsWhatPanickedAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls, panics := time.Now(), 0, 0
		panicked := func(err error) {
			if _, ok := errors.AsType[*PanicError](err); ok {
				panics++
			}
		}
		Again(t.Context(), time.Minute, panicked, func() {
			if calls++; calls < 3 {
				panic(secret)
			}
		})
		if calls != 3 || panics != 2 || time.Since(began) != 2*time.Minute {
			t.Errorf("%d calls, %d panics in %s", calls, panics, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		Again(ctx, time.Minute, func(error) { cancel() }, func() { panic(secret) })
	})
}

// TestFinishLosesNoPanic: it is that of the goroutine that waits, with the place where it was.
func TestFinishLosesNoPanic(t *testing.T) {
	var g Group
	g.Go(func() error { return nil })
	g.Finish()
	g.Go(func() error { panic(secret) })
	var first *PanicError
	err := Call(func() error {
		defer func() {
			v := recover()
			first, _ = v.(*PanicError)
			panic(v)
		}()
		g.Finish()
		return nil
	})
	if p, ok := errors.AsType[*PanicError](err); !ok || p != first || p == nil {
		t.Errorf("%v, want %v", err, first)
	}
}
