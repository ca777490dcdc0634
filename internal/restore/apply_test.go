package restore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// oneObject is an API server with one object. As a real one, it records field managers: that of a
// create and of a write of status, and what an update says of them. When an update removes the
// last annotation, it removes the map of annotations from them. It fails every write once so many
// have been made, and with lost it makes the last of these writes and its answer is lost.
type oneObject struct {
	Reader
	live   *unstructured.Unstructured
	writes int
	dies   int
	lost   bool
	refuse error // of managedFields
}

var errDied = errors.New("the process died")

func (s *oneObject) Get(context.Context, kube.Kind, string, string) (*unstructured.Unstructured,
	error) {
	if s.live == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "a")
	}
	return s.live.DeepCopy(), nil
}

func (s *oneObject) write(fn func()) (*unstructured.Unstructured, error) {
	if s.writes == s.dies && !s.lost {
		return nil, errDied
	}
	s.writes++
	fn()
	if s.writes == s.dies && s.lost {
		return nil, errDied
	}
	return s.live.DeepCopy(), nil
}

// manage adds an entry of managedFields.
func (s *oneObject) manage(ctx context.Context, subresource string) {
	s.live.SetManagedFields(append(s.live.GetManagedFields(), metav1.ManagedFieldsEntry{
		Manager: kube.FieldManager(ctx), Operation: metav1.ManagedFieldsOperationUpdate,
		Subresource: subresource, FieldsV1: metav1.NewFieldsV1("{}"),
	}))
}

func (s *oneObject) Create(ctx context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if s.live != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{}, "a")
	}
	return s.write(func() {
		s.live = u.DeepCopy()
		s.live.SetUID("u")
		s.manage(ctx, "")
	})
}

func (s *oneObject) Update(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if len(u.GetManagedFields()) > 0 && s.refuse != nil {
		return nil, s.refuse
	}
	return s.write(func() {
		had, status := len(s.live.GetAnnotations()) > 0, s.live.Object["status"]
		s.live = u.DeepCopy()
		if delete(s.live.Object, "status"); status != nil {
			s.live.Object["status"] = status
		}
		if had && len(s.live.GetAnnotations()) == 0 {
			fields := s.live.GetManagedFields()
			for i := range fields {
				text := strings.ReplaceAll(fields[i].FieldsV1.GetRawString(), `"f:annotations":{},`, "")
				fields[i].FieldsV1.SetRawString(text)
			}
			s.live.SetManagedFields(fields)
		}
	})
}

func (s *oneObject) UpdateStatus(ctx context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return s.write(func() {
		s.live.Object["status"] = u.DeepCopy().Object["status"]
		s.manage(ctx, "status")
	})
}

// oneContent is the snapshot of one object.
type oneContent string

func (c oneContent) Bytes(object.Ref) ([]byte, error) { return []byte(c), nil }

func (c oneContent) Drop(object.Ref) {}

const (
	configHead = `{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfig",` +
		`"metadata":{"name":"a","namespace":"n"`
	emptyMap = `{"f:metadata":{"f:annotations":{},"f:labels":{"f:l":{}}}}`
	// applied and plain are a KubeadmConfig with a server-side applier, and one without.
	applied = configHead + `,"labels":{"l":"1"},"managedFields":[{"manager":"m","operation":` +
		`"Apply","fieldsV1":` + emptyMap + `}]},"status":{"a":"b"}}`
	plain = configHead + `,"labels":{"l":"1"}},"status":{"a":"b"}}`
)

// oneRestore is an operation that restores one KubeadmConfig, in any number of runs.
type oneRestore struct {
	catalog *catalog.Catalog
	id      catalog.OperationID
	object  Object
	content oneContent
}

func newOneRestore(t *testing.T, content string) *oneRestore {
	t.Helper()
	c, err := catalog.Open(t.Context(), t.TempDir()+"/catalog.db", catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		catalog.PostTestCheck(t, c)
		c.Close()
	})
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	return &oneRestore{catalog: c, id: op.ID, content: oneContent(content),
		object: Object{Ref: object.Ref{Group: capi.GroupBootstrap, Kind: "KubeadmConfig",
			Namespace: "n", Name: "a"}, Version: "v1beta2", Wave: 1, Action: Create}}
}

// run is a new process: it knows what the journal has, and no more.
func (o *oneRestore) run(t *testing.T, s *oneObject) *run {
	t.Helper()
	r := newRun(t.Context(), RunOptions{
		Plan:   &Plan{Shared: Unit{Objects: []Object{o.object}}},
		Reader: s, Writer: s, Contents: o.content, Operation: string(o.id),
		Journal: o.catalog.Journal(o.id, catalog.JournalOptions{}),
		Kinds: []kube.Kind{{GroupKind: o.object.GroupKind(), Version: "v1beta2",
			Served: []string{"v1beta2"}, Status: true}},
	})
	if err := r.prepareRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (o *oneRestore) create(t *testing.T, s *oneObject) error {
	t.Helper()
	return o.run(t, s).createWave(t.Context(), "", []Object{o.object})
}

// TestI5AnObjectIsCompletedWhereverItsRestoreDied: a copy gets its status and then the snapshot's
// managedFields, with the empty map that an applier owns. No write is made to mark it or to remove
// a mark.
func TestI5AnObjectIsCompletedWhereverItsRestoreDied(t *testing.T) {
	for _, content := range []string{applied, plain} {
		writes := map[string]int{applied: 3, plain: 2}[content]
		for dies := range writes + 1 {
			for _, lost := range []bool{false, true} {
				if lost && dies == 0 {
					continue
				}
				o, s := newOneRestore(t, content), &oneObject{dies: dies, lost: lost}
				err := o.create(t, s)
				if died := errors.Is(err, errDied); died != (dies < writes || lost) || err != nil && !died {
					t.Errorf("dies at %d: %v", dies, err)
				}
				s.dies = -1
				if err := o.create(t, s); err != nil {
					t.Errorf("died at %d, again: %v", dies, err)
				}
				if s.live.Object["status"] == nil || s.writes != writes || len(s.live.GetAnnotations()) > 0 {
					t.Errorf("died at %d (%t): %d writes made %v", dies, lost, s.writes, s.live.Object)
				}
				if content == applied && s.live.GetManagedFields()[0].FieldsV1.GetRawString() != emptyMap {
					t.Errorf("died at %d: managedFields %v", dies, s.live.GetManagedFields())
				}
			}
		}
	}
}

// TestI5AnObjectOfAnEarlierVersionLosesItsAnnotation: earlier versions marked an object with an
// annotation, which goes before the managedFields are written.
func TestI5AnObjectOfAnEarlierVersionLosesItsAnnotation(t *testing.T) {
	for dies := range 4 {
		o := newOneRestore(t, applied)
		s := &oneObject{dies: dies, live: decoded(t, configHead+
			`,"uid":"u","labels":{"l":"1"},"annotations":{"mgmtd.dev/operation":"`+string(o.id)+`"}}}`)}
		if err := o.create(t, s); errors.Is(err, errDied) != (dies < 3) {
			t.Errorf("dies at %d: %v", dies, err)
		}
		s.dies = -1
		if err := o.create(t, s); err != nil {
			t.Errorf("died at %d, again: %v", dies, err)
		}
		if len(s.live.GetAnnotations()) > 0 || s.live.Object["status"] == nil || s.writes != 3 ||
			s.live.GetManagedFields()[0].FieldsV1.GetRawString() != emptyMap {
			t.Errorf("died at %d: %d writes made %v", dies, s.writes, s.live.Object)
		}
	}
}

// TestResumeLeavesAFinishedObjectToItsControllers: of two objects of a wave one was finished and
// the other failed. A resume days later does not write what controllers wrote since to the first
// one.
func TestResumeLeavesAFinishedObjectToItsControllers(t *testing.T) {
	for _, content := range []string{applied, plain} {
		o, s := newOneRestore(t, content), &oneObject{dies: -1}
		r := o.run(t, s)
		err := r.Journal.Do(t.Context(), r.createStep("", 1), func(ctx context.Context,
			h *catalog.StepHandle) error {
			return errors.Join(r.createObjects(ctx, h, "", []Object{o.object}, r.each), errDied)
		})
		if !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		s.live.Object["status"] = map[string]any{"a": "c"}
		s.manage(kube.WithFieldManager(t.Context(), "controller"), "")
		before := s.live.DeepCopy()
		if err := o.create(t, s); err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(before, s.live) {
			t.Errorf("it is %v, was %v", s.live, before)
		}
	}
}

// TestRefusedManagedFieldsAreAWarning: a policy of the target that refuses them fails no unit.
func TestRefusedManagedFieldsAreAWarning(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("policy")),
		apierrors.NewInvalid(schema.GroupKind{}, "a", nil),
	} {
		o, s := newOneRestore(t, applied), &oneObject{dies: -1, refuse: refusal}
		if err := o.create(t, s); err != nil {
			t.Error(err)
		}
		found := false
		for e, err := range o.catalog.Events(t.Context(), o.id, 0) {
			if err != nil {
				t.Fatal(err)
			}
			found = found || e.Finding != nil && e.Finding.Code == object.CodeManagedFields &&
				e.Finding.Severity == object.Warning && e.Finding.Ref == o.object.Ref
		}
		if !found {
			t.Error("there is no warning")
		}
	}
}

// TestManagedFieldsNeverBlockARelease: a difference in them is a warning and no difference of the
// object.
func TestManagedFieldsNeverBlockARelease(t *testing.T) {
	const head = `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"name":"a","namespace":"n"`
	source := decoded(t, head+
		`,"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:spec":{"f:a":{}}}}]},"spec":{"a":"b"}}`)
	live := decoded(t, head+`,"uid":"u"},"spec":{"a":"b"}}`)
	r := newRun(t.Context(), RunOptions{Plan: &Plan{}})
	o := Object{Ref: object.Ref{Group: "cluster.x-k8s.io", Kind: "Machine", Namespace: "n", Name: "a"},
		Action: Create}
	r.unitOf[o.Ref] = "n/w"
	var seen notes
	verified, why := r.difference(t.Context(), o, source, live)
	if why != "" {
		t.Errorf("verify: %s", why)
	}
	seen.addDeviation(o.Ref, verified)
	p := &planner{Input: Input{Snapshot: &snapshot.Snapshot{Graph: &graph.Graph{}}}}
	d, fields := p.differences(t.Context(), o.Ref, source, live, false)
	if len(d.lost) > 0 || len(fields) != 1 {
		t.Errorf("pre-flight: %v, managedFields %v", d.lost, fields)
	}
	findings := seen.findings("n/w")
	if len(findings) != 1 {
		t.Fatalf("findings %v", findings)
	}
	if f := findings[0]; f.Severity != object.Warning || f.Unit != "n/w" || f.Ref != o.Ref ||
		!strings.Contains(f.Message, "metadata.managedFields[m].spec.a") {
		t.Errorf("finding %v", f)
	}
}

// TestAStatusWithoutASubresourceIsPartOfItsObject: a write of the object that left it out would
// remove it.
func TestAStatusWithoutASubresourceIsPartOfItsObject(t *testing.T) {
	u := decoded(t, plain)
	for _, has := range []bool{true, false} {
		sent := withoutStatus(kube.Kind{Status: has}, u)
		if (sent.Object["status"] == nil) != has || u.Object["status"] == nil {
			t.Errorf("with a subresource %t: sent %v of %v", has, sent.Object, u.Object)
		}
	}
}
