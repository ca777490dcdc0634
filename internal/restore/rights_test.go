package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// limited is a management cluster whose credentials lack rights: "verb resource" or "verb
// resource/subresource".
type limited struct {
	*memory
	lacks []string
}

func (l *limited) Allowed(_ context.Context, verb string, k kube.Kind, subresource string) (bool,
	error) {
	right := verb + " " + k.Resource
	if subresource != "" {
		right += "/" + subresource
	}
	return !slices.Contains(l.lacks, right), nil
}

func (l *limited) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	if slices.Contains(l.lacks, "list "+k.Resource) {
		return kube.ListResult{}, apierrors.NewForbidden(resourceOf(k), "", nil)
	}
	return l.memory.List(ctx, k, o, fn)
}

// TestRightsOfARollbackAreAskedBefore: a rollback patches and deletes. Without these rights a move
// does not begin, and a restore says that it cannot be rolled back.
func TestRightsOfARollbackAreAskedBefore(t *testing.T) {
	for _, move := range []bool{false, true} {
		source := twoTenantsOwning(t, `{"kind":"Machine","metadata":{"namespace":"one","name":"m",
			"labels":{"cluster.x-k8s.io/cluster-name":"w"},
			"ownerReferences":[{"kind":"Cluster","name":"w","blockOwnerDeletion":true}]},
			"spec":{"clusterName":"w"}}`,
			// its owner may be deleted before it: nobody asks for the finalizers of Machines
			`{"kind":"Secret","metadata":{"namespace":"one","name":"s",
			"labels":{"cluster.x-k8s.io/cluster-name":"w"},
			"ownerReferences":[{"kind":"Machine","name":"m"}]}}`)
		x := newTrial(t, source, newMemory(t, "target"))
		x.spec.SourceAtWork = move
		x.prober = &limited{memory: x.target, lacks: []string{"patch clusters", "delete clusters",
			"patch namespaces", "update clusters/finalizers", "update machines/finalizers"}}
		var got []string
		for _, f := range x.makePlan(t).Findings {
			if f.Code == object.CodeNotAllowed {
				what, _, _ := strings.Cut(f.Message, ";")
				got = append(got, f.Severity.String()+": "+
					strings.TrimPrefix(what, "the credentials for the target may not "))
			}
		}
		slices.Sort(got)
		undo := "warning"
		if move {
			undo = "error"
		}
		want := []string{undo + ": delete clusters.cluster.x-k8s.io",
			undo + ": patch clusters.cluster.x-k8s.io",
			"warning: update clusters.cluster.x-k8s.io/finalizers"}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("move %v: got %q, want %q", move, got, want)
		}
	}
}

// TestKindsThatMayNotBeListedMayHoldDependants: nothing is deleted while they are not known.
// TestADependantIsAFindingForTheUnitsOfAllItsOwners: one that blocked the first of them only would
// let a move hand over the others.
func TestADependantIsAFindingForTheUnitsOfAllItsOwners(t *testing.T) {
	m := newMemory(t, "target", `{"kind":"Secret","metadata":{"namespace":"one","name":"s",
		"ownerReferences":[{"uid":"c"},{"uid":"a"},{"uid":"other"},{"uid":"b"},{"uid":"shared"}]}}`)
	toDelete := map[string]object.Ref{}
	for _, uid := range []string{"a", "b", "c", "shared"} {
		toDelete[uid] = object.Ref{Kind: "Cluster", Namespace: "one", Name: uid}
	}
	findings, err := Dependants(t.Context(), m, toDelete, func(_, _ object.Ref) bool { return false },
		func(r object.Ref) string {
			return map[string]string{"a": "one/a", "b": "one/b", "c": "one/c"}[r.Name]
		})
	if err != nil || len(findings) != 1 || findings[0].Unit != "one/a" ||
		!slices.Equal(findings[0].Users, []string{"one/b", "one/c"}) {
		t.Errorf("%+v, %v", findings, err)
	}
}

func TestKindsThatMayNotBeListedMayHoldDependants(t *testing.T) {
	m := newMemory(t, "target", `{"kind":"Cluster","metadata":{"namespace":"one","name":"w"}}`)
	findings, err := Dependants(t.Context(), &limited{memory: m, lacks: []string{"list secrets"}},
		map[string]object.Ref{"uid": {Kind: "Cluster", Namespace: "one"}},
		func(_, _ object.Ref) bool { return false }, func(object.Ref) string { return "one/w" })
	if err != nil || len(findings) != 1 || findings[0].Code != object.CodeNotAllowed ||
		findings[0].Severity != object.Error || findings[0].Unit != "" {
		t.Errorf("%v, %v", findings, err)
	}
	x := pausedTrial(t)
	names := []string{x.plan.Units[0].Name}
	if _, err := x.catalog.SetState(t.Context(), x.id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	err = Undo(t.Context(), UndoOptions{RunOptions: RunOptions{Plan: x.plan, Reader: x.target,
		Writer: x.target, Kinds: x.target.kinds, Operation: string(x.id), Tuning: x.tuning,
		Journal: x.catalog.Journal(x.id, catalog.JournalOptions{})},
		Remover: &mortal{memory: x.target, writes: -1}, Units: names,
		Lister: &limited{memory: x.target, lacks: []string{"list secrets"}}})
	if err == nil || !strings.Contains(fmt.Sprint(err), "may not list secrets") {
		t.Errorf("undo: %v", err)
	}
}

// TestDependantsAreInTheNamespacesOfTheirOwners: what is in a namespace owns only what is there, so
// a search reads no more, unless an owner is in no namespace.
func TestDependantsAreInTheNamespacesOfTheirOwners(t *testing.T) {
	owned := `"ownerReferences":[{"uid":"uid","kind":"Cluster","name":"w"}]`
	m := newMemory(t, "target", `{"kind":"Secret","metadata":{"namespace":"one","name":"s",`+owned+`}}`,
		`{"kind":"Secret","metadata":{"namespace":"two","name":"s",`+owned+`}}`)
	for owner, want := range map[object.Ref]int{{Kind: "Cluster", Namespace: "one"}: 1,
		{Kind: "Cluster", Namespace: "three"}: 0, {Kind: "ClusterIdentity"}: 2} {
		findings, err := Dependants(t.Context(), m, map[string]object.Ref{"uid": owner},
			func(_, _ object.Ref) bool { return false }, func(object.Ref) string { return "" })
		if err != nil || len(findings) != want {
			t.Errorf("%s: %v, %v", owner, findings, err)
		}
	}
}
