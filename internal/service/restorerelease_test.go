package service

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestReleaseIsForTheUnitsThatARestoreLeftPaused: nobody vouches any more that the source is gone,
// unless the operator does it now.
func TestReleaseIsForTheUnitsThatARestoreLeftPaused(t *testing.T) {
	accepted := object.AcceptedDifference{GroupKind: object.GroupKind{Kind: "Machine"}, Path: "spec.a"}
	p := restore.Plan{Spec: restore.Spec{NoRelease: true, SourceIsGone: true,
		Selection: restore.Selection{Namespaces: []string{"n"}}, ManagedFields: restore.FieldsAll},
		Units: []restore.Unit{{Name: "n/a"}, {Name: "n/b", Blocked: true}}}
	spec := releaseSpec(p, restore.Spec{Accept: []object.AcceptedDifference{accepted}})
	if spec.NoRelease || spec.SourceIsGone || !slices.Equal(spec.Only, []string{"n/a"}) ||
		!slices.Equal(spec.Accept, []object.AcceptedDifference{accepted}) ||
		spec.ManagedFields != restore.FieldsAll || len(spec.Selection.Namespaces) != 1 {
		t.Errorf("spec %+v", spec)
	}
	if spec = releaseSpec(p, restore.Spec{SourceIsGone: true}); !spec.SourceIsGone {
		t.Error("the operator's word is lost")
	}
}

func TestOnlyAFinishedRestoreWithoutReleaseIsReleased(t *testing.T) {
	c, err := catalog.Open(t.Context(), t.TempDir()+"/c.db", catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		name      string
		kind      catalog.Kind
		noRelease bool
		end       catalog.State
		ok        bool
	}{
		{"a finished one", catalog.KindRestore, true, catalog.Succeeded, true},
		{"one that has released", catalog.KindRestore, false, catalog.Succeeded, false},
		{"one that has not ended", catalog.KindRestore, true, catalog.Failed, false},
		{"a move", catalog.KindMove, true, catalog.Succeeded, false},
	} {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: tt.kind})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(storedRestore{Plan: restore.Plan{
			Spec: restore.Spec{NoRelease: tt.noRelease}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutPlan(t.Context(), op.ID, bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		for _, state := range []catalog.State{catalog.Running, tt.end} {
			if op, err = c.SetState(t.Context(), op.ID, state, catalog.Outcome{}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = pausedRestore(t.Context(), c, op)
		if (err == nil) != tt.ok || err != nil && classify(err).Reason != ReasonUsage {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
