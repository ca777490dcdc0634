package store

import (
	"math"
	"time"
)

// This file is the agreement between those who write snapshots and those who remove them.

// MaxRun limits how long a run may take from its start until its envelope is stored. A run that
// exceeds it publishes no snapshot. A prune removes nothing that such a run wrote, or that its
// parent snapshot names, for longer than that.
const MaxRun = 2 * time.Hour

// Exceeded reports whether more than limit passed between two readings of one clock. It compares
// monotonic and wall time: monotonic time stops while the host sleeps, wall time can be set back.
func Exceeded(began, now time.Time, limit time.Duration) bool {
	return now.Sub(began) > limit || now.Round(0).Sub(began.Round(0)) > limit
}

// CanBeParent reports whether the next snapshot of its source may follow e. An envelope of an
// unknown signer, of a key whose limits do not allow it, or an unsigned one in an encrypted store,
// does not count: anybody who can write to the bucket could end the sequence numbers of a source
// with it.
func (s *Store) CanBeParent(e *Signed) bool {
	signed := e.Trust == Trusted || e.Trust == Unchecked || e.Trust == Unsigned && !s.Encrypted()
	return signed && e.Sequence != math.MaxInt64
}
