package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
)

const (
	// cycleTime is how long it takes to read everything that any snapshot of a source names.
	cycleTime = 7 * 24 * time.Hour
	// shortestPass is the least time between two passes. Each lists the content of the store and
	// reads all envelopes and trees of the source, which a verify each minute must not repeat.
	shortestPass = time.Hour
)

// cyclePasses returns how far apart the passes of a source are, and how many make a cycle, when
// verifies are due at an interval.
func cyclePasses(every time.Duration) (apart time.Duration, passes int) {
	if every <= 0 {
		every = cycleTime
	}
	apart = (shortestPass + every - 1) / every * every
	return apart, max(1, int(cycleTime/apart))
}

// cyclePass verifies the next part of what all snapshots of a source name, after a verify by
// schedule of the newest ones, and remembers its place. done reports whether it came to a result,
// or was not due; else it is to be done again.
func (s *Server) cyclePass(opened *verifyRun) (done bool, err error) {
	c, source := opened.options.Catalog, opened.source
	name := opened.location + "/" + source.UID
	state, err := c.VerifyState(s.ctx, name)
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return false, err
	}
	began := time.Now().Round(0)
	apart, passes := cyclePasses(s.cfg.Verify.Every)
	if !passDue(state.Cycle.LastPass, began, apart, s.cfg.Verify.Every) {
		return true, nil
	}
	subset := state.Cycle.Subset(passes)
	op, err := c.CreateOperation(s.ctx, catalog.Operation{Kind: catalog.KindVerify, Source: source,
		Store: opened.options.Store.ID(), Location: opened.location})
	if err != nil {
		return false, err
	}
	run, err := s.start(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		result, err := verify.Pass(ctx, verify.PassOptions{Store: opened.options.Store,
			Source: source.UID, Subset: subset, Known: state.Cycle.Damaged, Progress: j.Progress})
		if err != nil {
			return err
		}
		err = j.EmitFindings(ctx, result.Findings)
		if newDamage(state.Cycle.Damaged, result.Damaged) {
			// As after any damage: an incremental snapshot may name the same keys.
			err = errors.Join(err,
				c.ForgetSnapshotState(ctx, opened.options.Store.ID(), source.UID))
		}
		after, updateErr := c.UpdateVerify(ctx, name, func(v *catalog.VerifyState) {
			v.Cycle.Passed(subset, began, time.Now().Round(0))
			v.Cycle.Count, v.Cycle.Damaged = result.Count, result.Damaged
		})
		done = updateErr == nil
		if updateErr == nil && source.Name != "" {
			s.metrics.verifies.cycle(opened.location, source.Name, after.Cycle)
		}
		return errors.Join(result.Err(), err, updateErr)
	})
	if err != nil {
		return false, err
	}
	err = run.Wait()
	return done, err
}

// reportPass logs and counts what a pass ended with, and reports whether it is to be done again.
func (s *Server) reportPass(location, source string, done bool, err error) (again bool) {
	if s.ctx.Err() != nil {
		return !done
	}
	if err != nil {
		s.cfg.Log.Error("verify of what all snapshots name found damage, or did not come to an end",
			"location", location, "source", source, "again", !done, "error", err)
	}
	if !done {
		s.metrics.verifies.ended(store.Verification{})
	}
	return !done
}

// passDue reports whether a pass is due when the last one began at a time. Half an interval is the
// tolerance: a verify is not due at exactly the same time each day. A clock that was ahead delays
// nothing.
func passDue(last, now time.Time, apart, every time.Duration) bool {
	since := now.Sub(last)
	return since < 0 || since >= apart-every/2
}

// newDamage reports whether a key is damaged that was not before.
func newDamage(before, now []store.Key) bool {
	return slices.ContainsFunc(now, func(k store.Key) bool { return !slices.Contains(before, k) })
}
