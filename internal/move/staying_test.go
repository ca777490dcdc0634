package move

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestI1WhatIsForUnitsThatStay: a copy of a shared object is left out of the release only when all
// units that use it, by any plan, stay on the source.
func TestI1WhatIsForUnitsThatStay(t *testing.T) {
	shared := func(name string, users ...string) restore.Object {
		return restore.Object{Ref: object.Ref{Kind: "Secret", Namespace: "ns", Name: name}, Users: users}
	}
	planOf := func(objects ...restore.Object) restore.Plan {
		return restore.Plan{Shared: restore.Unit{Objects: objects}}
	}
	m := &run{Units: map[string]catalog.UnitState{"ns/back": catalog.UnitRolledBack,
		"ns/left": catalog.UnitGivenBack, "ns/blocked": catalog.UnitBlocked}}
	m.results.gone = map[string]bool{"ns/gone": true}
	m.Plan = &Plan{Copy: planOf(shared("both", "ns/gone", "ns/back", "ns/blocked", "ns/unfit"),
		shared("other", "ns/gone"), shared("plan", "ns/gone", "ns/moves"),
		shared("pending", "ns/gone", "ns/left"), shared("none"))}
	for _, name := range []string{"gone", "back", "blocked", "left"} {
		m.Plan.Copy.Units = append(m.Plan.Copy.Units, restore.Unit{Name: "ns/" + name})
	}
	m.Plan.Copy.Units = append(m.Plan.Copy.Units, restore.Unit{Name: "ns/unfit", Blocked: true})
	m.pre.plans = []*batch{{Copy: planOf(shared("plan", "ns/gone"), shared("new", "ns/back"))}}
	m.batches = []*batch{{Copy: planOf(shared("other", "ns/moves"))}}
	theirs := func() (got []string) {
		for _, name := range []string{"both", "other", "plan", "pending", "none", "new"} {
			if m.staying().onlyTheirs(shared(name).Ref) {
				got = append(got, name)
			}
		}
		return got
	}
	if got, want := theirs(), []string{"both", "new"}; !slices.Equal(got, want) {
		t.Errorf("only for those that stay: %v, want %v", got, want)
	}
	m.Units["ns/left"] = catalog.UnitRolledBack
	if got, want := theirs(), []string{"both", "pending", "none", "new"}; !slices.Equal(got, want) {
		t.Errorf("when nothing moves: %v, want %v", got, want)
	}
}

// TestI1APoolThatTheSourceUsesStaysPaused: one of its users moved, and another one stays. Without
// an answer of the source that one may be there.
func TestI1APoolThatTheSourceUsesStaysPaused(t *testing.T) {
	pool := object.Ref{Group: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Namespace: "ns", Name: "p"}
	m := &run{Plan: &Plan{}}
	_, m.Journal = newJournal(t, catalog.Options{})
	stays := staying{users: map[object.Ref][]string{pool: {"ns/stays"}}, kept: map[object.Ref]bool{}}
	keeps := func(s staying, ref object.Ref) bool {
		t.Helper()
		is, err := m.keepsPool(t.Context(), &s, restore.Object{Ref: ref}, true)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	secret := object.Ref{Kind: "Secret", Namespace: "ns", Name: "p"}
	stays.users[secret] = stays.users[pool]
	if !keeps(stays, pool) || keeps(stays, secret) || keeps(staying{}, pool) {
		t.Errorf("kept: %v; a Secret: %v; when all move: %v", keeps(stays, pool), keeps(stays, secret),
			keeps(staying{}, pool))
	}
	const mark = `"mgmtd.dev/was-paused":"absent"`
	for annotations, want := range map[string]bool{"": false,
		mark + `,"cluster.x-k8s.io/paused":""`: true, mark: false} { // somebody has ended its pause
		m.Target = Mgmt{Reader: serve(t, map[string]string{
			"/apis/ipam.cluster.x-k8s.io/v1beta2/namespaces/ns/inclusterippools/p": `{"apiVersion":
				"ipam.cluster.x-k8s.io/v1beta2","kind":"InClusterIPPool","metadata":{"namespace":"ns",
				"name":"p","annotations":{` + annotations + `}}}`}), Kinds: []kube.Kind{{GroupKind: pool.GroupKind(),
			Version: "v1beta2", Resource: "inclusterippools", Namespaced: true}}}
		clear(stays.kept)
		for range 2 { // the second one knows it
			if keeps(stays, pool) != want {
				t.Errorf("with the annotations %q it stays paused: %v", annotations, !want)
			}
		}
	}
	m.Plan.Spec.Force = object.Forced{object.CodePoolShared: ""}
	if keeps(stays, pool) {
		t.Error("the operator overrides it")
	}
}
