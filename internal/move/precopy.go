package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// This file copies the units of a batch to the target while the source still works on them, so
// that their pause has to copy no more than what has changed since. A pre-copy is paused, and
// nothing but a batch ever releases it. Its plan is stored before anything is written: the next run
// goes on with a pre-copy that no batch has taken over. It is removed by a rollback, and when its
// unit is given back.

// preCopies are what a run knows of them.
type preCopies struct {
	plans []*batch
	// uids are the objects on the target that pre-copies of this run created, by unit.
	uids map[string]map[object.Ref]string
	// removable are the kinds and namespaces of which the target would let remove a copy again.
	removable map[object.Ref]bool
}

func preCopyName(number int) string { return fmt.Sprintf("pre-copy-%03d", number) }

// preCopySuffix ends the names of the steps of a pre-copy that belong to no unit.
func preCopySuffix(number int) string { return fmt.Sprintf("-p%d", number) }

// readOnly are contents that several plans read: none of them drops an object.
type readOnly struct{ *snapshot.Contents }

// Drop implements restore.Contents.
func (readOnly) Drop(object.Ref) {}

// preCopy copies units that are locked, and returns the contents from which it did: nil when an
// earlier run has copied a part of them. Units that it cannot copy are copied in their pause: that
// is a warning, and no error.
func (m *run) preCopy(ctx context.Context, units []string, from look,
	written *meeting) *snapshot.Contents {
	var contents *snapshot.Contents
	fresh := units
	wide := look{captures: m.captures, since: from.since} // such a plan may share what is with others
	for _, p := range m.preCopiesOf(units) {
		begun := p.units()
		fresh = slices.DeleteFunc(slices.Clone(fresh),
			func(unit string) bool { return slices.Contains(begun, unit) })
		m.copyBefore(ctx, begun, wide, p, written)
	}
	if len(fresh) > 0 && ctx.Err() == nil {
		contents = m.copyBefore(ctx, fresh, from, nil, written)
	}
	if len(fresh) < len(units) {
		return nil
	}
	return contents
}

// preCopiesOf returns the pre-copies that have some of units, each with these alone.
func (m *run) preCopiesOf(units []string) []*batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	var of []*batch
	for _, p := range m.pre.plans {
		some := *p
		some.Copy.Units = slices.DeleteFunc(slices.Clone(p.Copy.Units), func(u restore.Unit) bool {
			return u.Blocked || !slices.Contains(units, u.Name)
		})
		if len(some.Copy.Units) > 0 {
			of = append(of, &some)
		}
	}
	return of
}

// copyBefore copies units by the plan p of an earlier run, or else by a new one, and returns the
// contents from which it did.
func (m *run) copyBefore(ctx context.Context, units []string, from look,
	p *batch, written *meeting) *snapshot.Contents {
	v, err := from.captures.of(ctx, from.since, m.namespacesOf(units[0])) // they go together
	if err == nil && p == nil {
		p, err = m.planPreCopy(ctx, units, v)
	}
	if err == nil && p != nil {
		err = m.runPreCopy(ctx, p, v.contents, written)
	}
	if ctx.Err() != nil {
		return nil
	}
	if _, some := errors.AsType[*restore.IncompleteError](err); err != nil && !some {
		m.warnPreCopy(ctx, "", "workload clusters are copied in their pause, since they could not be "+
			"before: "+err.Error())
	}
	for _, unit := range units {
		m.mu.Lock()
		copied := m.pre.uids[unit] != nil
		m.mu.Unlock()
		if !copied {
			m.removePreCopy(ctx, unit)
		}
	}
	if v == nil {
		return nil
	}
	return v.contents
}

func (m *run) warnPreCopy(ctx context.Context, unit, message string) {
	_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit, object.Finding{
		Severity: object.Warning, Code: object.CodePreCopy, Unit: unit, Message: message}))
}

// planPreCopy plans a pre-copy and stores the plan; nil when it blocks all units, of which the plan
// of the batch says why.
func (m *run) planPreCopy(ctx context.Context, units []string, v *sourceCapture) (*batch, error) {
	owners, err := m.ownersOf(ctx, units)
	if err != nil {
		return nil, err
	}
	plan, err := m.planCopy(ctx, restore.Input{Snapshot: v.source, Contents: readOnly{v.contents},
		Source: restore.Snapshot{Source: m.Plan.Source, Time: v.source.Envelope.Time},
		Spec:   m.specIn(v.graph, units, nil), Owners: owners, Asked: m.askedAbout(units)})
	if err != nil {
		return nil, err
	}
	p := &batch{Number: len(m.pre.plans) + 1, Copy: *plan}
	if plan.Blocked || len(p.units()) == 0 {
		return nil, nil
	}
	if err := m.keep(ctx, preCopyName(p.Number), p); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pre.plans = append(m.pre.plans, p)
	return p, nil
}

// runPreCopy carries out the plan of a pre-copy.
func (m *run) runPreCopy(ctx context.Context, p *batch, contents *snapshot.Contents,
	written *meeting) error {
	tuning := m.Tuning
	tuning.Canary, tuning.Observe, tuning.MaxFailures = "", 0, 0
	return restore.Run(ctx, restore.RunOptions{
		Plan: &p.Copy, Contents: readOnly{contents}, Modifiers: m.Modifiers, Reader: m.Target.Reader,
		Writer: m.Target.Writer, Prober: m.Target.Prober, Kinds: m.Target.Kinds, Rows: m.Rows,
		Operation: m.Operation, Journal: m.Journal, Tuning: tuning,
		Hooks: restore.Hooks{StepSuffix: preCopySuffix(p.Number), RequirePause: true,
			LeaveSharedPaused: true, ReleaseTogether: true,
			OnWritten: func(u restore.Unit) { written.leave(u.Name) },
			OnFailed:  func(_ context.Context, u restore.Unit) { written.leave(u.Name) },
			PreCopy: func(u restore.Unit, uids map[object.Ref]string) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.pre.uids[u.Name] = uids
			}},
	})
}

// loadPreCopies reads the plans of the pre-copies of earlier runs.
func (m *run) loadPreCopies(ctx context.Context) error {
	return m.eachStored(ctx, preCopyName, func(p *batch) error {
		removed := map[string]bool{}
		for _, unit := range p.units() {
			state, err := m.Journal.State(ctx, preCopyRemovedStep(unit, p))
			if err != nil {
				return err
			}
			removed[unit] = state == catalog.StepDone
		}
		p.leave(removed)
		m.pre.plans = append(m.pre.plans, p)
		return nil
	})
}

// removePreCopy removes the pre-copy of a unit, which is copied in its pause, or not at all. One
// that cannot be removed is a warning: it is paused, and a rollback removes it.
func (m *run) removePreCopy(ctx context.Context, unit string) {
	if err := m.undoPreCopy(ctx, unit); err != nil && ctx.Err() == nil {
		m.warnPreCopy(ctx, unit, "what was copied of it before its pause is left on "+m.Target.Name+
			", paused: "+err.Error())
	}
}

// undoPreCopy removes the pre-copies of a unit from the target.
func (m *run) undoPreCopy(ctx context.Context, unit string) error {
	m.mu.Lock()
	delete(m.pre.uids, unit)
	m.mu.Unlock()
	for _, p := range slices.Backward(m.preCopiesOf([]string{unit})) {
		if err := m.Journal.Do(ctx, preCopyRemovedStep(unit, p), func(ctx context.Context,
			_ *catalog.StepHandle) error {
			return m.undoUnits(ctx, p, preCopyHooks(p), unit)
		}); err != nil {
			return err
		}
		m.mu.Lock()
		m.pre.plans[p.Number-1].leave(map[string]bool{unit: true})
		m.mu.Unlock()
	}
	return nil
}

// preCopyRemovedStep is done once nothing of the pre-copy of a unit is left on the target.
func preCopyRemovedStep(unit string, p *batch) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "pre-copy-removed" + preCopySuffix(p.Number)}
}

// preCopyHooks are those by which an undo finds the steps of a pre-copy.
func preCopyHooks(p *batch) restore.Hooks {
	return restore.Hooks{StepSuffix: preCopySuffix(p.Number),
		PreCopy: func(restore.Unit, map[object.Ref]string) {}}
}

// fitting returns the UIDs of the pre-copies of units, for the plan of their batch. A pre-copy with
// an object that is not one of its unit any more is removed: the unit is copied whole.
func (m *run) fitting(ctx context.Context, s *snapshot.Snapshot, units []string) (
	map[object.Ref]string, error) {
	copied := map[object.Ref]string{}
	for _, unit := range units {
		m.mu.Lock()
		uids := m.pre.uids[unit]
		m.mu.Unlock()
		fits := true
		for ref := range uids {
			n := s.Graph.Node(ref)
			fits = fits && n != nil && n.Unit == unit
		}
		if !fits {
			err := m.copyOnceMore(ctx, unit, "an object of it is gone from the source since it was copied")
			if err != nil {
				return nil, err
			}
			continue
		}
		for ref, uid := range uids {
			copied[ref] = uid
		}
	}
	return copied, nil
}

// copiedOf returns the UIDs of what the pre-copies of units have created.
func (m *run) copiedOf(units []string) map[object.Ref]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	copied := map[object.Ref]string{}
	for _, unit := range units {
		maps.Copy(copied, m.pre.uids[unit])
	}
	return copied
}

// copyOnceMore removes the pre-copy of a unit, which is then copied whole in its pause.
func (m *run) copyOnceMore(ctx context.Context, unit, why string) error {
	m.warnPreCopy(ctx, unit, why+": it is copied once more, in its pause")
	if err := m.undoPreCopy(ctx, unit); err != nil {
		return fmt.Errorf("remove what was copied of %s before its pause: %w", unit, err)
	}
	return nil
}

// planUpdate plans the copy of a batch. A unit of which the target refuses an update is planned
// without its pre-copy, which is removed: a webhook that does not allow to change an object often
// allows to create it as it is now.
func (m *run) planUpdate(ctx context.Context, in restore.Input) (*restore.Plan, error) {
	plan, err := m.planCopy(ctx, in)
	if err != nil {
		return nil, err
	}
	again := false
	for _, f := range plan.Findings {
		if f.Code != object.CodeRefusedByTarget || f.Severity < object.Error ||
			in.Copied[f.Ref] == "" { // or another object of its unit was refused before
			continue
		}
		again = true
		m.mu.Lock()
		uids := m.pre.uids[f.Unit]
		m.mu.Unlock()
		if err := m.copyOnceMore(ctx, f.Unit, f.Ref.String()+": "+f.Message); err != nil {
			return nil, err
		}
		for ref := range uids {
			delete(in.Copied, ref)
		}
	}
	if !again {
		return plan, nil
	}
	in.Reader = nil // that of the plan may remember what was removed
	return m.planCopy(ctx, in)
}
