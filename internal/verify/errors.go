package verify

import (
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// DamagedError reports that a snapshot is not whole. The findings say what is wrong.
type DamagedError struct {
	Damaged, Of int
	What        string // keys or objects
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%d of %d %s are not as they should be", e.Damaged, e.Of, e.What)
}

// Hint returns what an operator can do.
func (e *DamagedError) Hint() string {
	return "do not rely on this snapshot; take a full one of its source, or restore from another"
}

// HintKey names the command that takes a full snapshot.
func (e *DamagedError) HintKey() object.HintKey { return object.HintFullSnapshot }

// RemovedError reports that a snapshot was removed while it was verified.
type RemovedError struct{ Key store.EnvelopeKey }

func (e *RemovedError) Error() string {
	return "the snapshot was removed while it was verified: " + e.Key.String()
}

// Hint returns what an operator can do.
func (e *RemovedError) Hint() string {
	return "verify another one"
}

// HintKey names the command that lists snapshots.
func (e *RemovedError) HintKey() object.HintKey { return object.HintSnapshots }
