package restore

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// TestI1AUnitThatTheTargetRefusesHasNotEnded: in a move, such a unit is paused on the source. A
// rollback gives back what has not ended, and the state "blocked" is an end.
func TestI1AUnitThatTheTargetRefusesHasNotEnded(t *testing.T) {
	x := newTrial(t, twoTenants(t), newMemory(t, "target"))
	x.target.refuseDry = refuses("Cluster.cluster.x-k8s.io/two/w")
	_, err := x.run(t)
	if incomplete, ok := errors.AsType[*IncompleteError](err); !ok || incomplete.Blocked != 1 {
		t.Fatalf("with a refused unit: %v", err)
	}
	for e, err := range x.catalog.Events(t.Context(), x.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == catalog.EventUnit && e.State == string(catalog.UnitBlocked) {
			t.Errorf("unit %s is journaled as %s", e.Unit, e.State)
		}
	}
}

// TestADryRunThatEndsWithItsContextIsNoRefusal: a unit must not be blocked because the operation
// was stopped.
func TestADryRunThatEndsWithItsContextIsNoRefusal(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	m := newMemory(t, "target")
	m.refuseDry = func(*unstructured.Unstructured) error {
		cancel(stopped)
		return ctx.Err()
	}
	body := decoded(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`)
	var rows *capi.Table
	a, err := standard{prober: m}.ask(ctx, rows, kube.NamespaceKind, body)
	if !errors.Is(err, stopped) || a.refusal != "" {
		t.Errorf("answer %+v, error %v", a, err)
	}
}
