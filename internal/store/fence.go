package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/keys"
)

// FenceError says that ownership cannot be recorded in this store, so that the store does not
// prevent two management clusters from reconciling one workload cluster. CanFence, PutOwner.
type FenceError struct {
	Store  string
	Reason string
	Tip    string
	TipKey object.HintKey
}

func (e *FenceError) Error() string {
	return fmt.Sprintf("fence by store %s: %s", e.Store,
		e.Reason)
}

// Hint says what an operator can do.
func (e *FenceError) Hint() string { return e.Tip }

// HintKey names the options that belong to the hint.
func (e *FenceError) HintKey() object.HintKey { return e.TipKey }

// CanFence returns nil when ownership can be recorded here, a *FenceError that says what is
// missing, or the bucket's error.
func (s *Store) CanFence(ctx context.Context) error {
	_, err := s.fencing(ctx)
	return err
}

func (s *Store) fencing(ctx context.Context) (bucket.Conditional, error) {
	if s.readOnly {
		return nil, &FenceError{Store: s.String(), Reason: "its location is read-only",
			Tip: "set accessMode: ReadWrite, or go on without fencing by the store if you know that " +
				"nothing else works on these workload clusters", TipKey: object.HintNoFence}
	}
	if s.Origin() != "" && !s.home {
		return nil, &FenceError{Store: s.String(), Reason: "it is a copy, and ownership is recorded in " +
			"its origin, store " + s.Origin(),
			Tip: "use a location with the origin"}
	}
	if s.Encrypted() && !s.keys.CanSign() {
		return nil, &FenceError{
			Store: s.String(), Reason: "no key to sign ownership records with",
			Tip: "give the signing key, or go on without fencing by the store if you know that " +
				"nothing else works on these workload clusters",
			TipKey: object.HintSignOrNoFence,
		}
	}
	if err := s.keys.MaySign(keys.Claim{Purpose: keys.ForOwnership}); err != nil {
		return nil, &FenceError{
			Store: s.String(), Reason: err.Error(),
			Tip: "give a signing key without such limits, or go on without fencing by the store if you " +
				"know that nothing else works on these workload clusters",
			TipKey: object.HintSignOrNoFence,
		}
	}
	c, err := bucket.AsConditional(ctx, s.bucket)
	if errors.Is(err, bucket.ErrUnconditional) {
		return nil, &FenceError{
			Store: s.String(), Reason: err.Error(),
			Tip: "use a store whose server supports If-None-Match and If-Match, or go on without fencing " +
				"by the store if you know that nothing else works on these workload clusters",
			TipKey: object.HintNoFence,
		}
	}
	return c, err
}
