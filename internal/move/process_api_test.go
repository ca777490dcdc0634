//go:build api

package move_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/heap"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// orderVariable names the environment variable with the order, in JSON, of a process that may die.
// The process is the test program itself.
const orderVariable = "MGMTD_TEST_MOVE_ORDER"

// What a process is asked to do.
const (
	doMove     = "move"
	doResume   = "resume" // in the direction that is recorded
	doRollback = "rollback"
)

// order is what one process does.
type order struct {
	Dir   string          // keys, store and catalog
	Sides [2]kube.Options // the management clusters
	From  int             // the one to move from
	Spec  move.Spec
	// Touch is a unit of which somebody writes to a Machine on the source during its hand-over.
	Touch string
	// MaxPause is that of the tuning.
	MaxPause time.Duration
	// Gather is that of the tuning; 0 means a minute, so that batches do not depend on the machine.
	Gather time.Duration
	// MaxFailures is that of the tuning.
	MaxFailures int
	// Canary is the unit that is moved before all others.
	Canary string
	// Concurrency is that of the tuning.
	Concurrency int
	// Defaults: the tuning is that of mgmtctl without flags.
	Defaults bool
	Do       string
	Kill     *kill
	Away     object.Side // the side that is not dialled
	Trace    string      // file for what the process did
	// Catalog is the name of the catalog in Dir.
	Catalog string
	// Import: the catalog does not have the operation, which the store has a mirror of.
	Import bool
	Host   string
	// WithoutTarget: the target is not dialled; WithoutStore: the store is not opened, either.
	WithoutTarget, WithoutStore bool
	// WithoutSource: the source is not dialled.
	WithoutSource bool
	// Unsigned: the signing key is missing, and the operator goes on without the mirror.
	Unsigned bool
	// NoIdentity: the operator gives none.
	NoIdentity bool
}

func (k kill) String() string {
	text := k.Point
	if k.Point == inside || k.Point == atKey {
		text = map[bool]string{true: "after ", false: "before "}[k.Answered] + "write"
		if k.Write > 0 {
			text += fmt.Sprintf(" %d", k.Write)
		}
	}
	if k.Undo {
		text += " undoing"
	}
	return text + " of " + k.Step + k.Key
}

// end is the end of an operation, which its process prints on standard output.
type end struct {
	State, Message string
	Findings       []string // those that are errors
	PreCopies      []string // the warnings about them
	Warnings       []string // all of them, each as its code and its unit
	Peak           int64    // the memory of its process, in bytes resident at most
}

// readFindings reads the findings in the history of an operation.
func (e *end) readFindings(ctx context.Context, c *catalog.Catalog, id catalog.OperationID) error {
	for event, err := range c.Watch(ctx, id, 0) {
		if err != nil {
			return err
		}
		switch f := event.Finding; {
		case f == nil:
		case f.Severity == object.Error:
			e.Findings = append(e.Findings, fmt.Sprintf("%s %v: %s", f.Code, f.Ref, f.Message))
		case f.Code == object.CodePreCopy:
			e.PreCopies = append(e.PreCopies, event.Unit+": "+f.Message)
		}
		if event.Finding != nil && event.Finding.Severity == object.Warning {
			e.Warnings = append(e.Warnings, string(event.Finding.Code)+" "+event.Unit)
		}
	}
	return nil
}

// runOrder is the main function of such a process.
func runOrder(text string) int {
	heap.Bound()
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		var e end
		if e, err = carryOut(context.Background(), o, nil); err == nil {
			e.Peak = peakMemory()
			err = json.NewEncoder(os.Stdout).Encode(e)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// peakMemory returns how many bytes of this process were resident at most; 0 when nobody knows.
// What the parent sees (Maxrss) is no less than the memory of the parent itself: Linux counts that
// of the process before its exec, which vfork shares with the parent (fs/exec.c, exec_mmap).
func peakMemory() (bytes int64) {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			bytes = kib << 10
		}
	}
	return bytes
}

// openStore opens the store of a fixture in a bucket, or makes it. It signs, and reads what is
// encrypted, if the operator gives the keys.
func openStore(ctx context.Context, dir string, b bucket.Bucket, signed, identity bool) (
	*store.Store, error) {
	recipient, err := os.ReadFile(filepath.Join(dir, "keys", "recipient.txt"))
	if err != nil {
		return nil, err
	}
	options := store.KeyOptions{
		Recipients:      []string{string(bytes.TrimSpace(recipient))},
		TrustedKeyFiles: []string{filepath.Join(dir, "keys", "signing.pub")},
	}
	if identity {
		options.IdentityFiles = []string{filepath.Join(dir, "keys", "identity.txt")}
	}
	if signed {
		options.SigningKeyFile = filepath.Join(dir, "keys", "signing.key")
	}
	keys, err := store.LoadKeys(options)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, store.Options{Bucket: b, Keys: keys, Create: signed})
}

// connect connects to both sides and opens the store, and wraps them with a witness.
func (o order) connect(ctx context.Context, w *witness) (move.Ends, error) {
	var st *store.Store
	var err error
	if !o.WithoutStore {
		st, err = openStore(ctx, o.Dir,
			&witnessedBucket{Bucket: directory.New(filepath.Join(o.Dir, "store")), w: w},
			!o.Unsigned, !o.NoIdentity)
	}
	if err != nil {
		return move.Ends{}, err
	}
	if o.WithoutSource {
		target, err := kube.Connect(ctx, o.Sides[1-o.From])
		if err != nil {
			return move.Ends{}, err
		}
		ends, err := move.WithoutSource(ctx, o.Away, target, st, "default", nil)
		ends.Target.Writer = &witnessed{Writer: ends.Target.Writer, w: w}
		return ends, err
	}
	source, err := kube.Connect(ctx, o.Sides[o.From])
	if err != nil {
		return move.Ends{}, err
	}
	if o.WithoutTarget {
		ends, err := move.WithoutTarget(ctx, source, o.Away, st, "default", nil)
		ends.Source.Writer = &witnessed{Writer: ends.Source.Writer, w: w}
		return ends, err
	}
	target, err := kube.Connect(ctx, o.Sides[1-o.From])
	if err != nil {
		return move.Ends{}, err
	}
	ends, err := move.NewEnds(ctx, source, target, st, "default", nil)
	ends.Source.Writer = &witnessed{Writer: ends.Source.Writer, w: w}
	ends.Target.Writer = &witnessed{Writer: ends.Target.Writer, w: w}
	return ends, err
}

// openCatalog opens and checks the catalog, and stops operations that a dead process left running.
func (o order) openCatalog(ctx context.Context) (*catalog.Catalog, error) {
	c, err := catalog.Open(ctx, filepath.Join(o.Dir, o.Catalog), catalog.Options{})
	if err != nil {
		return nil, err
	}
	if problems := c.Check(ctx); len(problems) > 0 {
		return nil, errors.Join(append(problems, c.Close())...)
	}
	left, err := c.Interrupted(ctx)
	for _, op := range left {
		state, why := catalog.Stopped, catalog.Outcome{Cause: catalog.StopProcessDied}
		if op.State == catalog.Planned {
			state, why = catalog.Failed, catalog.Outcome{}
		}
		if err == nil {
			_, err = c.SetState(ctx, op.ID, state, why)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// carryOut does what an order says, and returns how the operation ended. onStep, when set, sees
// the steps in place of a witness.
func carryOut(ctx context.Context, o order,
	onStep func(context.Context, catalog.StepRecord) error) (end, error) {
	w := newWitness(o.Kill, o.Spec.Selection.Namespaces)
	ends, err := o.connect(ctx, w)
	if onStep == nil {
		onStep = o.touching(ends.Source, w.onStep)
	}
	if err != nil {
		return end{}, err
	}
	c, err := o.openCatalog(ctx)
	if err != nil {
		return end{}, err
	}
	e, err := o.execute(ctx, c, ends, onStep)
	if err == nil && o.Trace != "" {
		err = w.write(o.Trace)
	}
	return e, errors.Join(err, c.Close())
}

// execute runs a new operation, or the newest one again, and records how it ended.
func (o order) execute(ctx context.Context, c *catalog.Catalog, ends move.Ends,
	onStep func(context.Context, catalog.StepRecord) error) (end, error) {
	op, err := o.operation(ctx, c, ends)
	if err != nil {
		return end{}, err
	}
	if _, err := c.SetState(ctx, op.ID, catalog.Running, catalog.Outcome{}); err != nil {
		return end{}, err
	}
	with := move.Options{Ends: ends, Catalog: c, Program: "test",
		Journal: c.Journal(op.ID, catalog.JournalOptions{OnStep: onStep})}
	if o.WithoutStore {
		return o.carryOn(ctx, with, op, func(context.Context) error { return nil })
	}
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	m, err := mirror.Begin(ctx, op.ID, mirror.Options{Catalog: c, Store: ends.Store, Host: o.Host,
		GiveUp: o.Unsigned,
		Lost:   func(e *mirror.FencedError) { lost(e) }, Unable: func(error) {}})
	if err != nil {
		return end{}, err
	}
	with.Journal = c.Journal(op.ID, journal(m, onStep))
	e, err := o.carryOn(ctx, with, op, m.Confirm)
	if err == nil {
		err = m.Close(context.WithoutCancel(ctx))
	}
	return e, err
}

// carryOn runs an operation that is running, and records how it ended.
func (o order) carryOn(ctx context.Context, with move.Options, op catalog.Operation,
	confirm func(context.Context) error) (end, error) {
	c := with.Catalog
	state := catalog.Succeeded
	var failed error
	if o.Do == doMove {
		failed = move.Run(ctx, with, move.Request{Spec: o.Spec, Tuning: o.tuning()})
	} else {
		stored, err := move.ReadPlan(ctx, c, op.ID)
		if err == nil {
			err = stored.CheckEnds(op, with.Ends)
		}
		if err != nil {
			return end{}, err
		}
		if o.WithoutSource {
			failed = move.GoForward(ctx, with, stored)
		} else if o.Do == doRollback || op.Back {
			state, failed = catalog.RolledBack, move.Rollback(ctx, with, stored)
		} else {
			failed = move.Resume(ctx, with, stored)
		}
	}
	if lost := confirm(context.WithoutCancel(ctx)); lost != nil {
		failed = errors.Join(failed, lost)
	}
	var why catalog.Outcome
	if failed != nil {
		state, why.Message = catalog.Failed, failed.Error()
	}
	if _, err := c.SetState(ctx, op.ID, state, why); err != nil {
		return end{}, err
	}
	e := end{State: string(state), Message: why.Message}
	return e, e.readFindings(context.WithoutCancel(ctx), c, op.ID)
}

// journal returns the options of a journal with a mirror. onStep sees a step once its record is in
// the store.
func journal(m *mirror.Mirror, onStep func(context.Context, catalog.StepRecord) error,
) catalog.JournalOptions {
	options := m.Journal()
	write := options.OnStep
	options.OnStep = func(ctx context.Context, r catalog.StepRecord) error {
		if err := write(ctx, r); err != nil {
			return err
		}
		return onStep(ctx, r)
	}
	return options
}

// operation creates an operation, or returns the newest one for a resume or a rollback.
func (o order) operation(ctx context.Context, c *catalog.Catalog, ends move.Ends) (
	catalog.Operation, error) {
	if o.Do == doMove {
		return ends.Create(ctx, c)
	}
	if o.Import {
		mirrored, err := mirror.List(ctx, ends.Store)
		if err == nil && len(mirrored) == 0 {
			err = catalog.ErrNotFound
		}
		if err != nil {
			return catalog.Operation{}, err
		}
		return mirror.Import(ctx, c, ends.Store, "", mirrored[0].ID)
	}
	ops, err := c.Operations(ctx, catalog.OperationFilter{Limit: 1})
	if err == nil && len(ops) == 0 {
		err = catalog.ErrNotFound
	}
	if err != nil {
		return catalog.Operation{}, err
	}
	return ops[0], nil
}

// tuning has waits that are short enough for hundreds of moves, unless it is that of mgmtctl.
func (o order) tuning() restore.Tuning {
	if o.Defaults {
		return restore.Tuning{MaxFailures: restore.DefaultMaxFailures, MaxPause: move.DefaultMaxPause}
	}
	return restore.Tuning{Canary: o.Canary, Concurrency: o.Concurrency, MaxPause: o.MaxPause,
		MaxFailures: o.MaxFailures, Settle: 20 * time.Millisecond,
		Together: 2, Gather: cmp.Or(o.Gather, time.Minute), Wait: 30 * time.Second}
}
