package restore

import (
	"errors"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// TestAUnitInWorkAloneIsInMemory: the contents of a unit are freed when the run has nothing left to
// do for it, those of shared objects and of other units are not.
func TestAUnitInWorkAloneIsInMemory(t *testing.T) {
	o := newOneRestore(t, plain)
	unit := Unit{Name: "n/w", Objects: []Object{{Ref: o.object.Ref, Wave: 1, Action: Skip}}}
	contents := &dropped{}
	r := newRun(t.Context(), RunOptions{Contents: contents, Operation: string(o.id),
		Plan: &Plan{Spec: Spec{NoRelease: true}, Shared: Unit{Objects: []Object{{Ref: object.Ref{
			Kind: "Secret", Namespace: "n", Name: "shared"}}}}, Units: []Unit{unit}},
		Journal: o.catalog.Journal(o.id, catalog.JournalOptions{})})
	result := &results{released: map[string]bool{}, failed: map[string]bool{}}
	r.carryOut(t.Context(), unit, result, &task.Group{})
	if result.first != nil || len(contents.refs) != 1 || contents.refs[0] != o.object.Ref {
		t.Errorf("%v; dropped %v", result.first, contents.refs)
	}
}

// dropped are contents that note what is dropped.
type dropped struct {
	oneContent
	refs []object.Ref
}

func (d *dropped) Drop(r object.Ref) { d.refs = append(d.refs, r) }

// buggy are contents that panic, as what reads them may.
type buggy struct{ oneContent }

func (buggy) Bytes(object.Ref) ([]byte, error) { panic("a bug") }

// TestAUnitThatPanicsHasFailed: it does not count as done because nobody looked at its error.
func TestAUnitThatPanicsHasFailed(t *testing.T) {
	o := newOneRestore(t, plain)
	unit := Unit{Name: "n/w", Objects: []Object{{Ref: o.object.Ref, Wave: 1, Action: Create}}}
	r := newRun(t.Context(), RunOptions{Contents: buggy{}, Operation: string(o.id),
		Plan:    &Plan{Spec: Spec{NoRelease: true}, Units: []Unit{unit}},
		Journal: o.catalog.Journal(o.id, catalog.JournalOptions{})})
	result := r.restoreUnits(t.Context())
	if _, ok := errors.AsType[*task.PanicError](result.first); !ok || !result.failed["n/w"] {
		t.Errorf("failed: %v, first error: %v", result.failed, result.first)
	}
}
