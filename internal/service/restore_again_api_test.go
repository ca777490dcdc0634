//go:build api

package service

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
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

// restore starts a restore of the newest snapshot into the target, as in an outage of the source.
func (y *moveFixture) restore(s *Server, selection *mgmtv1.Selection) (operation string) {
	y.t.Helper()
	identity, err := os.ReadFile(filepath.Join(y.dir, "keys", "identity.txt"))
	must(y.t, err)
	started, err := (&restoreService{s: s}).RunRestore(y.t.Context(), &mgmtv1.RunRestoreRequest{
		Spec: &mgmtv1.RestoreSpec{Snapshot: latest, Target: y.target().Name(), SourceIsGone: true,
			Selection: selection}, Identity: identity})
	must(y.t, err)
	return started.GetOperation().GetId()
}

func waitSucceeded(t *testing.T, s *Server, id string) {
	t.Helper()
	c, err := s.openCatalog(t.Context())
	must(t, err)
	for {
		op, err := findOperation(t.Context(), c, id)
		must(t, err)
		if op.State.Ended() {
			if op.State != catalog.Succeeded {
				t.Fatalf("%s: %s: %s %v", op.Kind, op.State, op.Message, unitFindings(t, c, op.ID))
			}
			return
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
