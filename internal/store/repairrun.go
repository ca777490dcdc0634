package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// prunedEvery is after how long RunRepair reads again what prunes have removed.
const prunedEvery = 10 * time.Second

// RunRepair brings back what a plan has found, and calls done with each key. It removes the delete
// markers above the right version if these credentials may, and else writes that version on top
// once more. It deletes no version, and writes nothing but bytes that are proven to belong under
// their key. An error of done ends it. A snapshot that a prune has removed since the plan was made
// stays away. It may run twice, and be interrupted after any key. Errors are about the store; what
// failed for one key is in its state.
func (s *Store) RunRepair(ctx context.Context, plan *RepairPlan,
	done func(Repair) error) error {
	if err := s.refuseReadOnly(); err != nil {
		return err
	}
	b, ok := s.bucket.(bucket.Repairer)
	if !ok {
		return nil
	}
	defer s.ancestry.forget()
	var pruned Pruned
	var read time.Time
	for _, r := range plan.Repairs {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if r.State == RepairPossible && r.Class == ClassEnvelope {
			if time.Since(read) > prunedEvery {
				var err error
				if pruned, err = s.Pruned(ctx); err != nil {
					return err
				}
				read = time.Now()
			}
			if err := s.explainRepair(ctx, b, &r, pruned); err != nil {
				return err
			}
		}
		if r.State == RepairPossible {
			err := s.repair(ctx, b, &r)
			if ctx.Err() != nil || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrStoreMissing) {
				return err
			}
			if err != nil {
				r.State, r.Reason = RepairFailed, err.Error()
			}
		}
		if err := done(r); err != nil {
			return err
		}
	}
	return nil
}

// repair brings one key back.
func (s *Store) repair(ctx context.Context, b bucket.Repairer, r *Repair) error {
	var denied error
	if len(r.markers) > 0 {
		if denied = removeMarkers(ctx, b, r); denied == nil {
			if err := s.confirmRepair(ctx, r.Key); err == nil {
				r.State = RepairUndeleted
				return nil
			}
		}
		if ctx.Err() != nil || errors.Is(denied, ErrUnreachable) {
			return denied
		}
	}
	data, err := bucket.ReadVersion(ctx, b, r.Key, r.Good.ID, s.limits.maxStored+maxHead)
	if err != nil {
		return errors.Join(err, denied)
	}
	if rank, err := s.judge(ctx, r.Key, data); err != nil || rank == 0 {
		return errors.Join(err, &CorruptError{Key: r.Key, Reason: "the version is not what it was"})
	}
	if err := s.putBack(ctx, b, r.Key, data); err != nil {
		return errors.Join(err, denied)
	}
	r.State = RepairCopied
	return s.confirmRepair(ctx, r.Key)
}

func removeMarkers(ctx context.Context, b bucket.Repairer, r *Repair) error {
	for _, id := range r.markers {
		if err := b.RemoveMarker(ctx, r.Key, id); err != nil {
			return err
		}
	}
	return nil
}

// putBack writes bytes on top of a key. An ownership record is written on the condition that the
// current one is the one that was seen: a hand-over may just have written a newer one.
func (s *Store) putBack(ctx context.Context, b bucket.Repairer, key string, data []byte) error {
	if !strings.HasPrefix(key, record.OwnerFolder) {
		return b.Replace(ctx, key, data)
	}
	hidden, err := s.putBackOwner(ctx, key, data)
	if !hidden || !errors.Is(err, ErrConflict) {
		return err
	}
	// versitygw v1.8.0 takes a key under a delete marker for one that exists, and does not show it.
	if err := unhide(ctx, b, key); err != nil {
		return err
	}
	_, err = s.putBackOwner(ctx, key, data)
	return err
}

// putBackOwner reports whether the record was not there.
func (s *Store) putBackOwner(ctx context.Context, key string, data []byte) (hidden bool,
	err error) {
	c, err := s.fencing(ctx)
	if err != nil {
		return false, err
	}
	current, tag, err := c.GetTagged(ctx, key)
	if errors.Is(err, ErrNotFound) {
		hidden, tag, err = true, "", nil
	}
	if err != nil {
		return hidden, err
	}
	has, err := s.judge(ctx, key, current)
	if err != nil {
		return hidden, err
	}
	if want, err := s.judge(ctx, key, data); err != nil || has >= want {
		return hidden, err
	}
	_, err = c.PutIf(ctx, key, data, tag)
	return hidden, err
}

// unhide removes the delete markers on top of a key, whatever is below them.
func unhide(ctx context.Context, b bucket.Repairer, key string) error {
	versions, err := b.Versions(ctx, key)
	for _, v := range versions {
		if err != nil || !v.Deleted {
			break
		}
		err = b.RemoveMarker(ctx, key, v.ID)
	}
	return err
}

// confirmRepair reads a key as every reader does.
func (s *Store) confirmRepair(ctx context.Context, key string) error {
	data, err := bucket.ReadAll(ctx, s.bucket, key, s.limits.maxStored+maxHead)
	if err != nil {
		return err
	}
	rank, err := s.judge(ctx, key, data)
	if err == nil && rank == 0 {
		err = fmt.Errorf("%s: it is still not the right version", key)
	}
	return err
}
