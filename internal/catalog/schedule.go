package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

var bucketSchedules = []byte("schedules")

// ScheduleState is what the daemon records of a schedule. The schedule itself is in the
// configuration.
type ScheduleState struct {
	Name string `json:"name"`
	// Seen is when the schedule was first recorded.
	Seen time.Time `json:"seen"`
	// Paused overrides the configuration; nil when no operator paused or resumed the schedule. It
	// holds as long as the configuration says what it said then, ConfigPaused.
	Paused       *bool `json:"paused,omitempty"`
	ConfigPaused bool  `json:"configPaused,omitempty"`
	// LastRun and LastSuccess are when the last run, and the last one that succeeded, began; zero
	// when there was none.
	LastRun     time.Time `json:"lastRun,omitzero"`
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// LastSnapshot is the key of the envelope of the last success, and LastScope names the location
	// and the scope that it was for; empty when they are not known.
	LastSnapshot string `json:"lastSnapshot,omitempty"`
	LastScope    string `json:"lastScope,omitempty"`
	// LastError says why the last run that ended did not succeed; empty when it did.
	LastError string `json:"lastError,omitempty"`
	// LastOperation is the operation of the last run; empty when it could not begin.
	LastOperation OperationID `json:"lastOperation,omitempty"`
	// Tries counts the runs that began for the time at which the schedule was last due, none of
	// which succeeded; 0 when the last run succeeded or an operator stopped it.
	Tries int `json:"tries,omitempty"`
}

func (s ScheduleState) check() error {
	if s.Name == "" {
		return errors.New("schedule has no name")
	}
	return nil
}

// ScheduleState returns what is recorded of a schedule. ErrNotFound when nothing is.
func (c *Catalog) ScheduleState(ctx context.Context, name string) (ScheduleState, error) {
	var state ScheduleState
	err := c.view(ctx, func(tx *bolt.Tx) (err error) {
		state, err = getState[ScheduleState](tx, bucketSchedules, name)
		return err
	})
	if err != nil {
		return ScheduleState{}, fmt.Errorf("get state of schedule %q: %w", name, err)
	}
	return state, nil
}

// UpdateSchedule changes what is recorded of a schedule, or makes the record, and returns it.
// change must only assign: it may run more than once. UpdateSchedule ignores the end of the
// context: a run that was cancelled is recorded all the same.
func (c *Catalog) UpdateSchedule(ctx context.Context, name string, change func(*ScheduleState)) (
	ScheduleState, error) {
	var state ScheduleState
	err := c.update(context.WithoutCancel(ctx), func(tx *bolt.Tx) error {
		stored, err := getState[ScheduleState](tx, bucketSchedules, name)
		if errors.Is(err, ErrNotFound) {
			stored.Seen, err = c.now(), nil
		}
		if err != nil {
			return err
		}
		change(&stored)
		stored.Name, stored.LastError = name, shorten(stored.LastError)
		state = stored
		return putState(tx, bucketSchedules, name, stored)
	})
	if err != nil {
		return ScheduleState{}, fmt.Errorf("update schedule %q: %w", name, err)
	}
	return state, nil
}

// getState reads a record by its name. ErrNotFound when there is none.
func getState[T checked](tx *bolt.Tx, bucket []byte, name string) (T, error) {
	value := tx.Bucket(bucket).Get([]byte(name))
	if value == nil {
		var none T
		return none, ErrNotFound
	}
	return decode[T](string(bucket), value)
}

func putState[T checked](tx *bolt.Tx, bucket []byte, name string, state T) error {
	if err := state.check(); err != nil {
		return err
	}
	value, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put([]byte(name), value)
}

func checkSchedules(tx *bolt.Tx, report func(error)) {
	report(tx.Bucket(bucketSchedules).ForEach(func(k, v []byte) error {
		s, err := decode[ScheduleState]("schedules", v)
		if err == nil && s.Name != string(k) {
			err = fmt.Errorf("schedule %q: stored under %q", s.Name, k)
		}
		report(err)
		return nil
	}))
}
