package move

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestI1WhatIsForUnitsThatHaveLeft: a copy of a shared object is not released for units that the
// source has, and is left out of the release only when no other unit uses it, by any plan.
func TestI1WhatIsForUnitsThatHaveLeft(t *testing.T) {
	shared := func(name string, users ...string) restore.Object {
		return restore.Object{Ref: object.Ref{Kind: "Secret", Namespace: "ns", Name: name}, Users: users}
	}
	planOf := func(objects ...restore.Object) restore.Plan {
		return restore.Plan{Shared: restore.Unit{Objects: objects}}
	}
	m := &run{Units: map[string]catalog.UnitState{"ns/back": catalog.UnitRolledBack,
		"ns/left": catalog.UnitGivenBack}}
	m.results.gone = map[string]bool{"ns/gone": true}
	m.Plan = &Plan{Copy: planOf(shared("both", "ns/gone", "ns/back"), shared("other", "ns/gone"),
		shared("plan", "ns/gone", "ns/moves"), shared("pending", "ns/gone", "ns/left"), shared("none"))}
	m.pre.plans = []*batch{{Copy: planOf(shared("plan", "ns/gone"), shared("new", "ns/back"))}}
	m.batches = []*batch{{Copy: planOf(shared("other", "ns/moves"))}}
	var got []string
	for _, name := range []string{"both", "other", "plan", "pending", "none", "new"} {
		if m.isForLeft(shared(name)) {
			got = append(got, name)
		}
	}
	if want := []string{"both", "new"}; !slices.Equal(got, want) {
		t.Errorf("for those that have left: %v, want %v", got, want)
	}
}
