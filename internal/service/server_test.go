package service

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func TestLocationOfARequest(t *testing.T) {
	a, b, unnamed := Location{Name: "a"}, Location{Name: "b"}, Location{}
	byDefault := Location{Name: "b", Default: true}
	for _, test := range []struct {
		name      string
		locations []Location
		daemon    bool
		ask       string
		want      string // name, or part of the error
	}{
		{"the only one", []Location{a}, true, "", "a"},
		{"by name", []Location{a, b}, true, "b", "b"},
		{"the default", []Location{a, byDefault}, true, "", "b"},
		{"standalone stands for any name", []Location{unnamed}, false, "a", ""},
		{"no default", []Location{a, b}, true, "", "2 storage locations are known and none is the " +
			"default (name one of a, b) location"},
		{"unknown", []Location{a, b}, true, "c", `no storage location is named "c" (there are a, b)`},
		{"unknown, with a default", []Location{a, byDefault}, true, "c",
			`no storage location is named "c" (there are a, b)`},
		{"unknown, with one", []Location{a}, true, "c", `no storage location is named "c" (there are a)`},
		{"daemon without", nil, true, "", "the configuration has no storage location (add a " +
			"BackupStorageLocation document to it)"},
		{"standalone without", nil, false, "", "no store is named (name one) store-url"},
	} {
		l, err := New(Config{Locations: test.locations, Daemon: test.daemon}).location(test.ask)
		var got string
		if err != nil {
			e := FromStatus(err)
			got = strings.TrimSpace(e.Message + " (" + e.Hint + ") " + string(e.HintKey))
			if e.Reason != ReasonUsage {
				t.Errorf("%s: reason %s", test.name, e.Reason)
			}
		} else {
			got = l.Name
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestManagementClusterOfARequest(t *testing.T) {
	two := []kube.Options{{Name: "a"}, {Name: "b"}}
	for _, test := range []struct {
		name   string
		cfg    Config
		ask    string
		want   string // name, or part of the hint
		reason Reason
		key    object.HintKey // of the hint
	}{
		{"by name", Config{Sources: two, Daemon: true}, "b", "b", "", ""},
		{"the only one", Config{Sources: two[:1], Daemon: true}, "", "a", "", ""},
		{"several", Config{Sources: two, Daemon: true}, "", "name one of a, b",
			ReasonAmbiguous, object.HintSource},
		{"unknown", Config{Sources: two, Daemon: true}, "c", "there are a, b", ReasonNotFound, ""},
		{"daemon without", Config{Daemon: true}, "", "spec.managementClusters", ReasonUsage, ""},
		{"standalone without", Config{}, "", "name its kubeconfig", ReasonUsage,
			object.HintSourceKubeconfig},
	} {
		o, err := New(test.cfg).mgmtOptions(sourceSide, test.ask)
		if err == nil {
			if o.Name != test.want {
				t.Errorf("%s: got %q", test.name, o.Name)
			}
			continue
		}
		if e := FromStatus(err); e.Reason != test.reason || e.HintKey != test.key ||
			!strings.Contains(e.Hint, test.want) {
			t.Errorf("%s: %s, %s (%s)", test.name, e.Reason, e.Hint, e.HintKey)
		}
	}
}

// TestOneOfSeveralManagementClustersIsNamedAsTheCommandTakesIt: mgmt check has no --source.
func TestOneOfSeveralManagementClustersIsNamedAsTheCommandTakesIt(t *testing.T) {
	s := New(Config{Sources: []kube.Options{{Name: "a"}, {Name: "b"}}, Daemon: true})
	_, err := s.anyMgmt("")
	if e := FromStatus(err); e.Reason != ReasonAmbiguous || e.HintKey != object.HintMgmtName {
		t.Errorf("%s, hint key %q", e.Reason, e.HintKey)
	}
}

// begin starts an operation that runs until its context ends.
func begin(t *testing.T, s *Server, kind catalog.Kind) catalog.OperationID {
	t.Helper()
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	_, err = s.start(t.Context(), c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		defer func() { <-ctx.Done() }()
		defer close(began)
		if kind == catalog.KindRestore || kind == catalog.KindMove {
			if err := j.Do(ctx, catalog.Step{Phase: "write"},
				func(context.Context, *catalog.StepHandle) error { return nil }); err != nil {
				return err
			}
		}
		return context.Canceled
	})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	return op.ID
}

func state(t *testing.T, s *Server, id catalog.OperationID) *mgmtv1.Operation {
	t.Helper()
	resp, err := (&operationService{s: s}).GetOperation(t.Context(),
		&mgmtv1.GetOperationRequest{Id: string(id)})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetOperation()
}

func TestStopEndsOneOperation(t *testing.T) {
	s := New(Config{CatalogFile: t.TempDir() + "/c.db"})
	first, second := begin(t, s, catalog.KindSnapshot), begin(t, s, catalog.KindSnapshot)
	o := &operationService{s: s}
	for range 2 { // may run twice
		if _, err := o.StopOperation(t.Context(),
			&mgmtv1.StopOperationRequest{Id: string(first)}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Watch(t.Context(), first, 0) { // ends with the operation
		if err != nil {
			t.Fatal(err)
		}
	}
	if op := state(t, s, first); op.GetState() != mgmtv1.OperationState_OPERATION_STATE_STOPPED ||
		op.GetExitCode() != ExitInterrupted || op.GetMessage() != "stopped on request" {
		t.Errorf("stopped: %v", op)
	}
	if op := state(t, s, second); op.GetState() != mgmtv1.OperationState_OPERATION_STATE_RUNNING {
		t.Errorf("the other: %v", op)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if len(s.runs.stop) > 0 {
		t.Errorf("left: %v", s.runs.stop)
	}
}

// TestStopEndsAWaitingResume: an operation that the daemon would go on with is stopped like one
// that runs, and stays so over the next start.
func TestStopEndsAWaitingResume(t *testing.T) {
	path := t.TempDir() + "/c.db"
	s := New(Config{CatalogFile: path, Daemon: true})
	id := begin(t, s, catalog.KindMove)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = New(Config{CatalogFile: path, Daemon: true})
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.Operation(t.Context(), id)
	if err != nil || !resumable(op) {
		t.Fatalf("left: %+v, %v", op, err)
	}
	wait, cancel := context.WithCancelCause(s.ctx)
	s.runs.waiting[id] = cancel
	for range 2 {
		if _, err := (&operationService{s: s}).StopOperation(t.Context(),
			&mgmtv1.StopOperationRequest{Id: string(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.start(wait, c, id, nil); !errors.Is(err, errStopping) {
		t.Errorf("goes on: %v", err)
	}
	if op, err := c.Operation(t.Context(), id); err != nil || op.State != catalog.Stopped ||
		op.Message != errStopping.Message || resumable(op) {
		t.Errorf("stopped: %+v, %v", op, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestTheCauseOfAStopDecidesWhetherTheDaemonResumes, and not the message, which may be reworded.
func TestTheCauseOfAStopDecidesWhetherTheDaemonResumes(t *testing.T) {
	for cause, want := range map[catalog.StopCause]bool{
		"": false, catalog.StopRequested: false,
		catalog.StopDaemonEnded: true, catalog.StopProcessDied: true,
	} {
		for _, message := range []string{"", diedMessage, errStopping.Message, "in other words"} {
			op := catalog.Operation{Kind: catalog.KindMove, State: catalog.Stopped, StopCause: cause,
				Message: message}
			if got := resumable(op); got != want {
				t.Errorf("cause %q, message %q: resumes: %t", cause, message, got)
			}
			restore := op
			if restore.Kind = catalog.KindRestore; resumable(restore) {
				t.Errorf("cause %q: a restore goes on by itself", cause)
			}
			if op.State = catalog.Failed; resumable(op) {
				t.Errorf("cause %q: a failed operation goes on", cause)
			}
		}
	}
}

// TestI1NoRestoreIsResumedByItself: a restore from a plain store needs no identity, and the source
// may have come back while the daemon was down. The operator has to type the resume.
func TestI1NoRestoreIsResumedByItself(t *testing.T) {
	cfg := Config{CatalogFile: t.TempDir() + "/c.db", Daemon: true, Log: slog.New(slog.DiscardHandler),
		Locations: []Location{{Name: "a", Default: true, Store: StoreOptions{Plain: true}}}}
	c, err := catalog.Open(t.Context(), cfg.CatalogFile, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	s := New(cfg)
	if err := errors.Join(s.Open(t.Context()), s.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	got := state(t, s, op.ID)
	s.runs.mu.Lock()
	waiting := len(s.runs.waiting)
	s.runs.mu.Unlock()
	if got.GetState() != mgmtv1.OperationState_OPERATION_STATE_STOPPED || waiting > 0 ||
		got.GetHintKey() != string(object.HintResume) {
		t.Errorf("%d operations wait to be resumed, and the restore is %v", waiting, got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestDaemonClassifiesInterruptedOperations: what a daemon leaves when it ends in good order, and
// when it dies, and what the next one makes of it.
func TestDaemonClassifiesInterruptedOperations(t *testing.T) {
	kinds := []catalog.Kind{catalog.KindSnapshot, catalog.KindVerify, catalog.KindPrune,
		catalog.KindRestore, catalog.KindMove}
	want := map[catalog.Kind]mgmtv1.OperationState{
		catalog.KindSnapshot: mgmtv1.OperationState_OPERATION_STATE_FAILED,
		catalog.KindVerify:   mgmtv1.OperationState_OPERATION_STATE_FAILED,
		catalog.KindPrune:    mgmtv1.OperationState_OPERATION_STATE_FAILED,
		catalog.KindRestore:  mgmtv1.OperationState_OPERATION_STATE_NEEDS_IDENTITY,
		// Start resumes it
		catalog.KindMove: mgmtv1.OperationState_OPERATION_STATE_STOPPED,
	}
	cfg := Config{CatalogFile: t.TempDir() + "/c.db", Locations: []Location{{Name: "a"}}, Daemon: true,
		Log: slog.New(slog.DiscardHandler)}

	ids := map[catalog.Kind]catalog.OperationID{}
	s := New(cfg)
	for _, kind := range kinds {
		ids[kind] = begin(t, s, kind)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = New(cfg)
	for kind, id := range ids {
		op := state(t, s, id)
		ended := want[kind]
		if kind != catalog.KindRestore && kind != catalog.KindMove {
			ended = mgmtv1.OperationState_OPERATION_STATE_STOPPED
		}
		if op.GetState() != ended || !strings.HasPrefix(op.GetMessage(), errDaemonEnds.Message) {
			t.Errorf("%s after a good end: %v", kind, op)
		}
		if waits := op.GetHintKey() == string(object.HintResumeWithIdentity); waits !=
			(kind == catalog.KindRestore) {
			t.Errorf("%s after a good end: the hint is %q", kind, op.GetHintKey())
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// A process that dies says nothing of its operations, which it may not have begun.
	var planned []catalog.OperationID
	c, err := catalog.Open(t.Context(), cfg.CatalogFile, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{}); err != nil {
			t.Fatal(err)
		}
		ids[kind] = op.ID
		if op, err = c.CreateOperation(t.Context(), catalog.Operation{Kind: kind}); err != nil {
			t.Fatal(err)
		}
		planned = append(planned, op.ID)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	s = New(cfg)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for kind, id := range ids {
		if op := state(t, s, id); op.GetState() != want[kind] ||
			!strings.HasPrefix(op.GetMessage(), diedMessage) {
			t.Errorf("%s after a crash: %v", kind, op)
		}
	}
	for _, id := range planned {
		if op := state(t, s, id); op.GetState() != mgmtv1.OperationState_OPERATION_STATE_FAILED ||
			op.GetChanged() || !strings.HasSuffix(op.GetMessage(), "it changed nothing") {
			t.Errorf("what was not begun, after a crash: %v", op)
		}
	}
	// Neither move has a plan, so there is nothing to go on with: that is said, and the daemon
	// starts.
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
