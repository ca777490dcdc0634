package move

import (
	"fmt"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestAllBatchesAreObservedTogether: each batch had an observation of its own, one after the other.
func TestAllBatchesAreObservedTogether(t *testing.T) {
	unit := func(name string, machines ...string) restore.Unit {
		u := restore.Unit{Name: name}
		for _, machine := range machines {
			u.Objects = append(u.Objects, restore.Object{Ref: object.Ref{Kind: "Machine", Name: machine}})
		}
		return u
	}
	batchOf := func(shared restore.Unit, units ...restore.Unit) *batch {
		return &batch{Copy: restore.Plan{Units: units, Shared: shared, Blocked: true}}
	}
	m := &run{results: results{retired: map[string]bool{"n/a": true, "n/b": true, "n/d": true}}}
	blocked := unit("n/d")
	blocked.Blocked = true
	m.batches = []*batch{
		batchOf(unit("", "s"), unit("n/a", "a0"), unit("n/b", "b0")), // b was given back
		batchOf(unit("", "s"), unit("n/b", "b1"), unit("n/c", "c0"), blocked),
		batchOf(unit(""), unit("n/d", "d0")),
	}
	plan, contents := m.retired()
	var got []string
	for _, u := range plan.Units {
		for _, o := range u.Objects {
			got = append(got, u.Name+" "+o.Name)
		}
	}
	if want := "[n/a a0 n/b b1 n/d d0]"; want != fmt.Sprint(got) || plan.Blocked ||
		len(plan.Shared.Objects) > 0 {
		t.Errorf("got %v, want %s; blocked %t, shared %v", got, want, plan.Blocked, plan.Shared)
	}
	if _, err := contents.Bytes(object.Ref{Kind: "Machine", Name: "a0"}); err == nil {
		t.Error("contents that are not in memory are no error")
	}
}
