package move

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// This file goes on with a move whose source does not answer. Only units that are handed over go
// on: the ownership record names the target, so that a source which comes back finds out that they
// are not its own (I1). The others need the source, which may have changed since.

// SourceLeftError means that units are released on the target, and that their objects are left on
// the source, which does not answer. A resume that reaches the source retires them.
type SourceLeftError struct {
	Source   string
	Released int // units
	Waiting  int // units that were not handed over
}

func (e *SourceLeftError) Error() string {
	if e.Released+e.Waiting == 0 {
		return "all workload clusters have moved, and what workload clusters share waits for " + e.Source
	}
	text := fmt.Sprintf("%d workload clusters are released on the target, and their objects are left "+
		"on %s", e.Released, e.Source)
	if e.Waiting > 0 {
		text += fmt.Sprintf("; %d others were not handed over, and wait for it", e.Waiting)
	}
	return text
}

// Hint says what the operator can do.
func (e *SourceLeftError) Hint() string {
	hint := "resume the operation once more when " + e.Source + " answers, which retires them there"
	if e.Waiting > 0 {
		hint += "; if it is gone for good, forget the operation, remove the paused copies of the " +
			"others by their marks, and restore them from the newest snapshot"
	}
	return hint
}

// HintKey names the command that retires them.
func (e *SourceLeftError) HintKey() object.HintKey { return object.HintResume }

// goForward is GoForward.
func (m *run) goForward(ctx context.Context) error {
	for _, b := range m.batches {
		if err := m.releaseBatch(ctx, b); err != nil {
			return err
		}
		if m.results.stopped {
			break
		}
	}
	if err := m.finishShared(ctx); err != nil {
		m.fail(ctx, "", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	blocked, left := m.blocked(), m.left()
	if m.results.first == nil {
		released := len(m.results.left)
		return &SourceLeftError{Source: m.Source.Name, Released: released, Waiting: left - released}
	}
	return &restore.IncompleteError{Failed: len(m.results.failed), Blocked: blocked, Left: left,
		First: m.results.first, Stopped: m.results.stopped}
}

// releaseBatch releases the units of a batch that this operation handed over. Errors: that of ctx;
// those of the journal and the store.
func (m *run) releaseBatch(ctx context.Context, b *batch) error {
	todo := b.Copy
	todo.Units = nil
	for _, u := range b.Copy.Units {
		by, err := m.handedOverBy(ctx, u)
		if err != nil {
			return err
		}
		if by == m.Operation && !u.Blocked && !m.over(u.Name) {
			todo.Units = append(todo.Units, u)
		}
	}
	if len(todo.Units) == 0 {
		return nil
	}
	if err := m.load(ctx, b); err != nil {
		m.failAll(ctx, todo.Units, err)
		return nil
	}
	healthy, err := m.carryOver(ctx, b, &todo, newFlight(b.units()))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.note(todo.Units, healthy, err)
	for _, u := range healthy {
		m.results.left[u.Name] = true
	}
	return nil
}

// loadFromStore reads the contents of a batch from the snapshot that it was planned from.
func (m *run) loadFromStore(ctx context.Context, b *batch) error {
	key, err := store.ParseEnvelopeKey(b.Copy.Snapshot.Key)
	if err != nil {
		return err
	}
	e, err := m.Store.GetEnvelope(ctx, key)
	if err == nil && m.Store.Encrypted() {
		err = e.RequireTrusted()
	}
	if err != nil {
		return err
	}
	s, err := snapshot.Open(ctx, m.Store, e.Envelope, m.Rows)
	if err != nil {
		return err
	}
	var nodes []*graph.Node
	for _, o := range b.planned() {
		if n := s.Graph.Node(o.Ref); n != nil {
			nodes = append(nodes, n)
		}
	}
	b.contents, err = s.Load(ctx, nodes, nil)
	return err
}
