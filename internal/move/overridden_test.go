package move

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestI1APlanAsksTheOwnersThatAreOverridden: each once, and neither the sides of the move nor an
// owner whose record counts. Without an answer about them there is no plan.
func TestI1APlanAsksTheOwnersThatAreOverridden(t *testing.T) {
	named := func(name string) object.Side { return object.Side{Name: name, UID: "uid-" + name} }
	e := Ends{Source: Mgmt{Side: named("a")}, Target: Mgmt{Side: named("b")}}
	owners := map[string]ownership.Record{}
	for id, by := range map[string]string{"1": "a", "2": "b", "3": "c", "4": "c", "5": "d"} {
		owners[id] = ownership.Record{By: named(by)}
	}
	var asked []object.Side
	answer := map[string]preflight.Overridden{"uid-c": {Owner: named("c")}}
	away := errors.New("the store does not answer")
	var err error
	e.Overridden = func(_ context.Context, owners ...object.Side) (map[string]preflight.Overridden, error) {
		asked = owners
		return answer, err
	}
	for _, err = range []error{nil, away} {
		got, is := e.askOverridden(t.Context(), restore.Input{Owners: owners,
			Spec: restore.Spec{Force: object.Forced{object.CodeOwnedElsewhere: "c"}}})
		if !slices.Equal(asked, []object.Side{named("c")}) || !errors.Is(is, err) || len(got) != 1 {
			t.Errorf("asked %v, got %v, %v", asked, got, is)
		}
	}
	asked = nil
	if got, err := e.askOverridden(t.Context(), restore.Input{Owners: owners}); err != nil ||
		got != nil || asked != nil {
		t.Errorf("without an override: asked %v, got %v, %v", asked, got, err)
	}
}
