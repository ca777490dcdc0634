// Package task runs functions so that a panic in one of them is an error of it, and not the end of
// the process: what mgmtd reads was written by others, and one document that nobody thought of
// must not stop the snapshots of every management cluster.
//
// A function that panics may leave a lock locked. The watchdog of the daemon finds that.
package task

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// PanicError is a panic that was recovered.
type PanicError struct {
	// Text is what the runtime says of it. Of a value of the program only the type is named: it may
	// quote what was read, such as a Secret.
	Text string
	// Place is the file and line of our code that panicked or called what did.
	Place string
	// Stack is the stack of the goroutine: functions, places and words of memory, no contents.
	Stack string
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("a bug ended this: panic: %s at %s", e.Text, e.Place)
}

// Hint says what an operator can do.
func (e *PanicError) Hint() string {
	return "report it with the stack, which the log of mgmtd has; what it worked on may be damaged"
}

// Call calls f and returns its error, or a *PanicError when it panics.
func Call(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(v)
		}
	}()
	return f()
}

func newPanicError(v any) *PanicError {
	if e, ok := v.(*PanicError); ok { // of Finish
		return e
	}
	e := &PanicError{Text: fmt.Sprintf("a value of type %T", v), Place: place(),
		Stack: string(debug.Stack())}
	if err, ok := v.(error); ok {
		if r, ok := errors.AsType[runtime.Error](err); ok {
			e.Text = r.Error()
		}
	}
	return e
}

// Again calls f, and again after each panic in it, until it returns or ctx ends. After a panic it
// calls panicked and waits for pause. It is for what a process does as long as it runs: without it
// the process would look well and do nothing.
func Again(ctx context.Context, pause time.Duration, panicked func(error), f func()) {
	for {
		err := Call(func() error { f(); return nil })
		if err == nil {
			return
		}
		panicked(err)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// module begins the names of our functions.
const module = "github.com/mgmtd/mgmtd/"

// place returns where our code was when it panicked. It is called while the stack is there.
func place() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	panicked := false
	for {
		frame, more := frames.Next()
		// What lies above gopanic is the recovery.
		panicked = panicked || frame.Function == "runtime.gopanic"
		if panicked && strings.HasPrefix(frame.Function, module) {
			file := frame.File
			if _, inside, ok := strings.Cut(file, "/internal/"); ok {
				file = "internal/" + inside
			}
			return fmt.Sprintf("%s:%d", file, frame.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}

// Group is an errgroup.Group whose functions may panic: that is an error of the group then. The
// zero value is a group without a limit and a context.
type Group struct {
	group *errgroup.Group
}

// WithContext returns a group and a context that ends with the first error, or with Wait.
func WithContext(ctx context.Context) (*Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	return &Group{group: g}, ctx
}

// errors returns the group. The goroutine that owns a Group calls all methods but those of its
// functions, as with errgroup.
func (g *Group) errors() *errgroup.Group {
	if g.group == nil {
		g.group = &errgroup.Group{}
	}
	return g.group
}

// SetLimit limits how many functions run at once.
func (g *Group) SetLimit(n int) { g.errors().SetLimit(n) }

// Go calls f in a new goroutine, once the limit allows it.
func (g *Group) Go(f func() error) {
	g.errors().Go(func() error { return Call(f) })
}

// Wait waits for all functions and returns the first error.
func (g *Group) Wait() error { return g.errors().Wait() }

// Finish waits for functions that return nil, because each keeps its error, and a panic of what it
// calls, with what it works on. A panic outside of that would be lost: Finish panics with it, in
// the goroutine that called it, which has a recovery of its own.
func (g *Group) Finish() {
	if err := g.Wait(); err != nil {
		panic(err)
	}
}
