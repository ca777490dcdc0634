package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/task"
)

// SignedOwner is an ownership record as it was read.
type SignedOwner struct {
	Owner
	Signature
	// Seen is the highest epoch of a trusted record of this workload cluster that was read before.
	// A record with a lower one is an old record that somebody put back.
	Seen int64
	tag  string // of the bytes that were read
}

// RequireTrusted returns a *TrustError unless a trusted key signed the record.
func (o *SignedOwner) RequireTrusted() error {
	return o.Require(record.OwnerKey(o.WorkloadID))
}

// Vouches reports whether a record is to be obeyed: a trusted key signed it, or the store is plain
// and was opened as plain and without trusted keys, as with envelopes. A record whose epoch is
// above MaxEpoch is never obeyed: no hand-over could follow it.
func (s *Store) Vouches(o SignedOwner) bool {
	return s.accepted(o.Trust) && o.Epoch <= record.MaxEpoch
}

const maxOwner = 64 << 10

// GetOwner reads and checks the ownership record of a workload cluster: the signature, then that it
// is what its name says and of this store. It does not require a signature: see
// SignedOwner.RequireTrusted. A bucket that cannot fence is read, too. Errors: ErrNotFound,
// *CorruptError, *FormatError, ErrForeign; with each of them, what is returned has the highest
// epoch seen, and PutOwner takes it as the record to replace where there is a damaged one.
func (s *Store) GetOwner(ctx context.Context, workloadID string) (SignedOwner, error) {
	if !layout.ValidSource(workloadID) {
		return SignedOwner{}, fmt.Errorf("read owner: workload id %.40q is not a UID", workloadID)
	}
	seen, err := s.seenEpoch(ctx, workloadID)
	if err != nil {
		return SignedOwner{}, err
	}
	o, err := s.readOwner(ctx, workloadID)
	if err == nil {
		err = s.remember(ctx, o)
	}
	o.Seen = seen
	return o, err
}

// readOwner is GetOwner without the memory of epochs.
func (s *Store) readOwner(ctx context.Context, workloadID string) (SignedOwner, error) {
	key := record.OwnerKey(workloadID)
	c, ok := s.bucket.(bucket.Conditional)
	if !ok {
		data, err := bucket.ReadAll(ctx, s.bucket, key, maxOwner)
		if err != nil {
			return SignedOwner{}, err
		}
		return s.openOwner(key, data, "")
	}
	data, tag, err := c.GetTagged(ctx, key)
	if err != nil {
		return SignedOwner{}, err
	}
	o, err := s.openOwner(key, data, tag)
	if err != nil {
		o = SignedOwner{Owner: Owner{WorkloadID: workloadID}, tag: tag}
	}
	return o, err
}

func (s *Store) openOwner(key string, data []byte, tag string) (SignedOwner, error) {
	if len(data) > maxOwner {
		return SignedOwner{}, &CorruptError{Key: key, Reason: fmt.Sprintf("it is larger than %d bytes",
			maxOwner)}
	}
	var o Owner
	signature, err := s.signer().Open(key, data, &o)
	if err != nil {
		return SignedOwner{}, err
	}
	o.Time = o.Time.UTC()
	return SignedOwner{Owner: o, Signature: signature, tag: tag}, nil
}

// PutOwner writes the record that follows previous, which GetOwner or PutOwner returned; nil when
// there must be none yet. It sets Format and StoreID and signs. ErrConflict when the record there
// is not previous any more; *FenceError when this store cannot fence; an epoch that is not above
// that of previous is refused, unless previous is damaged or is not to be obeyed (Vouches): its
// epoch may be any number.
func (s *Store) PutOwner(ctx context.Context, next Owner, previous *SignedOwner) (SignedOwner,
	error) {
	c, err := s.fencing(ctx)
	if err != nil {
		return SignedOwner{}, err
	}
	next.Format, next.StoreID, next.Time = Format, s.ID(), next.Time.UTC().Truncate(time.Millisecond)
	if err := next.Validate(); err != nil {
		return SignedOwner{}, fmt.Errorf("write owner: %w", err)
	}
	if next.Epoch > record.MaxEpoch {
		return SignedOwner{}, fmt.Errorf("write owner of %s: epoch %d is above %d", next.WorkloadID,
			next.Epoch, int64(record.MaxEpoch))
	}
	key, tag := record.OwnerKey(next.WorkloadID), ""
	if previous != nil {
		if previous.WorkloadID != next.WorkloadID || previous.tag == "" {
			return SignedOwner{}, fmt.Errorf("write owner: the record before is not one that was read of %s",
				next.WorkloadID)
		}
		if s.Vouches(*previous) && next.Epoch <= previous.Epoch {
			return SignedOwner{}, fmt.Errorf("write owner of %s: epoch %d is not above %d", next.WorkloadID,
				next.Epoch, previous.Epoch)
		}
		tag = previous.tag
	}
	data, err := s.signer().Encode(key, &next, maxOwner)
	if err != nil {
		return SignedOwner{}, fmt.Errorf("write owner: %w", err)
	}
	if err := s.checkStoreID(ctx); err != nil {
		return SignedOwner{}, fmt.Errorf("write owner: %w", err)
	}
	newTag, err := c.PutIf(ctx, key, data, tag)
	if err != nil {
		return SignedOwner{}, err
	}
	o, err := s.openOwner(key, data, newTag)
	if err != nil {
		return SignedOwner{}, err
	}
	return o, s.remember(ctx, o)
}

// Owners calls fn for every ownership record, sorted by id, and then with ErrNotFound for every
// trusted one that was seen before and is gone. Otherwise err is what GetOwner says of that record;
// an error of fn ends the list and is returned as it is. Files with other names are passed over.
func (s *Store) Owners(ctx context.Context, fn func(workloadID string, o SignedOwner,
	err error) error) error {
	var ids []string
	err := s.bucket.List(ctx, record.OwnerFolder, func(i bucket.Info) error {
		id, ok := strings.CutSuffix(strings.TrimPrefix(i.Key, record.OwnerFolder), record.OwnerSuffix)
		if ok && layout.ValidSource(id) {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	seen, err := s.seenEpochs(ctx)
	if err != nil {
		return err
	}
	owners, errs := s.readOwners(ctx, ids)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var trusted []SignedOwner
	for i, id := range ids {
		o, err := owners[i], errs[i]
		if err == nil {
			trusted = append(trusted, o)
		}
		o.Seen = seen[id]
		delete(seen, id)
		if err := fn(id, o, err); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		if err := fn(id, SignedOwner{Seen: seen[id]}, ErrNotFound); err != nil {
			return err
		}
	}
	return s.remember(ctx, trusted...)
}

// ownerReads is how many ownership records are read at once: enough that some hundreds are read
// within seconds from a distant bucket, and few enough for one that limits requests.
const ownerReads = 8

// readOwners reads ownership records, and returns what readOwner does of each.
func (s *Store) readOwners(ctx context.Context, ids []string) ([]SignedOwner, []error) {
	owners, errs := make([]SignedOwner, len(ids)), make([]error, len(ids))
	var g task.Group
	g.SetLimit(ownerReads)
	for i, id := range ids {
		g.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = task.Call(func() (err error) {
					owners[i], err = s.readOwner(ctx, id)
					return err
				})
			}
			return nil
		})
	}
	g.Finish()
	return owners, errs
}
