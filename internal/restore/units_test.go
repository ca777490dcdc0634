package restore

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

func TestWavesDivideSortedObjects(t *testing.T) {
	var sizes []int
	for _, wave := range Waves([]Object{{Wave: 1}, {Wave: 1}, {Wave: 2}, {Wave: 5}}) {
		sizes = append(sizes, len(wave))
	}
	if len(sizes) != 3 || sizes[0] != 2 || sizes[1] != 1 || sizes[2] != 1 {
		t.Errorf("waves of %v objects", sizes)
	}
	if len(Waves(nil)) > 0 {
		t.Error("no objects have a wave")
	}
}

// TestResultsOfAUnitThatFailsAfterItsRelease: it is released, and failed; the first error is the
// one of the run.
func TestResultsOfAUnitThatFailsAfterItsRelease(t *testing.T) {
	s := &results{released: map[string]bool{}, failed: map[string]bool{}}
	first := errors.New("post-flight")
	s.add("n/a", nil, true)
	s.add("n/a", first, true)
	s.add("n/b", errors.New("create"), false)
	if !s.released["n/a"] || s.released["n/b"] || s.failures() != 2 || !errors.Is(s.first, first) ||
		s.first.Error() != "n/a: post-flight" {
		t.Errorf("released %v, failed %v, first %v", s.released, s.failed, s.first)
	}
}

// TestSharedObjectsWaitForTheUnitsThatMayUseThem: one in a namespace for the units there, a
// cluster-scoped one for the units that need it. Units of other plans of the operation count, units
// that are blocked do not.
func TestSharedObjectsWaitForTheUnitsThatMayUseThem(t *testing.T) {
	inA := Object{Ref: object.Ref{Kind: "Set", Namespace: "a", Name: "x"}}
	pool := Object{Ref: object.Ref{Kind: "Pool", Name: "x"}, Users: []string{"a/1"}}
	unnamed := Object{Ref: object.Ref{Kind: "Config", Name: "x"}}
	plan := &Plan{Units: []Unit{{Name: "a/1"}, {Name: "b/1"}, {Name: "c/1", Blocked: true}},
		Shared: Unit{Objects: []Object{inA, pool, unnamed}}}
	move := *plan
	move.Spec.SourceAtWork = true
	old := *plan
	old.Shared.Objects = []Object{inA, unnamed}
	for _, tt := range []struct {
		name     string
		plan     *Plan
		released map[string]bool
		want     string
	}{
		{"nothing is released", plan, nil, "Set Pool"},
		{"one of two", plan, map[string]bool{"a/1": true}, ""},
		{"the other one", plan, map[string]bool{"b/1": true}, "Set Pool"},
		{"all", plan, map[string]bool{"a/1": true, "b/1": true}, ""},
		{"all of this plan", plan, map[string]bool{"a/1": true, "b/1": true, "a/2": false}, "Set"},
		{"one of two in a move", &move, map[string]bool{"a/1": true}, "Config"},
		{"all in a move", &move, map[string]bool{"a/1": true, "b/1": true}, ""},
		{"one of two in a plan without users", &old, map[string]bool{"a/1": true}, "Pool Config"},
	} {
		r := newRun(t.Context(), RunOptions{Plan: tt.plan})
		var waiting []string
		for _, o := range []Object{inA, pool, unnamed} {
			if r.waitsFor(o, r.unreleased(tt.released)) {
				waiting = append(waiting, o.Kind)
			}
		}
		if got := strings.Join(waiting, " "); got != tt.want {
			t.Errorf("%s: %q wait, want %q", tt.name, got, tt.want)
		}
	}
}

// TestOnlyOurObjectsAreChanged: what carries our mark while no UID is journaled, and what has the
// journaled UID.
func TestOnlyOurObjectsAreChanged(t *testing.T) {
	ref := object.Ref{Group: capi.GroupCore, Kind: "Machine", Namespace: "n", Name: "a"}
	for _, tt := range []struct {
		name, journaled, uid, mark string
		ours                       bool
	}{
		{"journaled", "u1", "u1", "", true},
		{"journaled, and marked still", "u1", "u1", "0123456789ab", true},
		{"journaled, but another one has the name now", "u1", "u2", "0123456789ab", false},
		{"marked, by a run that died before it was journaled", "", "u1", "0123456789ab", true},
		{"marked by another operation", "", "u1", "ba9876543210", false},
		{"neither", "", "u1", "", false},
	} {
		for by, set := range map[string]func(u *unstructured.Unstructured){
			"field manager": func(u *unstructured.Unstructured) {
				u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: kube.MarkPrefix + tt.mark,
					Operation: metav1.ManagedFieldsOperationUpdate}})
			},
			"annotation, of an earlier version": func(u *unstructured.Unstructured) {
				capi.Annotate(u.Object, annotationOperation, tt.mark)
			},
		} {
			r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Operation: "0123456789ab"})
			if tt.journaled != "" {
				r.setUID(ref, tt.journaled)
			}
			live := decoded(t, `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine",`+
				`"metadata":{"name":"a","namespace":"n","uid":"`+tt.uid+`"}}`)
			if tt.mark != "" {
				set(live)
			}
			err := r.checkOurs(ref, live)
			var notOwned *notOwnedError
			if (err == nil) != tt.ours || err != nil && !errors.As(err, &notOwned) {
				t.Errorf("%s, by %s: %v", tt.name, by, err)
			}
		}
	}
}
