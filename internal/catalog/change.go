package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Change is what one transaction wrote to the record of an operation. The changes of an operation,
// applied in their order to another catalog, make the same record there.
type Change struct {
	// Operation is the record without units and progress; nil where a later change has it.
	Operation *Operation           `json:"operation,omitempty"`
	Units     map[string]UnitState `json:"units,omitempty"`
	Values    []StepValue          `json:"values,omitempty"`
	// Steps are applied after Values. A step that is undone deletes its values.
	Steps     []StepRecord `json:"steps,omitempty"`
	Events    []Event      `json:"events,omitempty"`
	Documents []Document   `json:"documents,omitempty"`
}

// StepValue is a value that a step recorded.
type StepValue struct {
	Step string          `json:"step"`
	Key  string          `json:"key"`
	Data json.RawMessage `json:"data"`
}

// Document is a plan, or consecutive chunks of one.
type Document struct {
	Name string   `json:"name"`
	Info PlanInfo `json:"info"`
	// First is the number of the first of Chunks, from 0.
	First  int      `json:"first,omitempty"`
	Chunks [][]byte `json:"chunks"`
}

// Feed collects the changes of an operation, in order, until Take. It may be used concurrently.
type Feed struct {
	c       *Catalog
	id      OperationID
	pending []Change // guarded by c.mu, as are the others
	count   int64
	plan    int64 // the count of the newest change that has a plan
}

// Take returns the changes since the last call, and the Count that they end at.
func (f *Feed) Take() ([]Change, int64) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	taken := f.pending
	f.pending = nil
	return taken, f.count
}

// Count returns how many changes there were since the beginning of the feed, taken or not.
func (f *Feed) Count() int64 {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.count
}

// NewestPlan returns the Count at which the newest plan ended; 0 when there was none since the
// beginning of the feed.
func (f *Feed) NewestPlan() int64 {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.plan
}

// IsEmpty reports whether there is nothing to take.
func (f *Feed) IsEmpty() bool {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return len(f.pending) == 0
}

// Follow returns all that is recorded of an operation as one change, and a feed of what changes
// after it. A later Follow of the same operation replaces the feed. ErrNotFound when there is no
// such operation.
func (c *Catalog) Follow(ctx context.Context, id OperationID) (Change, *Feed, error) {
	feed := &Feed{c: c, id: id}
	var all Change
	// A writing transaction: no other one is between the export and the beginning of the feed.
	err := c.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketOperations).Bucket([]byte(id))
		if b == nil {
			return ErrNotFound
		}
		var err error
		if all, err = exportOperation(b); err != nil {
			return err
		}
		tx.OnCommit(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.feeds[id] = feed
		})
		return nil
	})
	if err != nil {
		return Change{}, nil, fmt.Errorf("follow operation %s: %w", id, err)
	}
	return all, feed, nil
}

// Close ends the feed. A feed that has replaced it goes on.
func (f *Feed) Close() {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.c.feeds[f.id] == f {
		delete(f.c.feeds, f.id)
	}
}

// publish appends a change to the feed of its operation, if there is one. It runs after the
// commit.
func (c *Catalog) publish(id OperationID, change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if feed := c.feeds[id]; feed != nil {
		feed.pending = append(feed.pending, change)
		feed.count++
		if len(change.Documents) > 0 {
			feed.plan = feed.count
		}
	}
}

// exportOperation returns all that is recorded of an operation.
func exportOperation(b *bolt.Bucket) (Change, error) {
	op, err := decodeOperation(b.Get(keyRecord))
	if err != nil {
		return Change{}, err
	}
	op.Progress = nil
	all := Change{Operation: &op, Units: map[string]UnitState{}}
	for name, add := range map[string]func(k, v []byte) error{
		string(bucketUnits): func(k, v []byte) error {
			all.Units[string(k)] = UnitState(v)
			return nil
		},
		string(bucketSteps): func(_, v []byte) error {
			step, err := decodeStep(v)
			all.Steps = append(all.Steps, step)
			return err
		},
		string(bucketValues): func(k, v []byte) error {
			step, key, err := parseValueKey(k)
			all.Values = append(all.Values, StepValue{Step: step, Key: key, Data: bytes.Clone(v)})
			return err
		},
		string(bucketEvents): func(_, v []byte) error {
			e, err := decodeEvent(v)
			all.Events = append(all.Events, e)
			return err
		},
	} {
		inner, err := operationBucket(b, []byte(name))
		if err == nil {
			err = inner.ForEach(add)
		}
		if err != nil {
			return Change{}, fmt.Errorf("%w: %s: %w", errRecord, name, err)
		}
	}
	return all, b.ForEachBucket(func(name []byte) error {
		if !isDocument(name) {
			return nil
		}
		d, err := exportDocument(b.Bucket(name), string(name))
		all.Documents = append(all.Documents, d)
		return err
	})
}

func isDocument(name []byte) bool {
	return bytes.Equal(name, bucketPlan) || bytes.HasPrefix(name, batchPrefix)
}

func exportDocument(b *bolt.Bucket, name string) (Document, error) {
	info, err := decodePlanInfo(b.Get(keyPlanInfo))
	d := Document{Name: name, Info: info}
	for i := range info.Chunks {
		chunk := b.Get(sequenceKey(uint64(i)))
		if chunk == nil {
			return d, fmt.Errorf("%w: chunk %d of %s is missing", errRecord, i, name)
		}
		d.Chunks = append(d.Chunks, bytes.Clone(chunk))
	}
	return d, err
}

// errIncomplete means that the changes of an import do not begin with a whole record.
var errIncomplete = errors.New("the mirror does not hold a whole record of the operation")

// Import makes the record of an operation from the changes that another catalog published, the
// first of which is what Follow returned. It replaces a record of that operation, which must not
// be running in this process. adjust may change the record as it is stored. state says which
// records of the mirror that was.
func (c *Catalog) Import(ctx context.Context, id OperationID, changes []Change, state MirrorState,
	adjust func(*Operation)) (Operation, error) {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		operations := tx.Bucket(bucketOperations)
		if b := operations.Bucket([]byte(id)); b != nil {
			if old, err := decodeOperation(b.Get(keyRecord)); err == nil && old.State == Running {
				return fmt.Errorf("operation %s is running: %w", id, ErrExists)
			}
			err := errors.Join(unindex(tx, id), operations.DeleteBucket([]byte(id)))
			if err != nil {
				return err
			}
		}
		b, err := makeOperation(operations, id)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if err := applyChange(b, change); err != nil {
				return err
			}
		}
		op, err := decodeOperation(b.Get(keyRecord))
		if err != nil || op.ID != id {
			return errIncomplete
		}
		if err := dropPartialDocuments(b); err != nil {
			return err
		}
		adjust(&op)
		op.ID = id
		if op.State == Running {
			return fmt.Errorf("import operation %s: it cannot be running here", id)
		}
		if err := putJSON(b, keyMirror, state); err != nil {
			return err
		}
		tx.OnCommit(c.notify)
		if err := tx.Bucket(bucketOperationIndex).Put(op.indexKey(), []byte{}); err != nil {
			return err
		}
		return putJSON(b, keyRecord, op)
	})
	if err != nil {
		return Operation{}, fmt.Errorf("import operation: %w", err)
	}
	return c.Operation(ctx, id)
}

// applyChange writes a change that somebody else made. Every record is checked as one that is read
// from the file.
func applyChange(b *bolt.Bucket, change Change) error {
	o := opTx{b: b}
	if change.Operation != nil {
		if err := change.Operation.check(); err != nil {
			return err
		}
		op := *change.Operation
		op.Units, op.Progress = nil, nil
		if err := putJSON(b, keyRecord, op); err != nil {
			return err
		}
	}
	for unit, state := range change.Units {
		if err := o.putUnit(unit, state); err != nil {
			return err
		}
	}
	for _, v := range change.Values {
		step, err := ParseStep(v.Step)
		if err != nil {
			return err
		}
		if v.Key == "" || !json.Valid(v.Data) {
			return fmt.Errorf("value %q of step %s: want a key and JSON", v.Key, v.Step)
		}
		if err := o.putValues(step, []Value{{Key: v.Key, Data: v.Data}}); err != nil {
			return err
		}
	}
	for _, step := range change.Steps {
		if err := step.check(); err != nil {
			return err
		}
		if step.State == StepUndone {
			if err := o.deleteValues(step.Step); err != nil {
				return err
			}
		}
		if err := o.putStep(step); err != nil {
			return err
		}
	}
	if err := applyEvents(b, change.Events); err != nil {
		return err
	}
	return applyDocuments(b, change.Documents)
}

func applyEvents(b *bolt.Bucket, list []Event) error {
	events, err := operationBucket(b, bucketEvents)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := e.check(); err != nil {
			return err
		}
		if err := putJSON(events, sequenceKey(uint64(e.Seq)), e); err != nil {
			return err
		}
		if uint64(e.Seq) > events.Sequence() {
			if err := events.SetSequence(uint64(e.Seq)); err != nil {
				return err
			}
		}
	}
	return nil
}

func applyDocuments(b *bolt.Bucket, documents []Document) error {
	for _, d := range documents {
		if !isDocument([]byte(d.Name)) || len(d.Name) > maxDocumentName {
			return fmt.Errorf("document %.80q: no such name", d.Name)
		}
		if err := d.Info.check(); err != nil {
			return err
		}
		if d.First == 0 && b.Bucket([]byte(d.Name)) != nil { // it replaces an earlier one
			if err := b.DeleteBucket([]byte(d.Name)); err != nil {
				return err
			}
		}
		inner, err := b.CreateBucketIfNotExists([]byte(d.Name))
		if err != nil {
			return err
		}
		for i, chunk := range d.Chunks {
			if d.First < 0 || d.First+i >= d.Info.Chunks || len(chunk) > chunkSize {
				return fmt.Errorf("document %s: no chunk %d of %d bytes", d.Name, d.First+i, len(chunk))
			}
			if err := inner.Put(sequenceKey(uint64(d.First+i)), chunk); err != nil {
				return err
			}
		}
		if err := putJSON(inner, keyPlanInfo, d.Info); err != nil {
			return err
		}
	}
	return nil
}

const maxDocumentName = 64

// dropPartialDocuments deletes documents that lack chunks: the host was lost while it wrote them,
// and no step was begun by them.
func dropPartialDocuments(b *bolt.Bucket) error {
	var partial [][]byte
	err := b.ForEachBucket(func(name []byte) error {
		if !isDocument(name) {
			return nil
		}
		inner := b.Bucket(name)
		info, err := decodePlanInfo(inner.Get(keyPlanInfo))
		for i := range info.Chunks {
			if inner.Get(sequenceKey(uint64(i))) == nil {
				partial = append(partial, bytes.Clone(name))
				break
			}
		}
		return err
	})
	for _, name := range partial {
		if err == nil {
			err = b.DeleteBucket(name)
		}
	}
	return err
}

func putJSON(b *bolt.Bucket, key []byte, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put(key, value)
}
