package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// Writer is what carrying out a plan needs of the target besides reading.
type Writer interface {
	Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	UpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
}

// DefaultConcurrency is how many units a restore works on at once when Tuning names no number. A
// unit spends most of its time waiting for acknowledgements of the target's controllers, and no
// workload cluster is paused for it.
const DefaultConcurrency = 32

// Tuning changes how a run works, not what it does. The zero value works.
type Tuning struct {
	// Concurrency is the number of units in work at once; 0 means the default of the operation.
	Concurrency int
	// Canary is the unit that is restored and released before all others.
	Canary string
	// MaxFailures: begin no further unit once so many have failed; 0 means no limit.
	MaxFailures int
	// Observe is how long to watch for Machines that come or go after the last release.
	Observe time.Duration
	// Wait bounds each wait for controllers of the target: for acknowledgements of the pause, and
	// for post-flight. 0 means 5 minutes.
	Wait time.Duration
	// Settle is how long an object must be unchanged where its kind publishes no acknowledgement of
	// the pause; 0 means 2 seconds.
	Settle time.Duration
}

// WithDefaults returns t with its zero fields filled in. concurrency is the default of the caller: a
// move has a lower one than a restore, because it pauses that many working workload clusters.
func (t Tuning) WithDefaults(concurrency int) Tuning {
	if t.Concurrency <= 0 {
		t.Concurrency = concurrency
	}
	if t.Wait <= 0 {
		t.Wait = 5 * time.Minute
	}
	if t.Settle <= 0 {
		t.Settle = 2 * time.Second
	}
	return t
}

// requests is how many requests to the target are in flight at once: create throughput of an API
// server levels off at about 32 clients.
const requests = 32

// RunOptions of Run.
type RunOptions struct {
	Plan      *Plan
	Snapshot  *snapshot.Snapshot
	Contents  *snapshot.Contents
	Reader    Reader
	Writer    Writer
	Kinds     []kube.Kind // of the target
	Rows      *capi.Table // what is known of kinds; nil is the built-in table
	Operation string      // its id, for the annotation that marks what it creates
	Journal   *catalog.Journal
	Tuning    Tuning
	// Part is put behind the names of steps that belong to no unit, where one operation carries out
	// several plans.
	Part string
	// HandOver, when set, is called for each unit right before its release, when its copy is
	// verified. Its error keeps the unit from being released. It may be called again for a unit
	// that it let pass before.
	HandOver func(ctx context.Context, u Unit) error
	// KeepShared leaves shared objects paused: FinishShared releases them when the units of all
	// plans are there.
	KeepShared bool
	// Well, when set, is told of each unit that came through post-flight. A unit that does not is
	// paused again (the brake of a move).
	Well func(u Unit)
}

// IncompleteError says that something was changed and work is left: units failed, or a finding of
// post-flight stands. Resume goes on.
type IncompleteError struct {
	Failed, Blocked, Left int // Left were not begun, since the canary or too many others failed
	First                 error
}

func (e *IncompleteError) Error() string {
	switch {
	case e.First != nil:
		text := fmt.Sprintf("units failed: %d", e.Failed)
		if e.Left > 0 {
			text += fmt.Sprintf(", not begun: %d", e.Left)
		}
		if e.Blocked > 0 {
			text += fmt.Sprintf(", blocked by pre-flight: %d", e.Blocked)
		}
		return fmt.Sprintf("%s; the first: %v", text, e.First)
	default:
		return fmt.Sprintf("units blocked by pre-flight: %d; all others are restored", e.Blocked)
	}
}

func (e *IncompleteError) Unwrap() error { return e.First }

// HintOf finds what an error tells the operator to do.
func HintOf(err error) string {
	var hinter interface {
		error
		Hint() string
	}
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return "mend the cause, then resume the operation"
}
