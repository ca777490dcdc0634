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

// ScheduleState is what the daemon remembers of a schedule. What the schedule is stands in the
// configuration.
type ScheduleState struct {
	Name string `json:"name"`
	// Seen is when the daemon first knew of it.
	Seen time.Time `json:"seen"`
	// Paused overrides the configuration; nil when nobody paused or resumed it. It holds while the
	// configuration says what it said then, ConfigPaused.
	Paused       *bool `json:"paused,omitempty"`
	ConfigPaused bool  `json:"configPaused,omitempty"`
	// LastRun and LastSuccess are when the last run, and the last one that succeeded, began; zero
	// when there was none.
	LastRun     time.Time `json:"lastRun,omitzero"`
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// LastError says why the last run that ended did not succeed; empty when it did.
	LastError string `json:"lastError,omitempty"`
	// LastOperation is the operation of the last run; empty when it could not begin.
	LastOperation OperationID `json:"lastOperation,omitempty"`
}

func (s ScheduleState) check() error {
	if s.Name == "" {
		return errors.New("schedule has no name")
	}
	return nil
}

// UpdateSchedule changes what is remembered of a schedule, or begins to, and returns it. change
// must only assign: it may run more than once. The end of the context is not heeded: a run that was
// cancelled is on record all the same.
func (c *Catalog) UpdateSchedule(ctx context.Context, name string, change func(*ScheduleState)) (
	ScheduleState, error) {
	var state ScheduleState
	err := c.update(context.WithoutCancel(ctx), func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketSchedules)
		state = ScheduleState{Seen: c.now()}
		if value := b.Get([]byte(name)); value != nil {
			var err error
			if state, err = decode[ScheduleState]("schedule", value); err != nil {
				return err
			}
		}
		if change != nil {
			change(&state)
		}
		state.Name, state.LastError = name, shorten(state.LastError)
		if err := state.check(); err != nil {
			return err
		}
		value, err := json.Marshal(state)
		if err != nil {
			return err
		}
		return b.Put([]byte(name), value)
	})
	if err != nil {
		return ScheduleState{}, fmt.Errorf("update schedule %q: %w", name, err)
	}
	return state, nil
}

func checkSchedules(tx *bolt.Tx, report func(error)) {
	report(tx.Bucket(bucketSchedules).ForEach(func(k, v []byte) error {
		s, err := decode[ScheduleState]("schedule", v)
		if err == nil && s.Name != string(k) {
			err = fmt.Errorf("schedule %q: stored under %q", s.Name, k)
		}
		report(err)
		return nil
	}))
}
