package restore

import (
	"errors"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/task"
)

// TestAPlanThatCannotBeEncodedIsNotStored: not in part either, also when the encoder panics.
func TestAPlanThatCannotBeEncodedIsNotStored(t *testing.T) {
	x := newTrial(t, withCredentials(t), newMemory(t, "target"))
	op, err := x.catalog.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	for name, stored := range map[string]any{
		"an error": map[string]any{"a": make([]int, 10000), "b": make(chan int)},
		"a panic":  panics{},
	} {
		err := put(t.Context(), x.catalog, op.ID, stored)
		_, panicked := errors.AsType[*task.PanicError](err)
		if err == nil || panicked != (name == "a panic") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := x.catalog.Plan(t.Context(), op.ID); !errors.Is(err, catalog.ErrNotFound) {
			t.Errorf("%s: a plan is stored: %v", name, err)
		}
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("of a test") }
