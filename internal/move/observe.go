package move

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// observe watches the Machines of all units that were retired on the source, for one
// Tuning.Observe.
func (m *run) observe(ctx context.Context) error {
	if m.Tuning.Observe <= 0 || len(m.batches) == 0 {
		return nil
	}
	plan, contents := m.retired()
	return restore.Observe(ctx, restore.RunOptions{
		Plan: &plan, Contents: contents, Modifiers: m.Modifiers, Reader: m.Target.Reader,
		Kinds: m.Target.Kinds, Rows: m.Rows,
		Operation: m.Operation, Journal: m.Journal, Tuning: m.Tuning,
	})
}

// retired returns a plan with the units of all batches that were retired, and their contents. A
// unit that was given back once is in several batches: the last one moved it.
func (m *run) retired() (restore.Plan, contentsOfBatches) {
	last := map[string]*batch{}
	for _, b := range m.batches {
		for _, u := range b.Copy.Units {
			if m.results.retired[u.Name] && !u.Blocked {
				last[u.Name] = b
			}
		}
	}
	plan, contents := m.batches[0].Copy, contentsOfBatches{}
	plan.Units, plan.Shared, plan.Blocked = nil, restore.Unit{}, false
	for _, b := range m.batches {
		for _, u := range b.Copy.Units {
			if last[u.Name] != b {
				continue
			}
			plan.Units = append(plan.Units, u)
			for _, o := range u.Objects {
				if b.contents != nil {
					contents[o.Ref] = b.contents
				}
			}
		}
	}
	return plan, contents
}

// contentsOfBatches are the contents of the objects of several batches.
type contentsOfBatches map[object.Ref]restore.Contents

// Bytes implements restore.Contents.
func (c contentsOfBatches) Bytes(ref object.Ref) ([]byte, error) {
	of, ok := c[ref]
	if !ok {
		return nil, fmt.Errorf("%s was moved by an earlier run: %w", ref, snapshot.ErrNotLoaded)
	}
	return of.Bytes(ref)
}

// Drop implements restore.Contents. What is observed is read until the end.
func (contentsOfBatches) Drop(object.Ref) {}
