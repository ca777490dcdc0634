//go:build api

package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestAPIDaemonResumesTheMoveOfItsPredecessor: a daemon ends, or dies, in the middle of a move. The
// next one finds the management clusters and the store by their recorded names, and resumes the
// move by itself. With MGMTD_TEST_STATES it does so after both.
func TestAPIDaemonResumesTheMoveOfItsPredecessor(t *testing.T) {
	for name, died := range map[string]bool{"ended": false, "died": true} {
		if !died && !long {
			continue
		}
		t.Run(name, func(t *testing.T) {
			f := newAPIFixture(t, name)
			id := f.stopMove()
			if died {
				f.leaveRunning(id)
			}
			s := f.daemon()
			t.Cleanup(func() { must(t, s.Close()) })
			must(t, s.Open(t.Context()))
			c, err := s.openCatalog(t.Context())
			must(t, err)
			op, err := findOperation(t.Context(), c, id)
			must(t, err)
			op.Back = true // as it was read before an operator turned it forward
			_, err = s.resumeOperation(t.Context(), c, op, resumption{byItself: true})
			if err == nil || classify(err).Reason != ReasonIncomplete {
				t.Errorf("resumed in a direction that it has no more: %v", err)
			}
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

// TestAPIAMoveWithModifiersWaitsForThem: a daemon does not resume it by itself, since it does not
// store the modifiers, and says what is missing. With the same document it goes on.
func TestAPIAMoveWithModifiersWaitsForThem(t *testing.T) {
	f := newAPIFixture(t, "modified")
	document := []byte(`version: v1
resourceModifierRules:
- conditions: {groupResource: secrets, resourceNameRegex: ^registry-credentials$}
  mergePatches: [{patchData: "stringData: {config.json: correct-horse}"}]
`)
	id := f.stopMoveWith(document)
	f.leaveRunning(id)
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Open(t.Context()))
	must(t, s.Start(t.Context()))
	var op catalog.Operation
	for deadline := time.Now().Add(5 * time.Minute); op.HintKey != object.HintResumeWithModifiers; {
		if time.Sleep(5 * time.Millisecond); time.Now().After(deadline) {
			t.Fatalf("it is %s: %s", op.State, op.Message)
		}
		op = f.await(s, id, catalog.Stopped)
	}
	if !strings.Contains(op.Message, "was planned with resource modifiers") {
		t.Error(op.Message)
	}
	operations := &operationService{s: s}
	for text, want := range map[string]string{
		"": "none were given",
		strings.Replace(string(document), "correct", "wrong", 1): "these are not the resource modifiers",
		"version: v2": "version must be v1",
	} {
		_, err := operations.ResumeOperation(t.Context(), &mgmtv1.ResumeOperationRequest{Id: id,
			ResourceModifiers: []byte(text)})
		if e := classify(err); err == nil || e.Reason != ReasonUsage || !strings.Contains(e.Message, want) {
			t.Errorf("resumed with %q: %v", text, err)
		}
	}
	_, err := operations.ResumeOperation(t.Context(), &mgmtv1.ResumeOperationRequest{Id: id,
		ResourceModifiers: document})
	must(t, err)
	f.await(s, id, catalog.Succeeded)
	f.checkOn(1)
	live, err := servers.Connect(t, 1).Reader().Get(t.Context(), kube.SecretKind, f.namespace,
		"registry-credentials")
	must(t, err)
	if data, _, _ := unstructured.NestedString(live.Object, "data", "config.json"); data !=
		"Y29ycmVjdC1ob3JzZQ==" {
		t.Error("the credentials are not those of the modifiers")
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

// TestAPIRollbackWithoutTargetNeedsNeitherTargetNorStore: the target cannot be dialled, and the
// store is gone. The journal proves that nothing was handed over: the source has everything back.
func TestAPIRollbackWithoutTargetNeedsNeitherTargetNorStore(t *testing.T) {
	f := newAPIFixture(t, "alone")
	id := f.stopMove()
	must(t, os.Rename(filepath.Join(f.dir, "store"), filepath.Join(f.dir, "away")))
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	s.cfg.Targets = slices.Clone(s.cfg.Targets)
	for i := range s.cfg.Targets {
		s.cfg.Targets[i].KubeconfigFile = filepath.Join(f.dir, "no-such-file")
	}
	operations := &operationService{s: s}
	_, err := operations.RollbackOperation(t.Context(), &mgmtv1.RollbackOperationRequest{Id: id})
	if e := classify(err); err == nil || e.Reason != ReasonStoreMissing {
		t.Errorf("with the target: %v", err)
	}
	_, err = operations.RollbackOperation(t.Context(), &mgmtv1.RollbackOperationRequest{Id: id,
		WithoutTarget: true})
	if e := classify(err); err == nil || e.Reason != ReasonStoreMissing ||
		e.HintKey != object.HintStoreAway {
		t.Errorf("without an override: %v", err)
	}
	_, err = operations.RollbackOperation(t.Context(), &mgmtv1.RollbackOperationRequest{Id: id,
		ForceCodes: []string{"store-away"}})
	if e := classify(err); err == nil || e.Reason != ReasonUsage {
		t.Errorf("with an override and the target: %v", err)
	}
	_, err = operations.RollbackOperation(t.Context(), &mgmtv1.RollbackOperationRequest{Id: id,
		WithoutTarget: true, ForceCodes: []string{"store-away"}})
	must(t, err)
	op := f.await(s, id, catalog.RolledBack)
	f.checkOn(0)
	c, err := s.openCatalog(t.Context())
	must(t, err)
	var codes []object.Code
	for e, err := range c.Watch(t.Context(), op.ID, 0) {
		must(t, err)
		if e.Finding != nil {
			codes = append(codes, e.Finding.Code)
		}
	}
	if !slices.Contains(codes, object.CodeStoreAway) {
		t.Errorf("findings: %v", codes)
	}
	// The store answers again: what other hosts read in it is that the move is rolled back.
	must(t, os.Rename(filepath.Join(f.dir, "away"), filepath.Join(f.dir, "store")))
	_, err = operations.RollbackOperation(t.Context(), &mgmtv1.RollbackOperationRequest{Id: id})
	must(t, err)
	st, err := s.openStore(t.Context(), "", nil)
	must(t, err)
	if found, err := mirror.Newest(t.Context(), st, op.ID); err != nil ||
		found.Head.State != string(catalog.RolledBack) {
		t.Errorf("the mirror says %q, %v", found.Head.State, err)
	}
}

// TestAPIResumeWithoutSourceNeedsAnIdentity, since it reads the snapshot in the store, and no
// source.
func TestAPIResumeWithoutSourceNeedsAnIdentity(t *testing.T) {
	f := newAPIFixture(t, "gone")
	id := f.stopMove()
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	s.cfg.Sources = slices.Clone(s.cfg.Sources)
	for i := range s.cfg.Sources {
		s.cfg.Sources[i].KubeconfigFile = filepath.Join(f.dir, "no-such-file")
	}
	operations := &operationService{s: s}
	req := &mgmtv1.ResumeOperationRequest{Id: id, WithoutSource: true}
	_, err := operations.ResumeOperation(t.Context(), req)
	if e := classify(err); err == nil || e.Reason != ReasonIdentity {
		t.Errorf("without an identity: %v", err)
	}
	req.Identity, err = os.ReadFile(filepath.Join(f.dir, "keys", "identity.txt"))
	must(t, err)
	_, err = operations.ResumeOperation(t.Context(), req)
	must(t, err)
	op := f.await(s, id, catalog.Failed)
	if !strings.Contains(op.Message, "3 others were not handed over") ||
		op.Code != string(ReasonIncomplete) {
		t.Errorf("%s: %s", op.Code, op.Message)
	}
	_, err = operations.RollbackOperation(t.Context(), &mgmtv1.RollbackOperationRequest{Id: id,
		WithoutTarget: true}) // neither side answers
	if err == nil {
		t.Error("a rollback without the target does without the source, too")
	}
}

// stopMove begins a move of the fleet to the other side, and ends the daemon after its first step
// has begun.
func (f *apiFixture) stopMove() (operation string) {
	f.t.Helper()
	return f.stopMoveWith(nil)
}

// stopMoveWith is stopMove with resource modifiers.
func (f *apiFixture) stopMoveWith(modifiers []byte) (operation string) {
	f.t.Helper()
	s := f.daemon()
	started, err := (&moveService{s: s}).RunMove(f.t.Context(), &mgmtv1.RunMoveRequest{
		Spec: &mgmtv1.MoveSpec{Source: servers.Options(0).Name, Target: servers.Options(1).Name,
			Selection: &mgmtv1.Selection{Namespaces: []string{f.namespace}}},
		ResourceModifiers: modifiers})
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
