//go:build api

package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestAPIRestoreAgainIntoTheSameTarget: after a restore of one workload cluster, a second one of
// the whole namespace adopts it and restores the others, although the ownership record names the
// target by then.
func TestAPIRestoreAgainIntoTheSameTarget(t *testing.T) {
	y := newMoveFixture(t, newTwoClusters(t), "again")
	s, err := newServer(y.order(""))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	taken, err := (&snapshotService{s: s}).CreateSnapshot(t.Context(), &mgmtv1.CreateSnapshotRequest{
		Source: y.source().Name(), Namespaces: []string{y.namespace}})
	must(t, err)
	waitSucceeded(t, s, taken.GetOperation().GetId())
	for i, selection := range []*mgmtv1.Selection{
		{Workloads: []string{y.namespace + "/w-00001"}},
		{Namespaces: []string{y.namespace}},
		{Namespaces: []string{y.namespace}},
	} {
		id := y.restore(s, selection)
		waitSucceeded(t, s, id)
		for _, unit := range allUnits[:1+min(i, 1)*2] {
			record, err := y.store.GetOwner(t.Context(), y.workloadID(unit))
			must(t, err)
			if record.Owner.Owner.UID != y.target().UID() || record.Operation != id {
				t.Errorf("restore %d: the record of %s names %s and operation %s, want %s and %s", i+1, unit,
					record.Owner.Owner.UID, record.Operation, y.target().UID(), id)
			}
		}
	}
}

// TestAPII1ResumedRestoreLeavesAUnitPausedThatAnotherClaimed: a restore dies after its claim, and
// another management cluster claims two of the units. Neither a resume with the signing key nor one
// without it releases them.
func TestAPII1ResumedRestoreLeavesAUnitPausedThatAnotherClaimed(t *testing.T) {
	y := newMoveFixture(t, newTwoClusters(t), "claimed")
	s, err := newServer(y.order(""))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	taken, err := (&snapshotService{s: s}).CreateSnapshot(t.Context(), &mgmtv1.CreateSnapshotRequest{
		Source: y.source().Name(), Namespaces: []string{y.namespace}})
	must(t, err)
	waitSucceeded(t, s, taken.GetOperation().GetId())
	s.seams.onStep = func(_ context.Context, r catalog.StepRecord) error {
		if r.Step.Phase == "release" {
			return errors.New("died before the release")
		}
		return nil
	}
	id := y.restore(s, &mgmtv1.Selection{Namespaces: []string{y.namespace}})
	if op := waitEnded(t, s, id); op.State != catalog.Failed {
		t.Fatalf("%s: %s", op.State, op.Message)
	}
	s.seams.onStep = nil
	for _, unit := range classyUnits {
		record, err := y.store.GetOwner(t.Context(), y.workloadID(unit))
		must(t, err)
		must(t, ownership.Claim(t.Context(), y.store, ownership.Request{
			WorkloadID: y.workloadID(unit), Workload: y.namespace + "/" + unit, Operation: "0123456789ab",
			From: object.Side{Name: y.target().Name(), UID: y.target().UID()}, Epoch: record.Epoch,
			To: object.Side{Name: "c", UID: "11111111-2222-3333-4444-555555555555"}}))
	}
	identity := y.identity()
	for i, signingKey := range []string{s.cfg.Locations[0].Store.SigningKeyFile, ""} {
		s.cfg.Locations[0].Store.SigningKeyFile = signingKey
		_, err := (&operationService{s: s}).ResumeOperation(t.Context(),
			&mgmtv1.ResumeOperationRequest{Id: id, Identity: identity})
		must(t, err)
		op := waitEnded(t, s, id)
		working, err := y.reconciled(t.Context(), 1-y.at)
		must(t, err)
		c, err := s.openCatalog(t.Context())
		must(t, err)
		texts := unitFindings(t, c, op.ID)
		for _, unit := range classyUnits {
			_, released := working[unit]
			named := 0 // once in each resume
			for _, text := range texts {
				if strings.Contains(text, y.namespace+"/"+unit+
					" belongs to management cluster c (11111111-2222-3333-4444-555555555555)") {
					named++
				}
			}
			if op.State != catalog.Failed || released || named != i+1 {
				t.Errorf("signing key %q: %s: released %v, named %v: %v", signingKey, unit, released, named,
					texts)
			}
		}
		if state := op.Units[y.namespace+"/"+pausedUnit]; state != catalog.UnitReleased {
			t.Errorf("signing key %q: the other unit is %s", signingKey, state)
		}
	}
}

// restore starts a restore of the newest snapshot into the target, as in an outage of the source.
func (y *moveFixture) restore(s *Server, selection *mgmtv1.Selection) (operation string) {
	y.t.Helper()
	started, err := (&restoreService{s: s}).RunRestore(y.t.Context(), &mgmtv1.RunRestoreRequest{
		Spec: &mgmtv1.RestoreSpec{Snapshot: latest, Target: y.target().Name(), SourceIsGone: true,
			Selection: selection}, Identity: y.identity()})
	must(y.t, err)
	return started.GetOperation().GetId()
}

func (y *moveFixture) identity() []byte {
	y.t.Helper()
	identity, err := os.ReadFile(filepath.Join(y.dir, "keys", "identity.txt"))
	must(y.t, err)
	return identity
}

func waitSucceeded(t *testing.T, s *Server, id string) {
	t.Helper()
	if op := waitEnded(t, s, id); op.State != catalog.Succeeded {
		c, err := s.openCatalog(t.Context())
		must(t, err)
		t.Fatalf("%s: %s: %s %v", op.Kind, op.State, op.Message, unitFindings(t, c, op.ID))
	}
}

func waitEnded(t *testing.T, s *Server, id string) catalog.Operation {
	t.Helper()
	c, err := s.openCatalog(t.Context())
	must(t, err)
	for {
		op, err := findOperation(t.Context(), c, id)
		must(t, err)
		if op.State.Ended() {
			return op
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func unitFindings(t *testing.T, c *catalog.Catalog, id catalog.OperationID) (texts []string) {
	t.Helper()
	for e, err := range c.Watch(context.WithoutCancel(t.Context()), id, 0) {
		must(t, err)
		if f := e.Finding; f != nil && f.Severity >= object.Error {
			texts = append(texts, f.String())
		}
	}
	return texts
}
