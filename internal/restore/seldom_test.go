package restore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// healthCheck is a MachineHealthCheck as its controller left it.
func healthCheck(t *testing.T, name, paused, limit string) (Object, *unstructured.Unstructured) {
	t.Helper()
	ref := object.Ref{Group: capi.GroupCore, Kind: "MachineHealthCheck", Namespace: "n", Name: name}
	return Object{Ref: ref, Version: "v1beta2", Action: Create}, decoded(t, fmt.Sprintf(
		`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachineHealthCheck","metadata":{"name":%q,`+
			`"namespace":"n","generation":1},"spec":{"clusterName":%q},"status":{"conditions":[`+
			`{"type":"Paused","status":%q,"observedGeneration":1}]}}`, name, limit, paused))
}

// TestPostFlightWaitsForOneObjectThatIsReconciledSeldom: the controller of MachineHealthChecks
// acknowledges the end of a pause up to 15 s late. Once one has it, the others of the kind need not
// have it, also in a later run that shares what was seen; all of them must be equal.
func TestPostFlightWaitsForOneObjectThatIsReconciledSeldom(t *testing.T) {
	var seen sync.Map
	first := newRun(t.Context(), RunOptions{Plan: &Plan{}, Hooks: Hooks{Seldom: &seen}})
	second := newRun(t.Context(), RunOptions{Plan: &Plan{}, Hooks: Hooks{Seldom: &seen}})
	alone := newRun(t.Context(), RunOptions{Plan: &Plan{}})
	o, source := healthCheck(t, "a", "True", "c")
	_, waits := healthCheck(t, "a", "True", "c")
	_, acknowledged := healthCheck(t, "a", "False", "c")
	_, changed := healthCheck(t, "a", "False", "other")
	for _, tt := range []struct {
		name string
		run  *run
		o    Object
		live *unstructured.Unstructured
		want string
	}{
		{"none was seen", first, o, waits, "Paused is True"},
		{"one that differs is no proof", first, o, changed, "spec.clusterName"},
		{"after one that differs", first, o, waits, "Paused is True"},
		{"one that was paused before the operation is no proof", first,
			Object{Ref: o.Ref, Action: Create, Paused: true}, acknowledged, ""},
		{"one that was adopted is no proof", first, Object{Ref: o.Ref, Action: Adopt}, acknowledged, ""},
		{"after one that was paused before", first, o, waits, "Paused is True"},
		{"it has acknowledged", first, o, acknowledged, ""},
		{"one was seen", first, o, waits, ""},
		{"one was seen in an earlier run", second, o, waits, ""},
		{"it differs", second, o, changed, "spec.clusterName"},
		{"a run of its own", alone, o, waits, "Paused is True"},
	} {
		why := tt.run.problemOf(t.Context(), Unit{}, false)(tt.o, source, tt.live)
		if why != tt.want && (tt.want == "" || !strings.Contains(why, tt.want)) {
			t.Errorf("%s: got %q, want %q", tt.name, why, tt.want)
		}
	}
	machine := Object{Ref: object.Ref{Group: capi.GroupCore, Kind: "Machine", Namespace: "n", Name: "m"}}
	if first.noteSeldom(machine, acknowledged); first.seldomAtWork(machine.GroupKind()) {
		t.Error("a kind whose controller reconciles at once counts")
	}
}

// healthCheckReader is a target with MachineHealthChecks.
type healthCheckReader struct {
	Reader
	t    *testing.T
	live []*unstructured.Unstructured
}

func (h healthCheckReader) List(_ context.Context, _ kube.Kind, _ kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	for _, u := range h.live {
		raw, err := u.MarshalJSON()
		if err == nil {
			err = fn(raw)
		}
		if err != nil {
			h.t.Error(err)
		}
	}
	return kube.ListResult{}, nil
}

// TestObserveLooksAtWhatIsReconciledSeldom: what the post-flight has not waited for is reported
// when it is still not acknowledged in the end.
func TestObserveLooksAtWhatIsReconciledSeldom(t *testing.T) {
	a, late := healthCheck(t, "a", "True", "c")
	b, seen := healthCheck(t, "b", "False", "c")
	c, before := healthCheck(t, "c", "True", "c") // paused before the operation
	_, other := healthCheck(t, "z", "True", "c")  // of somebody else
	c.Paused = true
	r := newRun(t.Context(), RunOptions{
		Plan: &Plan{Units: []Unit{{Name: "n/c", Objects: []Object{a, b, c}},
			{Name: "n/d", Blocked: true, Objects: []Object{a}}}},
		Kinds: []kube.Kind{{GroupKind: a.GroupKind(), Version: "v1beta2", Namespaced: true}},
	})
	for name, tt := range map[string]struct {
		live []*unstructured.Unstructured
		want int
	}{
		"one is late":               {[]*unstructured.Unstructured{late, seen, before, other}, 1},
		"all that were released":    {[]*unstructured.Unstructured{seen, before, other}, 0},
		"those that are gone, too":  {nil, 0},
		"one that was not released": {[]*unstructured.Unstructured{other}, 0},
	} {
		r.Reader = healthCheckReader{t: t, live: tt.live}
		left, err := r.seldomLeft(t.Context())
		if err != nil || len(left[a.GroupKind()]) != tt.want {
			t.Errorf("%s: %v, %v", name, left, err)
		}
	}
}
