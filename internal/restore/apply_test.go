package restore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// oneObject is an API server with one object. As a real one, it takes the managedFields of an
// update, and then removes from them the map of annotations when that update removes the last one.
// It fails every write once so many have been made.
type oneObject struct {
	Reader
	live   *unstructured.Unstructured
	writes int
	dies   int
}

var errDied = errors.New("the process died")

func (s *oneObject) Get(context.Context, kube.Kind, string, string) (*unstructured.Unstructured,
	error) {
	return s.live.DeepCopy(), nil
}

func (s *oneObject) Create(context.Context, kube.Kind, *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return nil, errors.New("it is there already")
}

func (s *oneObject) Update(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if s.writes == s.dies {
		return nil, errDied
	}
	s.writes++
	had := len(s.live.GetAnnotations()) > 0
	s.live = u.DeepCopy()
	if had && len(s.live.GetAnnotations()) == 0 {
		fields := s.live.GetManagedFields()
		for i := range fields {
			text := strings.ReplaceAll(fields[i].FieldsV1.GetRawString(), `"f:annotations":{},`, "")
			fields[i].FieldsV1.SetRawString(text)
		}
		s.live.SetManagedFields(fields)
	}
	return s.live.DeepCopy(), nil
}

func (s *oneObject) UpdateStatus(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if s.writes == s.dies {
		return nil, errDied
	}
	s.writes++
	s.live.Object["status"] = u.DeepCopy().Object["status"]
	return s.live.DeepCopy(), nil
}

// TestI5CompleteWritesManagedFieldsLast: a copy gets the snapshot's managedFields, with the empty
// map that an applier owns, wherever its process died before. The mark goes in a write before them.
func TestI5CompleteWritesManagedFieldsLast(t *testing.T) {
	const head = `{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfig","metadata":{"name":"a","namespace":"n"`
	const fields = `{"f:metadata":{"f:annotations":{},"f:labels":{"f:l":{}}}}`
	source := decoded(t, head+
		`,"labels":{"l":"1"},"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":`+fields+
		`}]},"status":{"a":"b"}}`)
	kind := kube.Kind{Status: true, GroupKind: object.GroupKind{Group: "bootstrap.cluster.x-k8s.io",
		Kind: "KubeadmConfig"}}
	o := Object{Ref: object.Ref{Group: kind.Group, Kind: kind.Kind, Namespace: "n", Name: "a"},
		Action: Create}
	for dies := range 4 {
		s := &oneObject{dies: dies, live: decoded(t, head+
			`,"uid":"u","labels":{"l":"1"},"annotations":{"mgmtd.dev/operation":"0123456789ab"}}}`)}
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Reader: s, Writer: s,
			Operation: "0123456789ab"})
		r.setUID(o.Ref, "u")
		err := r.complete(t.Context(), kind, o, source, s.live.DeepCopy())
		if died := errors.Is(err, errDied); died != (dies < 3) || err != nil && !died {
			t.Errorf("dies at %d: %v", dies, err)
		}
		s.dies = -1
		if err := r.complete(t.Context(), kind, o, source, s.live.DeepCopy()); err != nil {
			t.Errorf("died at %d, again: %v", dies, err)
		}
		if isMarked(s.live) || s.live.GetManagedFields()[0].FieldsV1.GetRawString() != fields ||
			s.live.Object["status"] == nil || s.writes != 3 {
			t.Errorf("died at %d: %d writes made %v", dies, s.writes, s.live.Object)
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
	if _, why := r.difference(t.Context(), o, source, live); why != "" {
		t.Errorf("verify: %s", why)
	}
	p := &planner{Input: Input{Snapshot: &snapshot.Snapshot{Graph: &graph.Graph{}}}}
	d, fields := p.differences(t.Context(), o.Ref, source, live, false)
	if len(d.lost) > 0 || len(fields) != 1 {
		t.Errorf("pre-flight: %v, managedFields %v", d.lost, fields)
	}
	var seen notes
	seen.add(object.CodeManagedFields, o.Ref, r.fieldsDiffer(o, source, live))
	findings := seen.findings("n/w")
	if len(findings) != 1 {
		t.Fatalf("findings %v", findings)
	}
	if f := findings[0]; f.Severity != object.Warning || f.Unit != "n/w" || f.Ref != o.Ref ||
		!strings.Contains(f.Message, "metadata.managedFields[m].spec.a") {
		t.Errorf("finding %v", f)
	}
}
