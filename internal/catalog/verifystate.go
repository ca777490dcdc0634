package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/store"
)

var bucketVerifies = []byte("verifies")

// VerifyState is what the daemon records of the verifies that it begins by itself: those of the
// newest snapshot of one source in one location, at one level.
type VerifyState struct {
	// Name is "<location>/<source>", and "<location>/<source>/full" for the rarer full verifies.
	Name string `json:"name"`
	// LastRun is when the last verify began, LastSuccess when the last one began that found the
	// snapshot good; zero when there was none.
	LastRun     time.Time `json:"lastRun,omitzero"`
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// LastError says why the last verify that ended did not find the snapshot good; empty when it
	// did.
	LastError string `json:"lastError,omitempty"`
	// LastOperation is the operation of the last verify.
	LastOperation OperationID `json:"lastOperation,omitempty"`
	// Cycle is the place of the verifies of what any snapshot of the source names. It is with the
	// state "<location>/<source>".
	Cycle VerifyCycle `json:"cycle,omitzero"`
}

// VerifyCycle is the place in a cycle of passes, each of which reads another subset of everything
// that any snapshot of a source names.
type VerifyCycle struct {
	// Of is how many passes this cycle has; Done is how many have come to a result.
	Of   int `json:"of,omitempty"`
	Done int `json:"done,omitempty"`
	// LastPass is when the last pass began that came to a result.
	LastPass time.Time `json:"lastPass,omitzero"`
	// Completed is when the last complete cycle ended; zero when none did.
	Completed time.Time `json:"completed,omitzero"`
	// Count is how many keys were damaged or missing as of the last pass, Damaged are the first of
	// them.
	Count   int         `json:"count,omitempty"`
	Damaged []store.Key `json:"damaged,omitempty"`
}

// Subset returns the subset that the next pass reads when a cycle has this many passes. A cycle of
// another number begins from the start: its parts would not complete those that were read.
func (c VerifyCycle) Subset(of int) store.Subset {
	if c.Of != of || c.Done < 0 || c.Done >= of {
		return store.Subset{Part: 1, Of: of}
	}
	return store.Subset{Part: c.Done + 1, Of: of}
}

// Passed records that the pass of a subset came to a result.
func (c *VerifyCycle) Passed(s store.Subset, began, ended time.Time) {
	c.Of, c.Done, c.LastPass = s.Of, s.Part, began
	if s.Part == s.Of {
		c.Done, c.Completed = 0, ended
	}
}

func (s VerifyState) check() error {
	if s.Name == "" {
		return errors.New("verify has no name")
	}
	return nil
}

// VerifyState returns what is recorded of the verifies of this name. ErrNotFound when nothing is.
func (c *Catalog) VerifyState(ctx context.Context, name string) (VerifyState, error) {
	var state VerifyState
	err := c.view(ctx, func(tx *bolt.Tx) (err error) {
		state, err = getState[VerifyState](tx, bucketVerifies, name)
		return err
	})
	if err != nil {
		return VerifyState{}, fmt.Errorf("get state of verify %q: %w", name, err)
	}
	return state, nil
}

// UpdateVerify changes what is recorded of the verifies of this name, or makes the record, and
// returns it. change must only assign: it may run more than once. UpdateVerify ignores the end of
// the context.
func (c *Catalog) UpdateVerify(ctx context.Context, name string, change func(*VerifyState)) (
	VerifyState, error) {
	var state VerifyState
	err := c.update(context.WithoutCancel(ctx), func(tx *bolt.Tx) error {
		stored, err := getState[VerifyState](tx, bucketVerifies, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		change(&stored)
		stored.Name, stored.LastError = name, shorten(stored.LastError)
		state = stored
		return putState(tx, bucketVerifies, name, stored)
	})
	if err != nil {
		return VerifyState{}, fmt.Errorf("update verify %q: %w", name, err)
	}
	return state, nil
}

func checkVerifies(tx *bolt.Tx, report func(error)) {
	report(tx.Bucket(bucketVerifies).ForEach(func(k, v []byte) error {
		s, err := decode[VerifyState]("verifies", v)
		if err == nil && s.Name != string(k) {
			err = fmt.Errorf("verify %q: stored under %q", s.Name, k)
		}
		report(err)
		return nil
	}))
}

// oldVerifyPrefix began the names of verify states while they were in the bucket of schedules. The
// name of a schedule contains no slash.
const oldVerifyPrefix = "verify/"

// moveVerifies moves the states of verifies out of the bucket of schedules into their own. It drops
// a damaged one: the daemon then verifies once more than needed.
func moveVerifies(tx *bolt.Tx) error {
	if _, err := tx.CreateBucketIfNotExists(bucketVerifies); err != nil {
		return err
	}
	schedules := tx.Bucket(bucketSchedules)
	old := map[string]VerifyState{}
	err := schedules.ForEach(func(k, v []byte) error {
		if !strings.HasPrefix(string(k), oldVerifyPrefix) {
			return nil
		}
		state, err := decode[VerifyState]("schedules", v)
		if err != nil {
			state = VerifyState{}
		}
		old[string(k)] = state
		return nil
	})
	for key, state := range old {
		err = errors.Join(err, schedules.Delete([]byte(key)))
		if state.Name != "" {
			state.Name = strings.TrimPrefix(key, oldVerifyPrefix)
			err = errors.Join(err, putState(tx, bucketVerifies, state.Name, state))
		}
	}
	return err
}
