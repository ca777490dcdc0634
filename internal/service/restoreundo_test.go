package service

import (
	"context"
	"errors"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestI1ARollbackOnAnotherHostLeavesAnOwnerThatWasNeverClaimedFrom: a restore that may claim from
// anybody was lost with its host before it claimed a workload cluster of a third management
// cluster. Another host does not know whether it did: its rollback writes a record that keeps a
// late claim out, and that names the owner still.
func TestI1ARollbackOnAnotherHostLeavesAnOwnerThatWasNeverClaimedFrom(t *testing.T) {
	unit := restore.Unit{Name: "team-a/web", WorkloadID: "0c6f3d54-5a3a-4f4b-8b9e-0f6f3a5d2c11"}
	side := func(name string) object.Side { return object.Side{Name: name, UID: name} }
	for name, tt := range map[string]struct {
		planned string // who has it by the record at planning
		claimed bool
		died    bool   // an earlier rollback, right after its record
		owner   string // after the rollback
		epoch   int64
	}{"never claimed": {"third", false, false, "third", 2},
		"claimed, its step lost":        {"third", true, false, "prod", 3},
		"the target's, and it had died": {"next", false, true, "next", 2}} {
		t.Run(name, func(t *testing.T) {
			m := newMirroredHosts(t)
			a, c, st := m.host()
			q := ownership.Request{WorkloadID: unit.WorkloadID, Workload: unit.Name, From: side(tt.planned),
				To: side(tt.planned), Operation: "earlier"}
			if err := ownership.Claim(t.Context(), st, q); err != nil {
				t.Fatal(err)
			}
			id := newMirroredRun(t, c, st)
			run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st},
				func(ctx context.Context, j *catalog.Journal) error { return doStep(ctx, j, "pause") })
			if err == nil {
				err = run.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
			plan := restore.Plan{Target: side("next"), Epochs: map[string]int64{unit.WorkloadID: 1},
				Snapshot: restore.Snapshot{Source: side("prod")},
				Spec:     restore.Spec{Force: object.Forced{object.CodeOwnedElsewhere: ""}}}
			if tt.claimed {
				if err := ownership.Claim(t.Context(), st, claim(c.Journal(id,
					catalog.JournalOptions{}), &plan, unit)); err != nil {
					t.Fatal(err)
				}
			}
			_, other, otherStore := m.host()
			if _, err := mirror.Import(t.Context(), other, m.withIdentity(), "", id); err != nil {
				t.Fatal(err)
			}
			if _, err := other.SetState(t.Context(), id, catalog.Running, catalog.Outcome{}); err != nil {
				t.Fatal(err)
			}
			u := &restoreUndo{store: otherStore, catalog: other, stored: storedRestore{Plan: plan},
				journal: other.Journal(id, catalog.JournalOptions{})}
			if tt.died {
				_ = u.journal.Undo(t.Context(), ownStep(unit.Name), func(ctx context.Context,
					h *catalog.StepHandle) error {
					q := claim(u.journal, &plan, unit)
					var err error
					q.From, err = u.neverClaimed(ctx, h, q)
					return errors.Join(err, ownership.GiveBack(ctx, otherStore, q), errors.New("it died"))
				})
			}
			for range 2 { // it may run again
				if err := u.giveBack(t.Context(), unit); err != nil {
					t.Fatal(err)
				}
			}
			have, err := ownership.Read(t.Context(), st, unit.WorkloadID)
			if err != nil || have.By.Name != tt.owner || have.Epoch != tt.epoch {
				t.Errorf("the record names %s, epoch %d, %v; want %s, %d", have.By.Name, have.Epoch, err,
					tt.owner, tt.epoch)
			}
		})
	}
}

// TestARollbackThatIsStoppedStaysOne: one workload cluster was released, and the rollback is
// stopped while it gives back the other one. What somebody asked to undo is not restored by a
// resume. A policy of the target that cannot be armed holds up nothing.
func TestARollbackThatIsStoppedStaysOne(t *testing.T) {
	f := newOwnedFixture(t, true)
	var err error
	if f.target, err = kube.Connect(t.Context(), kubeconfigOf(t, "b",
		answering(t, "uid-b").URL)); err != nil {
		t.Fatal(err)
	}
	f.plan.Units = []restore.Unit{{Name: "team-a/released", WorkloadID: "w"}, ownedUnit,
		{Name: "team-a/two", WorkloadID: "workload-2"}}
	if err := errors.Join(f.own(t.Context(), f.journal, f.plan, ownedUnit),
		f.own(t.Context(), f.journal, f.plan, f.plan.Units[2]),
		recordDenied(t.Context(), f.journal, ownedUnit, "workload-1"),
		f.journal.SetUnit(t.Context(), "team-a/released", catalog.UnitReleased, "")); err != nil {
		t.Fatal(err)
	}
	id := f.journal.Operation()
	ctx, stop := context.WithCancel(t.Context())
	j := f.catalog.Journal(id, catalog.JournalOptions{
		OnStep: func(_ context.Context, r catalog.StepRecord) error {
			if r.Step == ownStep(ownedUnit.Name) {
				stop()
			}
			return nil
		}})
	u := &restoreUndo{target: f.target, store: f.store, catalog: f.catalog, journal: j,
		stored: storedRestore{Plan: *f.plan}}
	if err := u.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	op, err := f.catalog.Operation(t.Context(), id)
	if err != nil || !op.Back || op.Units["team-a/two"] == catalog.UnitRolledBack {
		t.Errorf("back %t, units %v, %v", op.Back, op.Units, err)
	}
	warned := false
	for e, err := range f.catalog.Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		warned = warned || e.Finding != nil && e.Finding.Code == object.CodePolicyNotArmed
	}
	if !warned {
		t.Error("there is no finding that the admission policy of the target could not be armed")
	}
}
