package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// noUnit replaces the unit in the key of a step without one.
const noUnit = "-"

// Step names one call of Journal.Do: one phase, or one wave of a phase, of one unit.
type Step struct {
	// Unit is the unit, "namespace/name"; empty when the step belongs to no unit.
	Unit string
	// Phase in lower case with dashes, for example create.
	Phase string
	// Wave of the phase, from 1; 0 when the phase has no waves.
	Wave int
}

// String returns the key under which the step is recorded: "namespace/name/create/03",
// "namespace/name/pause", "-/retire". It is the same in each run, so that a resume finds the steps
// that are done.
func (s Step) String() string {
	unit := s.Unit
	if unit == "" {
		unit = noUnit
	}
	if s.Wave == 0 {
		return unit + "/" + s.Phase
	}
	return fmt.Sprintf("%s/%s/%02d", unit, s.Phase, s.Wave)
}

// ParseStep is the reverse of String.
func ParseStep(key string) (Step, error) {
	var s Step
	head := key
	if before, last, ok := cutLast(head); ok && isNumber(last) {
		wave, err := strconv.Atoi(last)
		if err != nil {
			return Step{}, fmt.Errorf("step %q: %w", key, err)
		}
		head, s.Wave = before, wave
	}
	s.Unit, s.Phase, _ = cutLast(head)
	if s.Unit == noUnit {
		s.Unit = ""
	}
	if err := s.check(); err != nil {
		return Step{}, err
	}
	if s.String() != key {
		return Step{}, fmt.Errorf("step %q: want unit/phase or unit/phase/wave", key)
	}
	return s, nil
}

// MarshalText and UnmarshalText let a step appear in JSON as its key.
func (s Step) MarshalText() ([]byte, error) { return []byte(s.String()), s.check() }

// UnmarshalText is the reverse of MarshalText.
func (s *Step) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStep(string(text))
	return err
}

// check returns an error for a step that would share a key with another.
func (s Step) check() error {
	switch {
	case s.Phase == "" || isNumber(s.Phase) ||
		strings.Trim(s.Phase, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return fmt.Errorf("step %q: phase must be lower-case letters, digits and dashes, and no number",
			s.String())
	case s.Wave < 0:
		return fmt.Errorf("step %q: wave must not be negative", s.String())
	case s.Unit == noUnit || strings.Contains(s.Unit, "\x00"):
		return fmt.Errorf("step %q: no such unit", s.String())
	}
	return nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// StepRecord is the record of a step that was begun at least once.
type StepRecord struct {
	Step  Step      `json:"step"`
	State StepState `json:"state"`
	// Attempts counts how often Do began it; one that did not run may be missing. An Undo without a
	// record counts as well: another host may have begun the step.
	Attempts int `json:"attempts"`
	// Begun is when the last Do or Undo began, Ended when it ended; zero while it is in progress.
	Begun time.Time `json:"begun"`
	Ended time.Time `json:"ended,omitzero"`
	// Error is why the last Do or Undo failed.
	Error string `json:"error,omitempty"`
	// NotRun: no Do or Undo has come to its work, since OnStep failed before it each time. Such a step
	// counts as one that was never begun.
	NotRun bool `json:"notRun,omitempty"`
}

func (r StepRecord) check() error {
	if err := r.Step.check(); err != nil {
		return err
	}
	return r.State.check()
}

func decodeStep(value []byte) (StepRecord, error) {
	return decode[StepRecord]("step", value)
}

// Value is something that a step records while it runs, such as the UID of an object that it
// created.
type Value struct {
	Key string
	// Data is JSON, without secrets.
	Data json.RawMessage
}

// Steps returns the records of all steps of an operation that were begun, in the order of their
// keys. ErrNotFound when there is no such operation.
func (c *Catalog) Steps(ctx context.Context, id OperationID) ([]StepRecord, error) {
	var steps []StepRecord
	err := c.viewOperation(ctx, id, bucketSteps, func(b *bolt.Bucket) error {
		return b.ForEach(func(_, v []byte) error {
			record, err := decodeStep(v)
			steps = append(steps, record)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list steps of operation %s: %w", id, err)
	}
	return steps, nil
}

// stepRecord returns nil when the step was never begun.
func (c *Catalog) stepRecord(ctx context.Context, id OperationID, step Step) (record *StepRecord,
	err error) {
	err = c.viewOperation(ctx, id, bucketSteps, func(b *bolt.Bucket) (err error) {
		record, err = getStep(b, step)
		return err
	})
	return record, err
}

func getStep(steps *bolt.Bucket, step Step) (*StepRecord, error) {
	value := steps.Get([]byte(step.String()))
	if value == nil {
		return nil, nil
	}
	record, err := decodeStep(value)
	if err != nil {
		return nil, err
	}
	return &record, nil
}

// viewOperation runs fn, as view does, on a bucket of an operation.
func (c *Catalog) viewOperation(ctx context.Context, id OperationID, name []byte,
	fn func(*bolt.Bucket) error) error {
	return c.view(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketOperations).Bucket([]byte(id))
		if b == nil {
			return ErrNotFound
		}
		inner, err := operationBucket(b, name)
		if err != nil {
			return err
		}
		return fn(inner)
	})
}

func (o *opTx) putStep(record StepRecord) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	steps, err := o.bucket(bucketSteps)
	if err != nil {
		return err
	}
	o.change.Steps = append(o.change.Steps, record)
	return steps.Put([]byte(record.Step.String()), value)
}

func (o *opTx) putValues(step Step, values []Value) error {
	b, err := o.bucket(bucketValues)
	if err != nil {
		return err
	}
	for _, v := range values {
		if err := b.Put(valueKey(step.String(), v.Key), v.Data); err != nil {
			return fmt.Errorf("record %s of %s: %w", v.Key, step, err)
		}
		o.change.Values = append(o.change.Values, StepValue{Step: step.String(), Key: v.Key,
			Data: v.Data})
	}
	return nil
}

// deleteValues deletes the values of a step that is undone: what they describe does not exist any
// more.
func (o *opTx) deleteValues(step Step) error {
	b, err := o.bucket(bucketValues)
	if err != nil {
		return err
	}
	prefix := valuePrefix(step.String())
	var keys [][]byte
	cursor := b.Cursor()
	for k, _ := cursor.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = cursor.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
