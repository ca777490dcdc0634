package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// mirroredHosts are hosts with a store in common.
type mirroredHosts struct {
	t        *testing.T
	location Location
	identity []byte
}

func newMirroredHosts(t *testing.T) *mirroredHosts {
	t.Helper()
	dir := t.TempDir()
	g, err := store.Keygen(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	identity, err := os.ReadFile(filepath.Join(dir, store.IdentityFile))
	if err != nil {
		t.Fatal(err)
	}
	return &mirroredHosts{t: t, identity: identity, location: Location{Store: StoreOptions{
		URL: "file://" + filepath.Join(dir, "store"), Recipients: []string{g.Recipient},
		SigningKeyFile:  filepath.Join(dir, store.SigningFile),
		TrustedKeyFiles: []string{filepath.Join(dir, store.SigningPubFile)}}}}
}

// host returns a server with a catalog of its own, and its store.
func (m *mirroredHosts) host() (*Server, *catalog.Catalog, *store.Store) {
	m.t.Helper()
	s := New(Config{CatalogFile: m.t.TempDir() + "/c.db", Locations: []Location{m.location}})
	m.t.Cleanup(func() { _ = s.Close() })
	c, err := s.openCatalog(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	st, err := s.openLocation(m.t.Context(), &m.location, nil, true)
	if err != nil {
		m.t.Fatal(err)
	}
	return s, c, st
}

// withIdentity opens the store with the identity.
func (m *mirroredHosts) withIdentity() *store.Store {
	m.t.Helper()
	st, err := New(Config{}).openLocation(m.t.Context(), &m.location, m.identity, false)
	if err != nil {
		m.t.Fatal(err)
	}
	return st
}

func newMirroredRun(t *testing.T, c *catalog.Catalog, st *store.Store) catalog.OperationID {
	t.Helper()
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindMove, Store: st.ID(),
		Source: catalog.Side{Name: "prod"}, Target: catalog.Side{Name: "next"}})
	if err != nil {
		t.Fatal(err)
	}
	return op.ID
}

func doStep(ctx context.Context, j *catalog.Journal, phase string) error {
	return j.Do(ctx, catalog.Step{Unit: "team-a/web", Phase: phase},
		func(context.Context, *catalog.StepHandle) error { return nil })
}

// TestRunOfAHostThatIsFencedOutEndsAsHeld: another host takes the operation over while it runs. The
// run is cancelled, its exit code is that of a fence, and a daemon does not resume it by itself.
func TestRunOfAHostThatIsFencedOutEndsAsHeld(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := newMirroredRun(t, c, st)
	began, takenOver := make(chan struct{}), make(chan struct{})
	run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
		j *catalog.Journal) error {
		err := doStep(ctx, j, "pause")
		close(began)
		<-takenOver
		return errors.Join(err, doStep(ctx, j, "hand-over"))
	})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	b, other, otherStore := m.host()
	op, err := b.currentOperation(t.Context(), other, string(id)[:8], m.identity)
	if err != nil || op.State != catalog.Stopped || op.StopCause != catalog.StopElsewhere {
		t.Fatalf("imported %+v, %v", op, err)
	}
	over, err := b.startMirrored(t.Context(), other, id, mirrorTo{store: otherStore},
		func(ctx context.Context, j *catalog.Journal) error {
			return doStep(ctx, j, "hand-over")
		})
	if err != nil || over.Wait() != nil {
		t.Fatal(err)
	}
	close(takenOver)
	if err := run.Wait(); !as[*mirror.FencedError](err) {
		t.Errorf("the first run ended with %v", err)
	}
	op, err = c.Operation(t.Context(), id)
	if got := operationToProto(op); err != nil || got.GetExitCode() != ExitHeld || resumable(op) ||
		!strings.Contains(op.Message, "has taken over operation") {
		t.Errorf("%+v, %v", got, err)
	}
	for mirrored, want := range map[bool]mgmtv1.OperationState{
		true:  mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED,
		false: operationStates[op.State],
	} {
		shown, err := (&operationService{s: a}).GetOperation(t.Context(),
			&mgmtv1.GetOperationRequest{Id: string(id), Mirrored: mirrored})
		if err != nil || shown.GetOperation().GetState() != want {
			t.Errorf("mirrored %v: shown %v, %v", mirrored, shown, err)
		}
	}
	// Without an identity its records cannot be read.
	if _, err := a.currentOperation(t.Context(), c, string(id), nil); ExitCode(err) != ExitHeld {
		t.Errorf("taken back without an identity: %v", err)
	}
	if op, err = a.currentOperation(t.Context(), c, string(id), m.identity); err != nil ||
		op.State != catalog.Succeeded {
		t.Errorf("%+v, %v", op, err)
	}
}

// TestRunThatIsTakenOverAtItsEndEndsAsHeld: it wrote nothing after the take-over, so it does not
// notice before its end is recorded.
func TestRunThatIsTakenOverAtItsEndEndsAsHeld(t *testing.T) {
	for _, end := range []error{nil, errRolledBack} {
		m := newMirroredHosts(t)
		a, c, st := m.host()
		id := newMirroredRun(t, c, st)
		run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
			j *catalog.Journal) error {
			if err := doStep(ctx, j, "pause"); err != nil {
				return err
			}
			b, other, otherStore := m.host()
			if _, err := b.currentOperation(ctx, other, string(id), m.identity); err != nil {
				return err
			}
			over, err := b.startMirrored(ctx, other, id, mirrorTo{store: otherStore},
				func(ctx context.Context, j *catalog.Journal) error {
					return doStep(ctx, j, "hand-over")
				})
			if err != nil {
				return err
			}
			return errors.Join(over.Wait(), end)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Wait(); !as[*mirror.FencedError](err) {
			t.Errorf("the first run, with the end %v, ended with %v", end, err)
		}
		op, err := c.Operation(t.Context(), id)
		if err != nil || operationToProto(op).GetExitCode() != ExitHeld {
			t.Errorf("with the end %v: %+v, %v", end, op, err)
		}
	}
}

// TestAStopAndARollbackAreOnRecordBeforeTheyAreAnswered: the process may die right after that. Then
// a daemon goes on with neither in the direction from before.
func TestAStopAndARollbackAreOnRecordBeforeTheyAreAnswered(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := newMirroredRun(t, c, st)
	began, ends := make(chan struct{}), make(chan struct{})
	run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st, back: true},
		func(ctx context.Context, j *catalog.Journal) error {
			close(began)
			<-ends // a step in flight
			return context.Cause(ctx)
		})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if op, err := c.Operation(t.Context(), id); err != nil || !op.Back {
		t.Errorf("it rolls back: %t, %v", op.Back, err)
	}
	if err := a.stopRun(t.Context(), c, id); err != nil {
		t.Error(err)
	}
	running, err := c.Operation(t.Context(), id)
	if err != nil || running.State != catalog.Running || running.StopCause != catalog.StopRequested {
		t.Errorf("it is %s, to be stopped by %q, %v", running.State, running.StopCause, err)
	}
	close(ends)
	_ = run.Wait()
	if _, err := c.SetState(t.Context(), id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := a.classifyInterrupted(t.Context(), c, running); err != nil { // as after a crash
		t.Fatal(err)
	}
	if op, err := c.Operation(t.Context(), id); err != nil || resumable(op) {
		t.Errorf("a daemon would resume it: %+v, %v", op, err)
	}
}

// TestOperationsOfOtherHostsAreListedShownAndImported: the list and what is shown need no identity.
func TestOperationsOfOtherHostsAreListedShownAndImported(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := newMirroredRun(t, c, st)
	run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
		j *catalog.Journal) error {
		return errors.Join(j.SetUnit(ctx, "team-a/web", catalog.UnitPaused, ""),
			doStep(ctx, j, "pause"), errors.New("it fails"))
	})
	if err != nil || run.Wait() == nil {
		t.Fatal(err)
	}
	b, other, _ := m.host()
	operations := &operationService{s: b}
	list, err := operations.ListOperations(t.Context(), &mgmtv1.ListOperationsRequest{Mirrored: true})
	if err != nil || len(list.GetOperations()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	shown, err := operations.GetOperation(t.Context(), &mgmtv1.GetOperationRequest{Id: string(id)})
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	for _, op := range []*mgmtv1.Operation{list.GetOperations()[0], shown.GetOperation()} {
		if op.GetId() != string(id) || op.GetKind() != "move" || op.GetHost() != host ||
			op.GetState() != mgmtv1.OperationState_OPERATION_STATE_FAILED || op.GetSource() != "prod" ||
			time.Since(op.GetCreateTime().AsTime()).Abs() > time.Minute {
			t.Errorf("listed %v", op)
		}
	}
	if list, err = operations.ListOperations(t.Context(),
		&mgmtv1.ListOperationsRequest{}); err != nil || len(list.GetOperations()) != 0 {
		t.Errorf("not asked for: %v, %v", list, err)
	}
	rebuild := func(identity []byte) *mgmtv1.RebuiltLocation {
		t.Helper()
		resp, err := (&catalogService{s: b}).RebuildCatalog(t.Context(),
			&mgmtv1.RebuildCatalogRequest{Identity: identity})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetLocations()[0]
	}
	if r := rebuild(nil); len(r.GetNeedIdentity()) != 1 || len(r.GetImported()) != 0 {
		t.Errorf("without an identity: %v", r)
	}
	if r := rebuild(m.identity); len(r.GetImported()) != 1 {
		t.Errorf("with an identity: %v", r)
	}
	if r := rebuild(m.identity); len(r.GetImported())+len(r.GetNeedIdentity()) != 0 {
		t.Errorf("imported twice: %v", r)
	}
	op, err := other.Operation(t.Context(), id)
	if err != nil || op.State != catalog.Failed || op.Units["team-a/web"] != catalog.UnitPaused {
		t.Errorf("imported %+v, %v", op, err)
	}
	if _, err := operations.GetOperation(t.Context(),
		&mgmtv1.GetOperationRequest{Id: "abcdef"}); classify(err).Reason != ReasonNotFound {
		t.Errorf("no such operation: %v", err)
	}
}

// TestRunWithoutChangesLeavesNoMirror: a plan that blocks everything is no operation that another
// host could continue.
func TestRunWithoutChangesLeavesNoMirror(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	run, err := a.startMirrored(t.Context(), c, newMirroredRun(t, c, st), mirrorTo{store: st},
		func(context.Context, *catalog.Journal) error { return errors.New("blocked") })
	if err != nil || run.Wait() == nil {
		t.Fatal(err)
	}
	if list, err := mirror.List(t.Context(), st); err != nil || len(list) > 0 {
		t.Errorf("mirrored %v, %v", list, err)
	}
}

// TestSecondResumeLeavesTheMirrorOfTheRunAlone: it is refused because the operation runs. The run
// goes on to write its records.
func TestSecondResumeLeavesTheMirrorOfTheRunAlone(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := newMirroredRun(t, c, st)
	began, refused := make(chan struct{}), make(chan struct{})
	run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
		j *catalog.Journal) error {
		err := doStep(ctx, j, "pause")
		close(began)
		<-refused
		return errors.Join(err, j.Do(ctx, catalog.Step{Unit: "team-a/web", Phase: "hand-over"},
			func(ctx context.Context, _ *catalog.StepHandle) error {
				_, other, _ := m.host()
				if _, err := mirror.Import(ctx, other, m.withIdentity(), "", id); err != nil {
					return err
				}
				state, err := other.Journal(id, catalog.JournalOptions{}).State(ctx,
					catalog.Step{Unit: "team-a/web", Phase: "hand-over"})
				if state != catalog.StepBegun {
					return fmt.Errorf("the store has the hand-over as %q, %w", state, err)
				}
				return err
			}))
	})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if _, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(context.Context,
		*catalog.Journal) error {
		return errors.New("it runs twice")
	}); ExitCode(err) != ExitHeld {
		t.Errorf("resumed while it runs: %v", err)
	}
	close(refused)
	if err := run.Wait(); err != nil {
		t.Error(err)
	}
}

// TestOwnerBeforeAClaimIsMirroredBeforeTheClaim: a rollback on another host gives the workload
// cluster back to that owner, and not to the source of the snapshot.
func TestOwnerBeforeAClaimIsMirroredBeforeTheClaim(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := newMirroredRun(t, c, st)
	q := ownership.Request{WorkloadID: "0c6f3d54-5a3a-4f4b-8b9e-0f6f3a5d2c11", Workload: "team-a/web",
		From: object.Side{Name: "third", UID: "third"}, To: object.Side{Name: "third", UID: "third"},
		Operation: "earlier"}
	if err := ownership.Claim(t.Context(), st, q); err != nil {
		t.Fatal(err)
	}
	q.From, q.To = object.Side{Name: "prod", UID: "prod"}, object.Side{Name: "next", UID: "next"}
	q.Operation, q.Epoch, q.Force = string(id), 1, true
	run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
		j *catalog.Journal) error {
		return j.Do(ctx, ownStep("team-a/web"), func(ctx context.Context, h *catalog.StepHandle) error {
			if err := recordOwner(ctx, st, h, q); err != nil {
				return err
			}
			_, other, _ := m.host() // the host dies right after the claim
			if _, err := mirror.Import(ctx, other, m.withIdentity(), "", id); err != nil {
				return err
			}
			values, err := other.Journal(id, catalog.JournalOptions{}).Values(ctx,
				ownStep("team-a/web"))
			if !strings.Contains(string(values[previousOwner]), "third") {
				return fmt.Errorf("the store has %s, %w", values, err)
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err != nil {
		t.Error(err)
	}
}
