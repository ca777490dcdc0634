package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Operation is one run: a snapshot, a restore, a move, a verify, a prune, a copy. It holds no
// content and no secrets.
type Operation struct {
	ID    OperationID `json:"id"`
	Kind  Kind        `json:"kind"`
	State State       `json:"state"`
	// Created and Updated are set by the catalog.
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	// Source and Target are the management clusters; a snapshot has no target.
	Source Side `json:"source,omitzero"`
	Target Side `json:"target,omitzero"`
	// Store is the id of the store.
	Store string `json:"store,omitempty"`
	// Location is the name of the storage location, empty when it has none.
	Location string `json:"location,omitempty"`
	// Schedule is the name of the schedule that began it, empty when an operator did.
	Schedule string `json:"schedule,omitempty"`
	// SnapshotID is the snapshot that it made or reads.
	SnapshotID string `json:"snapshotID,omitempty"`
	// RetainedUntil is until when the storage retains everything that the snapshot of a verify names;
	// zero when it does not, or when that is not known.
	RetainedUntil time.Time `json:"retainedUntil,omitzero"`
	// Copy is what a copy of a store did; nil for other operations.
	Copy *StoreCopy `json:"copy,omitempty"`
	// Message says why it has not succeeded, Code is the stable code of the same; both are empty
	// otherwise.
	Message string `json:"message,omitempty"`
	Code    string `json:"code,omitempty"`
	// HintKey names the hint in Message.
	HintKey object.HintKey `json:"hintKey,omitempty"`
	// StopCause decides whether a daemon resumes the operation by itself.
	StopCause StopCause `json:"stopCause,omitempty"`
	// Changed is true once a step was begun: something outside of the catalog may have changed. It
	// is false again after a run that changed nothing (Outcome.Untouched).
	Changed bool `json:"changed,omitempty"`
	// Back is true once a rollback was requested: a resume continues the rollback.
	Back bool `json:"back,omitempty"`
	// Unreleased is true of a restore that leaves its workload clusters paused, until another
	// operation has released them: that one needs its plan and its snapshot.
	Unreleased bool `json:"unreleased,omitempty"`
	// GivenUp is true once an operator has given up an operation with work left, right before the
	// catalog forgets it.
	GivenUp bool `json:"givenUp,omitempty"`
	// Accepted are the units whose state the operator accepts: they need no post-flight any more.
	Accepted []string `json:"accepted,omitempty"`
	// Runs counts how often it went into running: the first time and each resume or rollback.
	Runs int `json:"runs,omitempty"`
	// Progress as last reported, sorted by Progress.What.
	Progress []Progress `json:"progress,omitempty"`
	// Units and the state of each. They are stored apart: there may be thousands, and each changes
	// about ten times.
	Units map[string]UnitState `json:"units,omitempty"`
}

// StoreCopy is what an operation copied from its store to another location.
type StoreCopy struct {
	// Location is the name of the storage location of the copy, and Store its id.
	Location string `json:"location,omitempty"`
	Store    string `json:"store,omitempty"`
	// Copied and Present count the snapshots that came, and those that were there.
	Copied  int `json:"copied"`
	Present int `json:"present"`
	// Removed and LeftOut count those that are not copied on purpose: a prune of the copy removed
	// them, or they are older than the newest ones that were asked for.
	Removed int `json:"removed"`
	LeftOut int `json:"leftOut"`
	// Untrusted counts envelopes that no trusted key signed.
	Untrusted int `json:"untrusted"`
	// Behind counts the snapshots that should be in the copy and are not; -1 when that is not known.
	Behind int `json:"behind"`
	// Keys and Bytes are the content that was written.
	Keys  int64 `json:"keys"`
	Bytes int64 `json:"bytes"`
}

// Side is a management cluster of an operation.
type Side struct {
	// Name is its display name.
	Name string `json:"name,omitempty"`
	// UID of its kube-system namespace.
	UID string `json:"uid,omitempty"`
}

// OperationFilter picks operations; the zero value picks all.
type OperationFilter struct {
	// Kinds and States to pick; empty means any.
	Kinds  []Kind
	States []State
	// Before picks older operations than this one, which need not exist; empty means all.
	Before OperationID
	// Limit is the largest number to return; 0 means no limit.
	Limit int
}

// CreateOperation stores a new operation with state planned and returns it with its id and times.
// It ignores the state, the times, the progress and the outcome of op, and chooses an id when op
// has none. Two calls make two operations, or wrap ErrExists when an id was given.
func (c *Catalog) CreateOperation(ctx context.Context, op Operation) (Operation, error) {
	given, units := op.ID, op.Units
	now := c.now()
	op.State, op.Created, op.Updated = Planned, now, now
	op.Message, op.Code, op.HintKey, op.StopCause, op.Progress = "", "", "", "", nil
	op.Changed, op.Back, op.GivenUp, op.Runs = false, false, false, 0
	err := c.update(ctx, func(tx *bolt.Tx) error {
		operations := tx.Bucket(bucketOperations)
		op.ID = given
		if given == "" {
			last, _ := operations.Cursor().Last()
			op.ID = newOperationID(now, OperationID(last))
			for operations.Bucket([]byte(op.ID)) != nil {
				op.ID = newOperationID(now, op.ID)
			}
		}
		if err := op.check(); err != nil {
			return err
		}
		if operations.Bucket([]byte(op.ID)) != nil {
			return fmt.Errorf("%s: %w", op.ID, ErrExists)
		}
		b, err := makeOperation(operations, op.ID)
		if err != nil {
			return err
		}
		o := opTx{c: c, b: b, op: op, tx: tx}
		for unit, state := range units {
			if err := o.putUnit(unit, state); err != nil {
				return err
			}
		}
		return o.finish(Event{Type: EventOperation, State: string(Planned)})
	})
	if err != nil {
		return Operation{}, fmt.Errorf("create operation: %w", err)
	}
	return op, nil
}

// makeOperation makes the buckets of a new operation.
func makeOperation(operations *bolt.Bucket, id OperationID) (*bolt.Bucket, error) {
	b, err := operations.CreateBucket([]byte(id))
	if err != nil {
		return nil, err
	}
	for _, name := range [][]byte{bucketUnits, bucketSteps, bucketValues, bucketEvents} {
		if _, err := b.CreateBucket(name); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Operation returns an operation with its units. ErrNotFound when there is none.
func (c *Catalog) Operation(ctx context.Context, id OperationID) (Operation, error) {
	var op Operation
	err := c.view(ctx, func(tx *bolt.Tx) (err error) {
		op, err = readOperation(tx, id)
		return err
	})
	if err != nil {
		return Operation{}, fmt.Errorf("get operation %s: %w", id, err)
	}
	c.addLiveProgress(&op)
	return op, nil
}

// FindOperation returns the one operation whose id begins with prefix. Errors: ErrNotFound;
// *AmbiguousError when several do.
func (c *Catalog) FindOperation(ctx context.Context, prefix string) (Operation, error) {
	var matches []string
	err := c.view(ctx, func(tx *bolt.Tx) error {
		matches = nil
		if !isHexPrefix(prefix) {
			return nil
		}
		cursor := tx.Bucket(bucketOperations).Cursor()
		for k, _ := cursor.Seek([]byte(prefix)); bytes.HasPrefix(k, []byte(prefix)) &&
			len(matches) < 5; k, _ = cursor.Next() {
			matches = append(matches, string(k))
		}
		return nil
	})
	switch {
	case err != nil:
		return Operation{}, fmt.Errorf("find operation %q: %w", prefix, err)
	case len(matches) == 0:
		return Operation{}, fmt.Errorf("find operation %q: %w", prefix, ErrNotFound)
	case len(matches) > 1:
		return Operation{}, &AmbiguousError{What: "operation", Prefix: prefix, Matches: matches}
	}
	return c.Operation(ctx, OperationID(matches[0]))
}

// Operations returns the operations that fit the filter, newest first.
func (c *Catalog) Operations(ctx context.Context, filter OperationFilter) ([]Operation, error) {
	return c.operations(ctx, filter.indexPrefixes(), filter.Before, filter.Limit)
}

// operationPage is how many operations one transaction reads; between two of them writers may grow
// the file. An operation is read once, in one of them.
const operationPage = 256

// operations returns the operations under some prefixes of the index, as Operations does.
func (c *Catalog) operations(ctx context.Context, prefixes [][]byte, before OperationID,
	limit int) ([]Operation, error) {
	var found []Operation
	for {
		page := operationPage
		if limit > 0 {
			page = min(page, limit-len(found))
		}
		var ops []Operation
		err := c.view(ctx, func(tx *bolt.Tx) error {
			for _, id := range newestBefore(tx, prefixes, before, page) {
				op, err := readOperation(tx, id)
				if errors.Is(err, ErrNotFound) {
					err = fmt.Errorf("%w: there is no operation %s, which is in the index", errRecord, id)
				}
				if err != nil {
					return err
				}
				ops = append(ops, op)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list operations: %w", err)
		}
		for i := range ops {
			c.addLiveProgress(&ops[i])
		}
		found = append(found, ops...)
		if len(ops) < page || len(found) == limit {
			return found, nil
		}
		before = ops[len(ops)-1].ID
	}
}

// Interrupted returns the operations that a process left running, or planned, when it died, newest
// first. No process works on them: the caller moves those that were running to stopped or to
// needs-identity, and those that were planned to failed, which removes them from this list.
func (c *Catalog) Interrupted(ctx context.Context) ([]Operation, error) {
	left, err := c.Operations(ctx, OperationFilter{States: []State{Planned, Running}})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(left, func(op Operation) bool {
		_, interrupted := c.interrupted[op.ID]
		return !interrupted
	}), nil
}

func (op Operation) check() error {
	if _, err := ParseOperationID(string(op.ID)); err != nil {
		return err
	}
	if err := op.Kind.check(); err != nil {
		return err
	}
	if err := op.StopCause.check(); err != nil {
		return err
	}
	return op.State.check()
}

func decodeOperation(value []byte) (Operation, error) {
	return decode[Operation]("operation", value)
}

// readOperation returns the operation with its units.
func readOperation(tx *bolt.Tx, id OperationID) (Operation, error) {
	b := tx.Bucket(bucketOperations).Bucket([]byte(id))
	if b == nil {
		return Operation{}, ErrNotFound
	}
	op, err := decodeOperation(b.Get(keyRecord))
	if err != nil {
		return Operation{}, err
	}
	units := b.Bucket(bucketUnits)
	if units == nil {
		return Operation{}, fmt.Errorf("%w: operation %s has no units", errRecord, id)
	}
	op.Units = nil
	return op, units.ForEach(func(k, v []byte) error {
		state := UnitState(v)
		if err := state.check(); err != nil {
			return fmt.Errorf("%w: unit %s: %w", errRecord, k, err)
		}
		if op.Units == nil {
			op.Units = map[string]UnitState{}
		}
		op.Units[string(k)] = state
		return nil
	})
}

// opTx is a write to one operation within a transaction.
type opTx struct {
	c  *Catalog
	tx *bolt.Tx
	b  *bolt.Bucket
	// indexed is the key of the operation in the index before this write; nil for a new one.
	indexed []byte
	// op is the record, without units; finish stores it.
	op Operation
	// change is what this transaction writes, for the feed of the operation.
	change Change
}

// updateOperation runs fn on an operation, as update does, and stores op.op and the events that fn
// returns.
func (c *Catalog) updateOperation(ctx context.Context, id OperationID, fn func(o *opTx) ([]Event,
	error)) error {
	return c.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketOperations).Bucket([]byte(id))
		if b == nil {
			return fmt.Errorf("operation %s: %w", id, ErrNotFound)
		}
		op, err := decodeOperation(b.Get(keyRecord))
		if err != nil {
			return err
		}
		o := opTx{c: c, tx: tx, b: b, op: op, indexed: op.indexKey()}
		events, err := fn(&o)
		if err != nil {
			return err
		}
		o.op.Updated = c.now()
		o.op.Progress = c.mergedProgress(id, o.op.Progress)
		return o.finish(events...)
	})
}

// finish stores the record and appends the events; watchers are notified after the commit.
func (o *opTx) finish(events ...Event) error {
	record := o.op
	record.Units = nil
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := o.b.Put(keyRecord, value); err != nil {
		return err
	}
	if err := o.reindex(); err != nil {
		return err
	}
	if err := o.appendEvents(events); err != nil {
		return err
	}
	record.Progress = nil
	o.change.Operation = &record
	o.tx.OnCommit(func() {
		o.c.publish(record.ID, o.change)
		o.c.notify()
	})
	return nil
}

// bucket returns a bucket of the operation. When a damaged file lacks it, the error wraps
// errRecord.
func (o *opTx) bucket(name []byte) (*bolt.Bucket, error) { return operationBucket(o.b, name) }

func operationBucket(b *bolt.Bucket, name []byte) (*bolt.Bucket, error) {
	inner := b.Bucket(name)
	if inner == nil {
		return nil, fmt.Errorf("%w: bucket %s is missing", errRecord, name)
	}
	return inner, nil
}

func (o *opTx) putUnit(unit string, state UnitState) error {
	if unit == "" {
		return fmt.Errorf("unit has no name")
	}
	if err := state.check(); err != nil {
		return err
	}
	units, err := o.bucket(bucketUnits)
	if err != nil {
		return err
	}
	if o.change.Units == nil {
		o.change.Units = map[string]UnitState{}
	}
	o.change.Units[unit] = state
	return units.Put([]byte(unit), []byte(state))
}

// Settled reports whether nothing needs the operation any more: it is final, and no workload
// cluster waits for its release, or an operator has given it up.
func (op Operation) Settled() bool {
	return op.GivenUp || op.State == RolledBack || op.State == Succeeded && !op.Unreleased
}

// SnapshotsInUse returns the snapshots of a store that operations may still read, by the id of the
// operation: those of restores and moves that have begun and are not at their end, of restores of
// which the workload clusters are not released, and of running verifications.
func (c *Catalog) SnapshotsInUse(ctx context.Context, storeID string) (map[string]store.SnapshotID,
	error) {
	ops, err := c.operations(ctx, unfinishedPrefixes(KindRestore, KindMove, KindVerify), "", 0)
	if err != nil {
		return nil, err
	}
	used := map[string]store.SnapshotID{}
	for _, op := range ops {
		untouched := op.State != Succeeded && !op.Changed
		over := op.Settled() || op.State.Ended() && (op.Kind == KindVerify || untouched)
		if op.Store == storeID && op.SnapshotID != "" && !over {
			used[string(op.ID)] = store.SnapshotID(op.SnapshotID)
		}
	}
	return used, nil
}
