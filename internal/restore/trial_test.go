package restore

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// trial is one restore operation of a test, from a source in memory to a target in memory.
type trial struct {
	source   *memory
	api      *kube.API // how the source was reached; may be nil
	snapshot *snapshot.Snapshot
	contents *snapshot.Contents
	target   *memory
	spec     Spec
	catalog  *catalog.Catalog
	id       catalog.OperationID
	plan     *Plan
	tuning   Tuning
	hooks    Hooks
	// writer writes to the target; nil is the target itself.
	writer Writer
	prober Prober // nil is the target
	// needed and stayPaused are those of UndoOptions.
	needed, stayPaused map[object.Ref]bool
	// modifiers are Input.Modifiers and RunOptions.Modifiers.
	modifiers *modify.Document
	// newerWith is Input.NewerWith.
	newerWith func(r object.Ref) string
	// onStep, alive and sync are those of JournalOptions.
	onStep      func(context.Context, catalog.StepRecord) error
	alive, sync func(context.Context) error
}

func newTrial(t testing.TB, source, target *memory) *trial {
	t.Helper()
	x := &trial{source: source, target: target, spec: Spec{SourceIsGone: true},
		tuning: Tuning{Wait: 2 * time.Second, Settle: time.Millisecond}}
	x.load(t)
	var err error
	if x.catalog, err = catalog.Open(t.Context(), t.TempDir()+"/catalog.db",
		catalog.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		catalog.PostTestCheck(t, x.catalog)
		_ = x.catalog.Close()
	})
	return x
}

// load reads the snapshot: a run drops the contents of finished units.
func (x *trial) load(t testing.TB) {
	t.Helper()
	var err error
	if x.snapshot, x.contents, err = snapshot.CaptureInMemory(t.Context(), snapshot.Options{
		Source: x.source, SourceName: "source", SourceUID: x.source.uid, Kubernetes: "v1.36.3",
		Providers: noProviders, API: x.api,
	}); err != nil {
		t.Fatal(err)
	}
}

func noProviders(context.Context, []kube.Kind) ([]kube.Provider, error) { return nil, nil }

func (x *trial) makePlan(t testing.TB) *Plan {
	t.Helper()
	var prober Prober = x.target
	if x.prober != nil {
		prober = x.prober
	}
	p, err := NewPlan(t.Context(), Input{Snapshot: x.snapshot, Contents: x.contents,
		Source: Snapshot{ID: "s", Source: object.Side{UID: "source"}, Time: time.Now()},
		Target: object.Side{Name: "target", UID: x.target.uid}, Reader: x.target, Prober: prober,
		Kinds: x.target.kinds, Spec: x.spec, Modifiers: x.modifiers, NewerWith: x.newerWith})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// begin plans the operation, unless it is begun.
func (x *trial) begin(t *testing.T) {
	t.Helper()
	if x.plan != nil {
		return
	}
	if x.plan = x.makePlan(t); x.plan.Blocked {
		t.Fatalf("the plan is blocked: %v", x.plan.Findings)
	}
	op, err := x.catalog.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	x.id = op.ID
}

// run begins the operation, or resumes it. A finding is in the returned texts as "unit: message".
func (x *trial) run(t *testing.T) (failures []string, err error) {
	t.Helper()
	ctx := t.Context()
	x.begin(t)
	if _, err := x.catalog.SetState(ctx, x.id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	writer := x.writer
	if writer == nil {
		writer = x.target
	}
	err = Run(ctx, RunOptions{Plan: x.plan, Contents: x.contents, Modifiers: x.modifiers,
		Reader: x.target, Writer: writer, Prober: x.target, Kinds: x.target.kinds,
		Operation: string(x.id), Journal: x.journal(), Tuning: x.tuning, Hooks: x.hooks})
	state := catalog.Succeeded
	if err != nil {
		state = catalog.Failed
	}
	if _, err := x.catalog.SetState(ctx, x.id, state, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	return x.failures(t), err
}

func (x *trial) journal() *catalog.Journal {
	return x.catalog.Journal(x.id, catalog.JournalOptions{OnStep: x.onStep, Alive: x.alive,
		Sync: x.sync})
}

// failures returns the errors in the history of the operation.
func (x *trial) failures(t *testing.T) []string {
	t.Helper()
	var out []string
	for e, err := range x.catalog.Events(t.Context(), x.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Finding != nil && e.Finding.Severity >= object.Error {
			out = append(out, e.Unit+": "+e.Finding.Message)
		}
	}
	return out
}

// released reports which Clusters are on the target and not paused.
func (x *trial) released(t *testing.T) string {
	t.Helper()
	x.target.mu.Lock()
	defer x.target.mu.Unlock()
	var names []string
	for ref, u := range x.target.objects {
		if paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused"); ref.GroupKind() ==
			capi.Cluster && !paused {
			names = append(names, ref.Namespace+"/"+ref.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
