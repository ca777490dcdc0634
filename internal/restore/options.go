package restore

import (
	"context"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
)

// DefaultConcurrency is how many units a restore works on at once when Tuning names no number. A
// unit spends most of its time waiting for acknowledgements of the target's controllers, and no
// working workload cluster is paused for it. 48 units on bare servers and two cores took 91 s with
// 32 and 114 s with 8.
const DefaultConcurrency = 32

// Tuning changes how a run works, not what it does. The zero value works.
type Tuning struct {
	// Concurrency is the number of units in work at once; 0 means the default of the operation.
	Concurrency int
	// Canary is the unit that is restored and released before all others.
	Canary string
	// MaxFailures: begin and release no further unit once so many have failed; 0 means no limit.
	MaxFailures int
	// Observe is how long to watch for Machines that come or go after the last release.
	Observe time.Duration
	// Wait bounds each wait for acknowledgements of the pause by controllers of the target; 0
	// means 5 minutes.
	Wait time.Duration
	// MaxPause is of a move: a unit that is not handed over so long after its pause is given back to
	// the source; 0 means no limit. Package move heeds it.
	MaxPause time.Duration
	// Together is of a move: how many units are paused together, at most Concurrency; 0 means one for
	// each 25 units of the move, and at most 8. Package move heeds it.
	Together int
	// Gather is of a move: how long a unit that is ready waits for those before it in the plan, so
	// that they are paused together; 0 means one second. Package move heeds it.
	Gather time.Duration
	// PostFlight bounds the post-flight of a unit. 0 means Wait and one second for each unit that
	// was released: the more there are, the longer controllers take to reconcile all of them.
	PostFlight time.Duration
	// Settle is how long to wait for controllers that publish no acknowledgement of a pause, and, on
	// the target, for the caches of those that do; 0 means 2 seconds. Stored operations have it by
	// this name.
	Settle time.Duration
}

// DefaultMaxFailures is the MaxFailures of an operator who names none. Units that fail have the
// same cause more often than not; then each further one only leaves another paused half behind.
const DefaultMaxFailures = 3

// DefaultWait is how long a run waits for controllers of the target when Tuning does not say it.
// Controllers that were started just now need up to a minute to list what is there.
const DefaultWait = 5 * time.Minute

// WithDefaults returns t with its zero fields filled in. concurrency is the default of the caller:
// a move has a lower one than a restore, because it pauses that many working workload clusters.
func (t Tuning) WithDefaults(concurrency int) Tuning {
	if t.Concurrency <= 0 {
		t.Concurrency = concurrency
	}
	if t.Wait <= 0 {
		t.Wait = DefaultWait
	}
	if t.Settle <= 0 {
		t.Settle = 2 * time.Second
	}
	if t.Gather <= 0 {
		t.Gather = time.Second
	}
	return t
}

// requests is how many requests to the target are in flight at once: create throughput of an API
// server levels off at about 32 clients.
const requests = 32

// polls is how many requests of waits are in flight at once. They have slots of their own: waits
// for minutes must not delay creates.
const polls = 16

// RunOptions are the inputs of Run.
type RunOptions struct {
	Plan     *Plan
	Contents Contents
	// Before are the contents from which a pre-copy made the objects of the plan that are Ours; what
	// is the same in both is not written again. Nil means that all of them are.
	Before Contents
	// Modifiers are those of the plan; Run needs them, and what removes things does not.
	Modifiers *modify.Document
	Reader    Reader
	Writer    Writer
	Prober    Prober
	Kinds     []kube.Kind // of the target
	Rows      *capi.Table // what is known of kinds; nil is the built-in table
	Operation string      // its id, for the mark of what it creates
	Journal   *catalog.Journal
	Tuning    Tuning
	Hooks     Hooks
}

// Contents are the objects of a snapshot (snapshot.Contents).
type Contents interface {
	// Bytes returns an object as the source served it. Errors: snapshot.ErrNotLoaded; any other.
	Bytes(r object.Ref) ([]byte, error)
	// Drop frees the memory of an object that is not read again.
	Drop(r object.Ref)
}

// Hooks lets a caller take part in a run. The zero value is a plain restore.
type Hooks struct {
	// StepSuffix is appended to the phases of steps that belong to no unit, where one operation
	// carries out several plans.
	StepSuffix string
	// PreCopy is for a caller that copies units while the source works on them, and again, by another
	// plan, what has changed since (Input.Copied). The run ends with the paused copy of each unit,
	// once controllers have acknowledged its pause, and its steps have names of their own. Then
	// PreCopy is called with the UIDs of the objects that it created.
	PreCopy func(u Unit, uids map[object.Ref]string)
	// RequirePause: a copy whose Cluster is not paused before its first release is an error
	// (*unpausedError), since somebody else released it. Without it such a Cluster is adopted.
	RequirePause bool
	// BeforeRelease is called for each unit right before its release, when its copy is verified.
	// With an error the unit stays paused. A resume calls it again for a unit that it let pass
	// before.
	BeforeRelease func(ctx context.Context, u Unit) error
	// EpochMark returns the annotation mgmtd.dev/epoch that the release writes to the Cluster of a
	// unit; "" writes none. It may be nil.
	EpochMark func(u Unit) string
	// Limit returns the context of what comes before BeforeRelease of a unit. When that context ends,
	// the unit fails with its cause. It may be nil.
	Limit func(ctx context.Context, u Unit) (context.Context, context.CancelFunc)
	// OnFailed is called for each unit that failed before it was released, of which the target refuses
	// an object, or that the run did not release since it stopped, once nothing works on it any more.
	// It may be nil.
	OnFailed func(ctx context.Context, u Unit)
	// OnError is called for each unit with an error, at once: stopped says that Machines came or went
	// after its release. It may be nil.
	OnError func(u Unit, stopped bool)
	// OnBlocked is called for each unit that fails because of a shared object that it needs.
	OnBlocked func(u Unit)
	// OnWritten is called for each unit of a pre-copy once it is written; what is left is to wait for
	// acknowledgements.
	OnWritten func(u Unit)
	// OnReleased is called for each unit once its controllers may work on it. It may be nil.
	OnReleased func(u Unit)
	// OnAcknowledged is called for each released unit once its controllers have acknowledged the end
	// of its pause, where they publish that. It may be nil.
	OnAcknowledged func(u Unit)
	// OnAtWork is called for each released unit once its controllers are at work, before they have
	// made every condition good again. It may be nil.
	OnAtWork func(u Unit)
	// OnWell is called for each released unit once it has passed post-flight but for the objects of
	// controllers that reconcile seldom (capi.Row.RateLimited). It may be nil.
	OnWell func(u Unit)
	// OnHealthy is called for each unit that passed post-flight, with the UID that its Cluster has on
	// the target, also for one that passed in an earlier run.
	OnHealthy func(u Unit, cluster string)
	// Seldom holds the kinds of controllers that reconcile seldom and were seen at work on the target,
	// by kind (object.GroupKind), for several runs; nil for one run alone. Once a kind is in it, the
	// post-flight waits for no further acknowledgement of that kind.
	Seldom *sync.Map
	// OnUnhealthy is what happens to a unit that fails post-flight.
	OnUnhealthy Reaction
	// ReleaseTogether releases all units in one stage. It is for a caller whose plans are stages.
	ReleaseTogether bool
	// LeaveSharedPaused leaves shared objects paused: FinishShared releases them when the units of
	// all plans are there.
	LeaveSharedPaused bool
}

// Reaction says what happens to a unit that fails post-flight.
type Reaction int

const (
	// Leave leaves it released: its controllers may still bring it to its state.
	Leave Reaction = iota
	// Repause pauses it, so that it stays as it is until the cause is found; a resume releases it
	// again.
	Repause
)
