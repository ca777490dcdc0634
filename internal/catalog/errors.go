package catalog

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/mgmtd/mgmtd/internal/object"
)

type noSpaceError struct{}

func (noSpaceError) Error() string { return "no space left for the catalog" }

// Hint says what to do.
func (noSpaceError) Hint() string {
	return "make room on its disk, or name a file elsewhere"
}

// HintKey names the flag for the file.
func (noSpaceError) HintKey() object.HintKey { return object.HintCatalogFull }

var (
	// ErrNotFound is wrapped by errors about an operation, snapshot, plan or state that is not in
	// the catalog.
	ErrNotFound = errors.New("not found")
	// ErrExists is wrapped when an operation is created under an id that is taken.
	ErrExists = errors.New("exists already")
	// ErrClosed is wrapped by every call after Close; watchers that are waiting end with it.
	ErrClosed = errors.New("catalog is closed")
	// ErrNoSpace is wrapped when the disk or the quota is full. Nothing of the call was written,
	// and older records are intact: make room and try again.
	ErrNoSpace error = noSpaceError{}
	// ErrNotRunning is wrapped when a step is to begin in an operation whose state is not running.
	ErrNotRunning = errors.New("operation is not running")
	// ErrUnfinished is wrapped when an operation with work left is to be forgotten.
	ErrUnfinished = errors.New("operation has work left")
	// ErrStepInFlight is wrapped when the same step is begun twice at once, which is an error in
	// the program.
	ErrStepInFlight = errors.New("step is in flight already")
	// ErrPlanFixed is wrapped when a plan would be replaced after the first step began: a resume
	// must use the plan that the run began with.
	ErrPlanFixed = errors.New("plan cannot change any more")

	// errRecord marks records that cannot be decoded; callers see a DamagedError.
	errRecord = errors.New("damaged record")
)

// LockedError says that another process has the catalog open.
type LockedError struct {
	// Path of the catalog.
	Path string
	// PID of the process that holds it; 0 when unknown.
	PID int
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("open catalog %s: locked by another process", e.Path)
	}
	return fmt.Sprintf("open catalog %s: locked by process %d", e.Path, e.PID)
}

// Hint says how to go on.
func (e *LockedError) Hint() string {
	return "wait for that process or talk to it; a second catalog file works too, but does not " +
		"know of its operations"
}

// DamagedError says that the file is no catalog, or a damaged one. Retrying does not help.
type DamagedError struct {
	// Path of the catalog.
	Path string
	// Cause is the damage.
	Cause error
	// Unfinished are the restores and moves in the file that changed something and have not ended for
	// good, as far as they can be read.
	Unfinished []string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("read catalog %s: file is damaged or no catalog: %v", e.Path, e.Cause)
}

func (e *DamagedError) Unwrap() error { return e.Cause }

// Hint says how to go on.
func (e *DamagedError) Hint() string {
	if len(e.Unfinished) == 0 {
		return moveAway(e.Path)
	}
	return fmt.Sprintf("it has operations that are not finished: %s; %s",
		strings.Join(e.Unfinished, ", "), moveAway(e.Path))
}

// FutureSchemaError says that a newer version of the program wrote the file. The file was not
// changed.
type FutureSchemaError struct {
	// Path of the catalog.
	Path string
	// Found is the schema version in the file, Known the newest that this program knows.
	Found, Known uint32
}

func (e *FutureSchemaError) Error() string {
	return fmt.Sprintf("open catalog %s: schema version %d is newer than %d, the newest known here",
		e.Path, e.Found, e.Known)
}

// Hint says how to go on.
func (e *FutureSchemaError) Hint() string {
	return "use the version of the program that wrote it, or " + moveAway(e.Path)
}

func moveAway(path string) string {
	return fmt.Sprintf("move the file away and do not delete it (mv %s %s.old), and run again: the "+
		"index of snapshots is rebuilt from the store, and restores and moves that are not finished are "+
		"imported from their mirror in the store; those without a mirror are in the old file alone", path,
		path)
}

// AmbiguousError says that a prefix fits several ids.
type AmbiguousError struct {
	// What the prefix is of: operation or snapshot.
	What string
	// Prefix as given.
	Prefix string
	// Matches are some of the ids that fit, at least two.
	Matches []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("find %s %q: fits more than one: %s", e.What, e.Prefix,
		strings.Join(e.Matches, ", "))
}

// TransitionError says that an operation cannot go from one state to the other.
type TransitionError struct {
	ID       OperationID
	From, To State
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("operation %s: cannot go from %s to %s", e.ID, e.From, e.To)
}

// wrap turns errors of bbolt and of the operating system into those of this package.
func (c *Catalog) wrap(err error) error {
	var damaged *DamagedError
	switch {
	case err == nil || errors.As(err, &damaged):
		return err
	case errors.Is(err, errRecord):
		return &DamagedError{Path: c.path, Cause: err}
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return ErrClosed
	}
	return wrapNoSpace(err)
}

// wrapNoSpace marks errors of a full disk. bbolt formats some of them with %s, so it compares their
// text as well.
func wrapNoSpace(err error) error {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if err != nil && (errors.Is(err, full) || strings.Contains(err.Error(), full.Error())) {
			return fmt.Errorf("%w: %w", ErrNoSpace, err)
		}
	}
	return err
}
