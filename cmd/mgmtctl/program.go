package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/config"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// program is one run of mgmtctl. Everything that it uses of its environment is a field, so that a
// test can run it.
type program struct {
	stdin  io.Reader
	stdout io.Writer
	stderr *console
	getenv func(string) string
	// environ is the whole environment, as os.Environ gives it.
	environ []string
	now     func() time.Time
	// signals delivers interrupts; nil delivers none.
	signals <-chan os.Signal
	// interactive: there is somebody to ask.
	interactive bool
	// terminal opens the terminal that a passphrase is asked on; nil, or a nil result, means none.
	terminal func() *os.File
	// bars: stderr can show progress bars.
	bars bool
	// backoff is how long to wait before a stream that broke is begun once more.
	backoff retry.Backoff
	// serve makes the server of --standalone.
	serve func(standaloneFlags, *program) (server, error)

	format     format
	timeout    time.Duration
	standalone standaloneFlags
	daemon     daemonFlags
	identity   identityFlags
	flags      flagGroups
	// fromEnvironment has the flags that their variables have set.
	fromEnvironment map[string]bool
	// config is the file of --config; nil without one.
	config *config.Config
	// current is the command that runs, and args are its arguments.
	current *cobra.Command
	args    []string
	// planFlags are the flags of the plan in planFile, which is the file of --plan.
	planFlags []string
	planFile  string
	// operation is the one that this command follows or shows, as far as it knows it; nil for none.
	operation *mgmtv1.Operation
	// atOnce is what the second interrupt prints; nil while no operation has begun.
	atOnce atomic.Pointer[string]
	// endTimeout releases the timer of --timeout.
	endTimeout context.CancelFunc
}

// errInterrupted and errTimeout are the causes with which the context of a command ends.
var (
	errInterrupted = &service.Error{Reason: service.ReasonInterrupted, Message: "interrupted"}
	errTimeout     = &service.Error{Reason: service.ReasonTimeout,
		Message: "the time given with --timeout is over"}
)

// exit is the error of a command that has printed everything already; it is its exit code.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// run executes the command and handles interrupts. The first one ends the context of the command;
// what that means is up to the command (see follow). After the second one run returns without the
// command.
func (p *program) run(ctx context.Context, args []string) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan int, 1)
	go func() { done <- p.execute(ctx, args) }()
	for interrupts := 0; ; interrupts++ {
		select {
		case code := <-done:
			return code
		case <-p.signals:
			if interrupts > 0 {
				// The goroutine is left behind. The work can be resumed from its journal, as after a crash.
				if text := p.atOnce.Load(); text != nil {
					p.say("%s", *text)
				}
				return service.ExitInterrupted
			}
			cancel(errInterrupted)
		}
	}
}

func (p *program) execute(ctx context.Context, args []string) int {
	root := newRoot(p)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if p.endTimeout != nil {
		defer p.endTimeout()
	}
	if err == nil {
		return service.ExitDone
	}
	if code, ok := errors.AsType[exit](err); ok {
		return int(code)
	}
	e := service.FromStatus(err)
	if cause, ok := errors.AsType[*service.Error](context.Cause(cmd.Context())); ok && ended(e) {
		e = cause
	}
	p.refuse(e)
	return e.ExitCode()
}

// refuse prints an error, its hint, and the next command.
func (p *program) refuse(e *service.Error) {
	p.say("mgmtctl: %s", e.Message)
	hint, next := p.hintOf(e)
	if hint != "" {
		p.say("hint: %s", hint)
	}
	if next != "" {
		p.say("  %s", next)
	}
}

// ended reports whether an error says no more than that its context ended.
func ended(e *service.Error) bool {
	return e.Reason == service.ReasonInterrupted || e.Reason == service.ReasonTimeout
}

// say prints to stderr what is not a result.
func (p *program) say(format string, args ...any) {
	fmt.Fprintf(p.stderr, format+"\n", args...)
}

// console is stderr. While a progress bar is shown, text is written above it.
type console struct {
	mu    sync.Mutex
	w     io.Writer
	above io.Writer // the bar, or nil
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.above != nil {
		return c.above.Write(b)
	}
	return c.w.Write(b)
}

func (c *console) setAbove(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.above = w
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
