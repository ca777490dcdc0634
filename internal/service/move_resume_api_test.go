//go:build api

package service

import (
	"path/filepath"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestAPIDaemonResumesTheMoveOfItsPredecessor: a daemon ends, or dies, in the middle of a move. The
// next one finds the management clusters and the store by their recorded names, and resumes the
// move by itself.
func TestAPIDaemonResumesTheMoveOfItsPredecessor(t *testing.T) {
	for name, died := range map[string]bool{"ended": false, "died": true} {
		t.Run(name, func(t *testing.T) {
			f := newAPIFixture(t, name)
			id := f.stopMove()
			if died {
				f.leaveRunning(id)
			}
			s := f.daemon()
			t.Cleanup(func() { must(t, s.Close()) })
			must(t, s.Open(t.Context()))
			must(t, s.Start(t.Context()))
			f.await(s, id, catalog.Succeeded)
			f.checkOn(1)
			for _, unit := range units {
				if record := f.owner(s, unit); record.Operation != id {
					t.Errorf("the record of %s names operation %s", unit, record.Operation)
				}
			}
		})
	}
}

// TestAPIStoppedMoveIsRolledBack: another daemon than the one that began a move rolls it back.
func TestAPIStoppedMoveIsRolledBack(t *testing.T) {
	f := newAPIFixture(t, "back")
	id := f.stopMove()
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	_, err := (&operationService{s: s}).RollbackOperation(t.Context(),
		&mgmtv1.RollbackOperationRequest{Id: id})
	must(t, err)
	f.await(s, id, catalog.RolledBack)
	f.checkOn(0)
}

// stopMove begins a move of the fleet to the other side, and ends the daemon after its first step
// has begun.
func (f *apiFixture) stopMove() (operation string) {
	f.t.Helper()
	s := f.daemon()
	started, err := (&moveService{s: s}).RunMove(f.t.Context(), &mgmtv1.RunMoveRequest{
		Spec: &mgmtv1.MoveSpec{Source: servers.Options(0).Name, Target: servers.Options(1).Name,
			Selection: &mgmtv1.Selection{Namespaces: []string{f.namespace}}}})
	must(f.t, err)
	id := catalog.OperationID(started.GetOperation().GetId())
	c, err := s.openCatalog(f.t.Context())
	must(f.t, err)
	for e, err := range c.Watch(f.t.Context(), id, 0) {
		must(f.t, err)
		if e.Type == catalog.EventStep {
			break
		}
	}
	must(f.t, s.Close())
	c = f.openCatalog()
	op, err := c.Operation(f.t.Context(), id)
	must(f.t, err)
	must(f.t, c.Close())
	if op.State != catalog.Stopped || op.StopCause != catalog.StopDaemonEnded {
		f.t.Fatalf("the move is %s for the cause %q: %s", op.State, op.StopCause, op.Message)
	}
	return string(id)
}

// leaveRunning makes the catalog that of a daemon that died at work on an operation.
func (f *apiFixture) leaveRunning(id string) {
	f.t.Helper()
	c := f.openCatalog()
	_, err := c.SetState(f.t.Context(), catalog.OperationID(id), catalog.Running, catalog.Outcome{})
	must(f.t, err)
	must(f.t, c.Close())
}

// openCatalog opens the catalog while no daemon has it.
func (f *apiFixture) openCatalog() *catalog.Catalog {
	f.t.Helper()
	c, err := catalog.Open(f.t.Context(), filepath.Join(f.dir, "catalog.db"), catalog.Options{})
	must(f.t, err)
	return c
}

// checkOn asserts that the fleet is on one side only, and not paused there.
func (f *apiFixture) checkOn(side int) {
	f.t.Helper()
	for _, unit := range units {
		u := f.cluster(side, unit)
		if u == nil || f.cluster(1-side, unit) != nil {
			f.t.Errorf("%s: it is on side %d: %v, and not on side %d only", unit, side, u != nil, side)
			continue
		}
		if isPaused(u) || capi.PausedByUs(u.Object) {
			f.t.Errorf("%s is still paused", unit)
		}
	}
}
