package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// seal makes the next record from the beginning of the queue, and notes its hash, by which this
// host knows its own record after a crash.
func (m *Mirror) seal(ctx context.Context) error {
	batch, left := m.queue[:1], m.queue[1:]
	size := len(batch[0].text)
	for len(left) > 0 && !left[0].whole && size+len(left[0].text) <= mostText {
		size += len(left[0].text)
		batch, left = m.queue[:len(batch)+1], left[1:]
	}
	text, err := json.Marshal(recordText(batch, len(left) > 0))
	if err != nil {
		return err
	}
	op, err := m.Catalog.Operation(ctx, m.id)
	if err != nil {
		return err
	}
	head := store.OperationHead{Host: m.Host, Time: time.Now(), Kind: string(op.Kind),
		State: string(op.State), Previous: m.state.Last, Source: op.Source.Name,
		Target: op.Target.Name, Snapshot: op.SnapshotID,
		Final: op.Settled(), GivenUp: op.GivenUp, Whole: batch[0].whole}
	for _, p := range batch {
		if p.state.ID != "" {
			head.State, head.Final = string(p.state.State), p.state.Settled()
			head.GivenUp = p.state.GivenUp
			m.runs = p.state.Runs
		}
	}
	sealed, err := m.Store.SealOperationRecord(string(m.id), m.state.Seq+1, head, text)
	if err != nil {
		return err
	}
	state := m.state
	state.Next = sealed.SHA256
	if err := m.Catalog.SetMirror(ctx, m.id, state); err != nil {
		return err
	}
	m.state, m.sealed, m.sealedAt, m.queue = state, &sealed, time.Now(), left
	return nil
}

// checkLast makes sure that the record before the sealed one is in the store, unless it was written
// a moment ago. When another host has ended the operation, a prune may have removed its records
// since, and the next number of this host is free again.
func (m *Mirror) checkLast(ctx context.Context) error {
	m.mu.Lock()
	written := m.written
	m.mu.Unlock()
	if m.state.Seq == 0 || !isOld(written) {
		return nil
	}
	last := m.sealed.Key
	last.Seq = m.state.Seq
	_, err := m.Store.GetOperationHead(ctx, last)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &RemovedError{Operation: m.id, Newest: m.state.Seq - 1, Wrote: m.state.Seq}
	case ctx.Err() != nil, errors.Is(err, store.ErrUnreachable):
		return err
	}
	return nil // it is there; whether this host trusts its own key does not matter
}

// put writes the sealed record.
func (m *Mirror) put(ctx context.Context) error {
	if err := m.checkLast(ctx); err != nil {
		return err
	}
	err := m.Store.PutOperationRecord(ctx, *m.sealed)
	switch {
	case err == nil:
		m.state.Seq, m.state.Last, m.state.Next = m.state.Seq+1, m.sealed.SHA256, ""
		m.mu.Lock()
		m.written = m.sealedAt // not later: the answer may be read long after it was given
		m.mu.Unlock()
		m.sealed, m.sealedAt = nil, time.Time{}
		if m.runs <= m.state.Runs {
			return nil
		}
		// The lock of this run may come next: a crash after it must not lose that the store knows of it.
		m.state.Runs = m.runs
		return m.Catalog.SetMirror(ctx, m.id, m.state)
	case errors.Is(err, store.ErrExists):
		return m.fence(ctx)
	case m.state.Seq == 0 && errors.Is(err, store.ErrDenied):
		// Nothing can be written there: no other host will find the operation, and none is fenced
		// out.
		m.unable = true
		m.feed.Close()
		m.Unable(err)
		return m.Catalog.SetMirror(ctx, m.id, catalog.MirrorState{Imported: m.state.Imported})
	case IsUnable(err):
		if err := m.giveUp(ctx, err); err != nil {
			return err
		}
		m.unable = true
		m.feed.Close()
		return nil
	}
	return fmt.Errorf("mirror operation %s: %w", m.id, err)
}

// fence ends the run: another host has written the next number.
func (m *Mirror) fence(ctx context.Context) error {
	fenced := fencedBy(ctx, m.Store, m.id)
	m.mu.Lock()
	m.fenced = fenced
	m.mu.Unlock()
	m.Lost(fenced)
	return fenced
}

// checkNext makes sure that the next number is free.
func (m *Mirror) checkNext(ctx context.Context) error {
	next := store.OperationRecordKey{Operation: string(m.id), Seq: m.state.Seq + 1}
	asked := time.Now()
	_, err := m.Store.GetOperationHead(ctx, next)
	switch {
	case errors.Is(err, store.ErrNotFound):
		m.mu.Lock()
		m.written = asked
		m.mu.Unlock()
		return nil
	case ctx.Err() != nil, errors.Is(err, store.ErrUnreachable):
		return err
	}
	return m.fence(ctx)
}

// giveUp lets the run go on without records if the operator wants it and the newest one is of this
// host: another host that has taken over would have written a newer one. Otherwise it returns an
// *UnwritableError. The locks of this run are known to be of this host from then on, also while the
// store does not answer: no other host reaches their number (outbid).
func (m *Mirror) giveUp(ctx context.Context, why error) error {
	own := m.state.Seq > m.state.From
	if !m.GiveUp || !own {
		return &UnwritableError{Operation: m.id, Own: own, Err: why}
	}
	op, err := m.Catalog.Operation(ctx, m.id)
	if err != nil {
		return err
	}
	state, err := m.Catalog.Mirror(ctx, m.id)
	if err != nil {
		return err
	}
	if state.Runs = op.Runs; op.State != catalog.Running {
		state.Runs++ // it begins after this
	}
	if err := m.Catalog.SetMirror(ctx, m.id, state); err != nil {
		return err
	}
	m.Unable(why)
	return nil
}

// outbid gives the next run a number that no host reaches which takes over from an old record. The
// lock of a move on its source has that number, and yields to a higher one only.
func (m *Mirror) outbid(ctx context.Context) error {
	return m.Catalog.UpdateOperation(ctx, m.id, func(op *catalog.Operation) {
		op.Runs += 1000
	})
}
