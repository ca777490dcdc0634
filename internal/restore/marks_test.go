package restore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// marksTrial is a restore whose catalog is lost: it left two workload clusters paused on a target
// that has a workload cluster of its own, which uses the same class as one of them.
type marksTrial struct {
	*trial
	lost  string // the operation
	input Marks
	undo  *catalog.Catalog // the new one
	id    catalog.OperationID
	plan  *Plan
}

// ownWork is a workload cluster that works on the target.
const ownWork = `{"kind":"Cluster","metadata":{"namespace":"one","name":"live"},
	"spec":{"topology":{"classRef":{"name":"class"}}}}`

func newMarksTrial(t *testing.T) *marksTrial {
	t.Helper()
	x := pausedTrial(t)
	own := newMemory(t, "own", ownWork)
	for _, u := range own.objects {
		x.target.put(refOf(u), u)
	}
	return &marksTrial{trial: x, lost: string(x.id), input: Marks{StoreID: "store"}}
}

func (x *marksTrial) planFromMarks(t *testing.T) *Plan {
	t.Helper()
	s, contents, err := snapshot.CaptureInMemory(t.Context(), snapshot.Options{Source: x.target,
		SourceName: "target", SourceUID: x.target.uid, Kubernetes: "v1.36.3", Providers: noProviders})
	if err != nil {
		t.Fatal(err)
	}
	in := x.input
	in.Target, in.Graph, in.Contents, in.Lister = object.Side{UID: x.target.uid}, s.Graph, contents,
		x.target
	p, err := in.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rollBack carries out the plan in a process that dies at a write, with a journal of its own.
func (x *marksTrial) rollBack(t *testing.T, w *mortal) error {
	t.Helper()
	ctx := t.Context()
	if x.undo == nil {
		var err error
		if x.undo, err = catalog.Open(ctx, t.TempDir()+"/new.db", catalog.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.undo.Close() })
		x.plan = x.planFromMarks(t)
		op, err := x.undo.CreateOperation(ctx, catalog.Operation{Kind: catalog.KindRestore})
		if err != nil {
			t.Fatal(err)
		}
		x.id = op.ID
	}
	if _, err := x.undo.SetState(ctx, x.id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range x.plan.Units {
		names = append(names, u.Name)
	}
	needed := map[object.Ref]bool{}
	for _, o := range x.plan.Shared.Objects {
		needed[o.Ref] = o.Namespace == "one" // the workload cluster of the target uses its class
	}
	err := Undo(ctx, UndoOptions{RunOptions: RunOptions{Plan: x.plan, Reader: x.target,
		Writer: x.target, Kinds: x.target.kinds, Operation: string(x.id),
		Journal: x.undo.Journal(x.id, catalog.JournalOptions{}), Tuning: x.tuning},
		Remover: w, Lister: x.target, Units: names, Shared: true, Needed: needed})
	if _, err := x.undo.SetState(ctx, x.id, catalog.Failed, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	return err
}

// problems are the findings of a plan that block a unit or all, as "unit code".
func problems(p *Plan) (list []string) {
	for _, f := range p.Findings {
		if f.Severity >= object.Error {
			list = append(list, strings.TrimSpace(f.Unit+" "+string(f.Code)))
		}
	}
	return list
}

// TestRollbackFromMarksRemovesTheCopiesOfALostRestore: wherever it dies, also when its own catalog
// is lost in the middle. What the target had before stays, and so does what that uses.
func TestRollbackFromMarksRemovesTheCopiesOfALostRestore(t *testing.T) {
	want := []string{"Cluster.cluster.x-k8s.io/one/live", "ClusterClass.cluster.x-k8s.io/one/class",
		"ConfigMap/one/theirs"}
	for name, lost := range map[string]bool{"its journal is there": false,
		"its journal is lost each time": true} {
		x := newMarksTrial(t)
		deaths := 0
		for n := 0; ; n++ {
			err := x.rollBack(t, &mortal{memory: x.target, writes: n % 3, after: lost})
			if err == nil {
				break
			}
			if !errors.Is(err, errDied) || n > 200 {
				t.Fatalf("%s: after %d deaths: %v", name, deaths, err)
			}
			if deaths++; lost {
				x.input.Lost, x.undo = x.plan.Lost, nil // the next one plans again
			}
		}
		if got := left(x.target); !slices.Equal(got, want) || deaths < 3 {
			t.Errorf("%s: %d deaths, left %v", name, deaths, got)
		}
	}
}

// TestRollbackFromMarksSaysWhatItRemoves: the plan has the units, their objects and the operations
// that made them.
func TestRollbackFromMarksSaysWhatItRemoves(t *testing.T) {
	x := newMarksTrial(t)
	p := x.planFromMarks(t)
	if len(p.Units) != 2 || p.Units[0].Name != "one/w" || len(p.Units[0].Objects) != 2 ||
		p.Units[0].Machines != 1 || p.Blocked || !slices.Equal(p.Lost, []string{x.lost}) ||
		len(p.Shared.Objects) != 2 {
		t.Errorf("units %+v, shared %+v, lost %v", p.Units, p.Shared, p.Lost)
	}
	x.input.Selection = Selection{Workloads: []object.Key{{Namespace: "two", Name: "w"}}}
	p = x.planFromMarks(t)
	if len(p.Units) != 1 || p.Units[0].Name != "two/w" || len(p.Shared.Objects) != 0 {
		t.Errorf("one of two: units %+v, shared %+v", p.Units, p.Shared)
	}
	x.input.Selection = Selection{Workloads: []object.Key{{Namespace: "two", Name: "nothing"}}}
	_, err := Marks{Graph: x.snapshot.Graph, Contents: x.contents, Lister: x.target,
		Selection: x.input.Selection}.Plan(t.Context())
	if _, ok := errors.AsType[*SelectionError](err); !ok {
		t.Errorf("a workload cluster that is not there: %v", err)
	}
}

// annotate returns a change that gives a Cluster an annotation.
func annotate(key, value string) func(*testing.T, *marksTrial) {
	return func(t *testing.T, x *marksTrial) {
		t.Helper()
		x.target.set(t, clusterOne, func(u *unstructured.Unstructured) {
			capi.Annotate(u.Object, key, value)
		})
	}
}

// unmark takes the mark of its creation off a Cluster, as the write of managedFields does.
func unmark(t *testing.T, x *marksTrial) {
	t.Helper()
	x.target.set(t, clusterOne, func(u *unstructured.Unstructured) { u.SetManagedFields(nil) })
}

// touch adds an entry to the managedFields of a Cluster that is as old as the Cluster plus age.
func touchCluster(t *testing.T, x *marksTrial, manager, fields string, age time.Duration) {
	t.Helper()
	x.target.set(t, clusterOne, func(u *unstructured.Unstructured) {
		created := time.Now().Add(-time.Hour).Truncate(time.Second)
		u.SetCreationTimestamp(metav1.NewTime(created))
		at := metav1.NewTime(created.Add(age))
		u.SetManagedFields(append(u.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: manager,
			Operation: metav1.ManagedFieldsOperationUpdate, Time: &at,
			FieldsV1: metav1.NewFieldsV1(fields)}))
	})
}

// record sets the ownership record of the first workload cluster.
func (x *marksTrial) record(t *testing.T, r ownership.Record) {
	t.Helper()
	id := x.target.get(t, clusterOne).GetAnnotations()[capi.AnnotationWorkloadID]
	x.input.Owners = map[string]ownership.Record{id: r}
}

// TestRollbackFromMarksRefusesWhatMayWork: every reason for which a unit stays, and that the other
// unit goes all the same.
func TestRollbackFromMarksRefusesWhatMayWork(t *testing.T) {
	first := newMarksTrial(t)
	reset := func() *marksTrial {
		target := &memory{uid: first.target.uid, kinds: first.target.kinds, version: first.target.version,
			objects: map[object.Ref]*unstructured.Unstructured{}}
		for ref, u := range first.target.objects {
			target.objects[ref] = u.DeepCopy()
		}
		x := *first.trial
		x.target = target
		return &marksTrial{trial: &x, lost: first.lost, input: first.input}
	}
	here := ownership.Record{By: object.Side{UID: "target"}, Epoch: 2, Trusted: true}
	const pause = `{"f:spec":{"f:paused":{}}}`
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, x *marksTrial)
		code   object.Code
	}{
		{"it is not paused", func(t *testing.T, x *marksTrial) {
			x.target.set(t, clusterOne, func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "paused")
			})
		}, object.CodeCopyAtWork},
		{"somebody unpaused it and paused it again", func(t *testing.T, x *marksTrial) {
			touchCluster(t, x, "kubectl-edit", pause, time.Minute)
		}, object.CodeCopyAtWork},
		{"a move paused it again after its release", func(t *testing.T, x *marksTrial) {
			touchCluster(t, x, kube.DefaultFieldManager,
				`{"f:metadata":{"f:annotations":{"f:mgmtd.dev/epoch":{}}}}`, time.Minute)
		}, object.CodeCopyAtWork},
		{"a user paused it on the source", func(t *testing.T, x *marksTrial) {
			touchCluster(t, x, "kubectl-edit", pause, -time.Hour)
		}, ""},
		{"a move away from here holds its lock",
			annotate(capi.AnnotationOperation, "0123456789ab/1"), object.CodeCopyHeld},
		{"it is fenced", annotate(capi.AnnotationFenced, capi.FencedByRecord), object.CodeCopyHeld},
		{"a record names this side", func(t *testing.T, x *marksTrial) { x.record(t, here) },
			object.CodeCopyAtWork},
		{"a record that nobody trusts names this side", func(t *testing.T, x *marksTrial) {
			r := here
			r.Trusted = false
			x.record(t, r)
		}, object.CodeCopyAtWork},
		{"a record names another side", func(t *testing.T, x *marksTrial) {
			r := here
			r.By.UID = "source"
			x.record(t, r)
		}, ""},
		{"its record is damaged", func(t *testing.T, x *marksTrial) {
			x.record(t, ownership.Record{Damaged: errors.New("cut off")})
		}, object.CodeOwnersUnread},
		{"its record is damaged, and the operator answers for it", func(t *testing.T, x *marksTrial) {
			x.record(t, ownership.Record{Damaged: errors.New("cut off")})
			x.input.Force = object.Forced{object.CodeOwnersUnread: ""}
		}, ""},
		{"its record is gone", func(t *testing.T, x *marksTrial) {
			x.record(t, ownership.Record{Seen: 3})
		}, object.CodeOwnersUnread},
		{"it has no mark, and a mirror is younger", func(t *testing.T, x *marksTrial) {
			unmark(t, x)
			x.target.set(t, "Machine.cluster.x-k8s.io/one/m",
				func(u *unstructured.Unstructured) { u.SetManagedFields(nil) })
			x.input.Known = []KnownOperation{{ID: "0123456789ab", Where: "the mirror of host b",
				Updated: time.Now()}}
		}, object.CodeOperationKnown},
		{"it has no mark, and the store has no record of it", unmark, ""},
		{"it has no mark, and no records were read", func(t *testing.T, x *marksTrial) {
			unmark(t, x)
			x.input.Unread = "no store is named"
			x.input.Force = object.Forced{object.CodeOwnersUnread: ""}
		}, object.CodeCopyUnproven},
		{"it has no mark, and an id of its own", func(t *testing.T, x *marksTrial) {
			unmark(t, x)
			x.target.set(t, clusterOne, func(u *unstructured.Unstructured) {
				capi.Annotate(u.Object, capi.AnnotationWorkloadID, string(u.GetUID()))
			})
		}, object.CodeCopyUnproven},
		{"something of others hangs below it", func(t *testing.T, x *marksTrial) {
			thing := memoryKind("example.org", "Thing", "things", true)
			thing.Contract = false // a snapshot does not have it
			x.target.kinds = append(slices.Clone(x.target.kinds), thing)
			owner, u := x.target.get(t, clusterOne), &unstructured.Unstructured{}
			u.SetAPIVersion(thing.APIVersion())
			u.SetKind("Thing")
			u.SetNamespace("one")
			u.SetName("thing")
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(),
				Kind: "Cluster", Name: "w", UID: owner.GetUID()}})
			x.target.put(refOf(u), u)
		}, object.CodeGCWouldCascade},
	} {
		x := reset()
		tt.change(t, x)
		p := x.planFromMarks(t)
		var want []string
		if tt.code != "" {
			want = []string{"one/w " + string(tt.code)}
		}
		if got := problems(p); !slices.Equal(got, want) || p.Units[0].Blocked != (tt.code != "") ||
			p.Units[1].Blocked {
			t.Errorf("%s: got %q, want %q", tt.name, got, want)
		}
		if tt.code != object.CodeCopyHeld && tt.code != object.CodeGCWouldCascade {
			continue // the others differ in the plan only
		}
		if err := x.rollBack(t, &mortal{memory: x.target, writes: -1}); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if x.target.get(t, "Cluster.cluster.x-k8s.io/two/w") != nil ||
			x.target.get(t, clusterOne) == nil || x.target.get(t, "Machine.cluster.x-k8s.io/one/m") == nil {
			t.Errorf("%s: left %v", tt.name, left(x.target))
		}
	}
}

// TestRollbackFromMarksIsForLostOperations: the journal of an operation that the catalog or a
// mirror has knows more than marks do.
func TestRollbackFromMarksIsForLostOperations(t *testing.T) {
	x := newMarksTrial(t)
	x.input.Known = []KnownOperation{{ID: "0123456789ab"}, {ID: x.lost, Where: "this catalog"}}
	if p := x.planFromMarks(t); !p.Blocked || !slices.Equal(problems(p),
		[]string{"one/w operation-known", "two/w operation-known"}) {
		t.Errorf("blocked %v by %q", p.Blocked, problems(p))
	}
}

// TestRollbackFromMarksNeedsTheOwnershipRecords: without them nothing is removed, unless the
// operator answers for it.
func TestRollbackFromMarksNeedsTheOwnershipRecords(t *testing.T) {
	x := newMarksTrial(t)
	x.input.Unread = "connection refused"
	if p := x.planFromMarks(t); !p.Blocked || !slices.Equal(problems(p), []string{"owners-unread"}) {
		t.Errorf("blocked %v by %q", p.Blocked, problems(p))
	}
	x.input.Force = object.Forced{object.CodeOwnersUnread: ""}
	if p := x.planFromMarks(t); p.Blocked || len(problems(p)) > 0 || p.Units[0].Blocked {
		t.Errorf("blocked %v by %q", p.Blocked, problems(p))
	}
}

// TestRollbackFromMarksLeavesWhatNothingProves: an object that was there before the copy belongs
// to the same workload cluster by its name, and stays. Objects of GitOps tools are named.
func TestRollbackFromMarksLeavesWhatNothingProves(t *testing.T) {
	x := newMarksTrial(t)
	own := newMemory(t, "own", `{"kind":"Machine","metadata":{"namespace":"one","name":"theirs",
		"labels":{"cluster.x-k8s.io/cluster-name":"w"}},"spec":{"clusterName":"w"}}`)
	for _, u := range own.objects {
		x.target.put(refOf(u), u)
	}
	x.target.set(t, clusterOne, func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{"argocd.argoproj.io/instance": "fleet"})
	})
	p := x.planFromMarks(t)
	var codes []string
	for _, f := range p.Findings {
		codes = append(codes, f.Unit+" "+string(f.Code))
	}
	if !slices.Equal(codes, []string{"one/w gitops-owner", "one/w object-stays"}) {
		t.Errorf("findings %q", codes)
	}
	if err := x.rollBack(t, &mortal{memory: x.target, writes: -1}); err != nil {
		t.Fatal(err)
	}
	if got := left(x.target); !slices.Contains(got, "Machine.cluster.x-k8s.io/one/theirs") ||
		slices.Contains(got, clusterOne) {
		t.Errorf("left %v", got)
	}
}

// TestRollbackFromMarksStopsWhenSomebodyUnpauses: between the plan and the removal of a Cluster.
func TestRollbackFromMarksStopsWhenSomebodyUnpauses(t *testing.T) {
	for name, change := range map[string]func(u *unstructured.Unstructured){
		"unpaused": func(u *unstructured.Unstructured) {
			unstructured.RemoveNestedField(u.Object, "spec", "paused")
		},
		"a move took its lock": func(u *unstructured.Unstructured) {
			capi.Annotate(u.Object, capi.AnnotationOperation, "0123456789ab/1")
		},
	} {
		// Before its Machine, and right before the Cluster itself.
		for _, at := range []string{clusterOne, "Machine.cluster.x-k8s.io/one/m"} {
			x := newMarksTrial(t)
			ref, _ := object.ParseRef(at)
			seen := 0
			x.target.onGet = func(got object.Ref) {
				if got != ref {
					return
				}
				if seen++; seen == 2 || at != clusterOne {
					x.target.set(t, clusterOne, change)
				}
			}
			err := x.rollBack(t, &mortal{memory: x.target, writes: -1})
			if err == nil || !strings.Contains(err.Error(), "one/w") ||
				x.target.get(t, clusterOne) == nil {
				t.Errorf("%s, at %s: %v", name, at, err)
			}
		}
	}
}
