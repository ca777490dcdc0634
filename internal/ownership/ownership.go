package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Store holds the ownership records; a *store.Store is one.
type Store interface {
	CanFence(ctx context.Context) error
	GetOwner(ctx context.Context, workloadID string) (store.SignedOwner, error)
	PutOwner(ctx context.Context, next store.Owner, previous *store.SignedOwner) (store.SignedOwner,
		error)
	Owners(ctx context.Context, fn func(workloadID string, o store.SignedOwner,
		err error) error) error
	Vouches(o store.SignedOwner) bool
}

var _ Store = (*store.Store)(nil)

// Record is what an ownership record says.
type Record struct {
	Workload  string // "namespace/name" of the Cluster when it was written
	By        object.Side
	Epoch     int64
	Operation string // that wrote it
	Time      time.Time
	// Trusted: a trusted key signed it. A record that is not trusted is reported and not obeyed.
	Trusted bool
	// Seen is the highest epoch of a trusted record that was seen before.
	Seen int64
	// Damaged says why a record that is there cannot be read. All other fields but Seen are empty
	// then.
	Damaged error
}

// Highest returns the highest epoch that is known: of the record, if it is trusted, and of those
// that were seen before.
func (r Record) Highest() int64 {
	if r.Trusted {
		return max(r.Epoch, r.Seen)
	}
	return r.Seen
}

// WentBack reports whether a trusted record with a higher epoch was seen before: an old record was
// put back, or the newest one is gone or hidden by one that no trusted key signed.
func (r Record) WentBack() bool {
	return r.Damaged == nil && r.Highest() > 0 && (!r.Trusted || r.Epoch < r.Seen)
}

func record(s Store, o store.SignedOwner) Record {
	return Record{Workload: o.Workload, Epoch: o.Epoch, Operation: o.Operation, Time: o.Time,
		By: object.Side{Name: o.Owner.Owner.Name, UID: o.Owner.Owner.UID}, Trusted: s.Vouches(o),
		Seen: o.Seen}
}

// Owners reads all ownership records, by id of the workload cluster, and those of which only the
// epoch that was seen before is known. A record that is damaged does not fail it; a store that does
// not answer does, since it may hide any record.
func Owners(ctx context.Context, s Store) (map[string]Record, error) {
	owners := map[string]Record{}
	err := s.Owners(ctx, func(id string, o store.SignedOwner, err error) error {
		switch {
		case store.IsUnusable(err):
			owners[id] = Record{Damaged: err, Seen: o.Seen}
		case errors.Is(err, store.ErrNotFound):
			if o.Seen > 0 {
				owners[id] = Record{Seen: o.Seen}
			}
		case err != nil:
			return err
		default:
			owners[id] = record(s, o)
		}
		return nil
	})
	return owners, err
}

// Read reads one ownership record; the zero Record, but for Seen, when there is none. A record that
// is damaged does not fail it.
func Read(ctx context.Context, s Store, workloadID string) (Record, error) {
	o, err := s.GetOwner(ctx, workloadID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Record{Seen: o.Seen}, nil
	case store.IsUnusable(err):
		return Record{Damaged: err, Seen: o.Seen}, nil
	case err != nil:
		return Record{}, err
	}
	return record(s, o), nil
}

// reads is how many ownership records Of reads at once.
const reads = 16

// Of is Owners for some workload clusters. It reads their records only, however many the store has.
func Of(ctx context.Context, s Store, ids []string) (map[string]Record, error) {
	records := make([]Record, len(ids))
	g, gctx := task.WithContext(ctx)
	g.SetLimit(reads)
	for i, id := range ids {
		g.Go(func() (err error) {
			records[i], err = Read(gctx, s, id)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	owners := map[string]Record{}
	for i, id := range ids {
		if r := records[i]; r.By.UID != "" || r.Damaged != nil || r.Seen > 0 {
			owners[id] = r
		}
	}
	return owners, nil
}

// OwnedError says that the ownership record of a workload cluster does not allow a claim or a
// release: it names another management cluster, or it was written after planning. By is zero when
// the record of an earlier claim is gone, or no trusted key signed the one that is there now.
type OwnedError struct {
	Workload string
	By       object.Side
	Epoch    int64
	Planned  int64 // epoch at planning, 0 when there was no record
}

func (e *OwnedError) Error() string {
	if e.By.UID == "" {
		return "the ownership record that this operation wrote for workload cluster " + e.Workload +
			" is gone, or replaced by one that no trusted key signed"
	}
	text := fmt.Sprintf("workload cluster %s belongs to management cluster %s (%s) by its ownership "+
		"record, epoch %d", e.Workload, e.By.Name, e.By.UID, e.Epoch)
	switch {
	case e.Epoch <= e.Planned:
		return text
	case e.Planned == 0:
		return text + "; there was no record at planning"
	default:
		return fmt.Sprintf("%s; at planning it was %d", text, e.Planned)
	}
}

// Hint says what to do next.
func (e *OwnedError) Hint() string {
	if e.By.UID == "" {
		return "find out who removed it, and which management cluster reconciles this workload " +
			"cluster, before anything else"
	}
	return "it was moved or restored there in the meantime: leave the copy of this operation " +
		"paused, or roll the move back, and work with that management cluster"
}

// WentBackError says that the ownership record of a workload cluster has a lower epoch than a
// trusted one that was seen before, or none that counts.
type WentBackError struct {
	Workload    string
	Epoch, Seen int64 // Epoch is 0 when there is no record
}

func (e *WentBackError) Error() string { return e.Workload + ": " + e.Why() }

// Why says it without the name of the workload cluster.
func (e *WentBackError) Why() string {
	if e.Epoch == 0 {
		return fmt.Sprintf("its ownership record of epoch %d is gone", e.Seen)
	}
	return fmt.Sprintf("its ownership record has epoch %d, and a trusted one of epoch %d was seen "+
		"before", e.Epoch, e.Seen)
}

// Hint says what to do next.
func (e *WentBackError) Hint() string {
	return "somebody removed the newest record or put an old one back, or the store was restored " +
		"from a copy: find out which management cluster reconciles it before you go on"
}

// Request says who claims which workload cluster from whom.
type Request struct {
	WorkloadID string
	Workload   string // "namespace/name"
	From, To   object.Side
	Operation  string
	// Epoch is that of the record at planning, 0 when there was none. A record that was written
	// after planning belongs to another operation, and refuses the claim.
	Epoch int64
	// OriginEpoch is the highest epoch that is known of the record in the origin, when the store is a
	// copy; else 0. Both count in one row: the claim has a higher one.
	OriginEpoch int64
	// Force claims from the owner at planning, even when that is neither From nor To.
	Force bool
	// ForceDamaged goes on as if a record that cannot be read were not there.
	ForceDamaged bool
	// ForceWentBack goes on although a trusted record with a higher epoch was seen before, provided
	// that planning knew of that epoch.
	ForceWentBack bool
}

// read returns the record of a request, the zero Record when there is none, and what a claim has to
// replace, nil for nothing. Errors: *WentBackError; those of the store.
func (q Request) read(ctx context.Context, s Store) (have Record, previous *store.SignedOwner,
	err error) {
	signed, err := s.GetOwner(ctx, q.WorkloadID)
	forced := q.ForceWentBack
	switch {
	case errors.Is(err, store.ErrNotFound):
		have = Record{Seen: signed.Seen}
	case store.IsUnusable(err) && q.ForceDamaged:
		have, previous, forced = Record{Seen: signed.Seen}, &signed, true
	case err != nil:
		return Record{}, nil, err
	default:
		have, previous = record(s, signed), &signed
	}
	if have.WentBack() && !(forced && have.Seen <= q.Epoch) {
		return Record{}, nil, &WentBackError{Workload: q.Workload, Epoch: have.Epoch, Seen: have.Seen}
	}
	return have, previous, nil
}

// Known returns the highest epoch that was known at planning.
func (q Request) Known() int64 { return max(q.Epoch, q.OriginEpoch) }

// Next returns the epoch of the record that a claim writes.
func (q Request) Next() int64 { return q.Known() + 1 }

// allows reports whether a trusted record lets the claim pass.
func (q Request) allows(have Record) bool {
	return have.Epoch <= q.Epoch && (q.Force || have.By.UID == q.From.UID || have.By.UID == q.To.UID)
}

// wrote reports whether a trusted record is the claim of this request.
func (q Request) wrote(have Record) bool {
	return have.By.UID == q.To.UID && have.Operation == q.Operation
}

func (q Request) owned(have Record) error {
	return &OwnedError{Workload: q.Workload, By: have.By, Epoch: have.Epoch, Planned: q.Epoch}
}

// attempts bounds how often a claim is tried against others that write the same record.
const attempts = 5

// Claim writes the ownership record for a request: the one switch that says which management
// cluster a workload cluster belongs to. A claim is allowed when there is no record, and when the
// record is the one of planning and names the source, or the target itself: a restore that runs
// again claims what the first one claimed. It may run again: its own record stays as it is. The
// epoch of a new record is one more than the highest that was known at planning.
// Errors: *OwnedError; *WentBackError; those of the store.
func Claim(ctx context.Context, s Store, q Request) error {
	_, err := claim(ctx, s, q)
	return err
}

// claim is Claim, and returns the epoch of the record of the request.
func claim(ctx context.Context, s Store, q Request) (epoch int64, err error) {
	for range attempts {
		next := store.Owner{WorkloadID: q.WorkloadID, Workload: q.Workload,
			Owner: store.Source{UID: q.To.UID, Name: q.To.Name}, Epoch: q.Next(),
			Operation: q.Operation, Time: time.Now()}
		have, previous, err := q.read(ctx, s)
		switch {
		case err != nil:
			return 0, err
		case have.Trusted && q.wrote(have) && have.Epoch > q.Epoch:
			return have.Epoch, nil // one that was known at planning stops no claim that is on its way
		case have.Trusted && !q.allows(have):
			return 0, q.owned(have)
		}
		if _, err := s.PutOwner(ctx, next, previous); !errors.Is(err, store.ErrConflict) {
			return next.Epoch, err
		}
	}
	return 0, fmt.Errorf("write ownership record of %s: others write it at the same time: %w",
		q.Workload, store.ErrConflict)
}

// ClaimBack writes a record in the name of the source of a request, so that a claim of this
// request that is still on its way to the bucket fails. A record that names the source and was
// written after planning has the same effect, whichever operation wrote it. That of planning may
// name anybody, and is replaced. It returns the epoch of the record. Errors: those of Claim.
func ClaimBack(ctx context.Context, s Store, q Request) (epoch int64, err error) {
	q.To, q.Force = q.From, true
	have, err := claim(ctx, s, q)
	if owned, ok := errors.AsType[*OwnedError](err); ok && owned.By.UID == q.From.UID {
		return owned.Epoch, nil
	}
	return have, err
}

// Current returns the record of the workload cluster of a request, the zero Record when there is
// none. Errors: *WentBackError; those of the store.
func Current(ctx context.Context, s Store, q Request) (Record, error) {
	have, _, err := q.read(ctx, s)
	return have, err
}

// GiveBack takes back the claim of a request, also one that is still on its way to the bucket: it
// writes a record in the name of its From. A record that another operation wrote stays. It may run
// again. Errors: *WentBackError; those of the store.
func GiveBack(ctx context.Context, s Store, q Request) error {
	for range attempts {
		have, previous, err := q.read(ctx, s)
		switch {
		case err != nil:
			return err
		case have.Trusted && have.By.UID == q.From.UID && have.Operation == q.Operation:
			return nil // given back before
		case have.Trusted && have.Epoch > q.Epoch && !q.wrote(have):
			return nil // a claim of this request finds another record than it expects
		}
		next := store.Owner{WorkloadID: q.WorkloadID, Workload: q.Workload,
			Owner: store.Source{UID: q.From.UID, Name: q.From.Name}, Operation: q.Operation,
			Epoch: max(have.Highest()+1, q.Next()), Time: time.Now()}
		if _, err := s.PutOwner(ctx, next, previous); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("give back the ownership of %s: others write its record at the same time: %w",
		q.Workload, store.ErrConflict)
}

// Claimed returns the operation that claimed the workload cluster of a request for its target
// since planning, "" when none did. It asks the store, which knows of a claim before any journal
// does.
func Claimed(ctx context.Context, s Store, q Request) (operation string, err error) {
	have, _, err := q.read(ctx, s)
	if back, ok := errors.AsType[*WentBackError](err); ok && back.Seen <= q.Epoch {
		return "", nil // every claim since planning would be known by its epoch
	}
	if err != nil || !have.Trusted || have.By.UID != q.To.UID || have.Epoch <= q.Epoch {
		return "", err
	}
	return have.Operation, nil
}

// Check makes sure that the operation of a request still owns what it claimed: a resume may come
// days later. *OwnedError when another operation has claimed it since, or the record is gone.
func Check(ctx context.Context, s Store, q Request) error {
	by, err := Claimed(ctx, s, q)
	if err != nil || by == q.Operation {
		return err
	}
	have, _, err := q.read(ctx, s)
	if err != nil {
		return err
	}
	if !have.Trusted {
		have = Record{}
	}
	return q.owned(have)
}

// CheckReturn makes sure that the source of a request may reconcile its workload cluster again:
// since planning nobody but the source has claimed it, as far as the store and the epochs seen
// before say. A record that cannot be read or that no trusted key signed says nothing. Errors:
// *OwnedError; *WentBackError; those of the store.
func CheckReturn(ctx context.Context, s Store, q Request) error {
	have, err := Read(ctx, s, q.WorkloadID)
	switch {
	case err != nil:
		return err
	case have.Trusted && have.Epoch > q.Epoch && have.By.UID != q.From.UID:
		return q.owned(have)
	case have.Seen > q.Epoch && (!have.Trusted || have.Epoch < have.Seen):
		return &WentBackError{Workload: q.Workload, Epoch: have.Epoch, Seen: have.Seen}
	}
	return nil
}

// CheckUnclaimed is the check of an operation that writes no record: it makes sure that no other
// operation has claimed the workload cluster of a request since planning. A record that no trusted
// key signed is not obeyed. Errors: *OwnedError; those of the store.
func CheckUnclaimed(ctx context.Context, s Store, q Request) error {
	have, _, err := q.read(ctx, s)
	if err != nil || !have.Trusted || q.wrote(have) || q.allows(have) {
		return err
	}
	return q.owned(have)
}
