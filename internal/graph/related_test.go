package graph

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

func related() func(*Node) { return func(n *Node) { n.Related = true } }

const (
	report  = "Report.acme.example.org/ns/r"
	account = "Account.acme.example.org/ns/owns-both"
)

// withRelated is two workload clusters with objects of kinds of which nothing is known: a report
// that belongs to one and owns a Secret of the other, and an account that owns both Clusters. Both
// have owners that were not captured.
func withRelated(t *testing.T, rows *capi.Table) *Graph {
	t.Helper()
	return New([]*Node{
		node(t, "Namespace/ns"),
		node(t, clusterA, ownedBy(account)), node(t, clusterB, ownedBy(account)),
		node(t, "Secret/ns/a-ca", of("a")), node(t, "Secret/ns/b-ca", of("b"), ownedBy(report)),
		node(t, "Secret/ns/nobodys"), node(t, "Secret/ns/of-account", ownedBy(account)),
		node(t, report, of("a"), related(), ownedBy("Secret/ns/nobodys"), ownedBy("Pod/ns/gone")),
		node(t, account, related(), ownedBy("Tenant.acme.example.org/ns/t")),
	}, rows)
}

// TestRelatedObjectsBelongWhereTheirRelativesDo, and change nothing for these: without a row no
// claim passes through them, and what they need is not missing. With a row they are as others.
func TestRelatedObjectsBelongWhereTheirRelativesDo(t *testing.T) {
	g := withRelated(t, nil)
	for ref, want := range map[string]string{report: "ns/a", account: "shared",
		"Secret/ns/a-ca": "ns/a", "Secret/ns/b-ca": "ns/b", "Secret/ns/nobodys": "", "Secret/ns/of-account": ""} {
		r, _ := object.ParseRef(ref)
		n := g.Node(r)
		got := n.Unit
		if n.Shared {
			got = "shared"
		}
		if got != want {
			t.Errorf("%s is in %q, want %q", ref, got, want)
		}
	}
	if len(g.Missing) > 0 {
		t.Errorf("missing %v", g.Missing)
	}
	var without []string
	for _, m := range g.NotRestorable() {
		without = append(without, m.By.String()+" "+m.Ref.String())
	}
	slices.Sort(without)
	if want := []string{clusterA + " " + account, clusterB + " " + account,
		"Secret/ns/b-ca " + report, "Secret/ns/of-account " + account}; !slices.Equal(without, want) {
		t.Errorf("not restorable %v, want %v", without, want)
	}
	got := refs(g.Select(map[string]bool{"ns/a": true}, nil))
	want := []string{account, clusterA, "Namespace/ns", report, "Secret/ns/a-ca"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("ns/a with what it needs is %v, want %v", got, want)
	}

	var known []capi.Row
	for _, ref := range []string{report, account} {
		r, _ := object.ParseRef(ref)
		known = append(known, capi.Row{GroupKind: r.GroupKind(), Source: "a test",
			Pause: capi.PauseNone})
	}
	rows, err := capi.New(known)
	if err != nil {
		t.Fatal(err)
	}
	g = withRelated(t, rows)
	nobodys, _ := object.ParseRef("Secret/ns/nobodys")
	ofAccount, _ := object.ParseRef("Secret/ns/of-account")
	if g.Node(nobodys).Unit != "ns/a" || !g.Node(ofAccount).Shared || len(g.Missing) != 2 {
		t.Errorf("with rows: %+v, %+v, missing %v", g.Node(nobodys), g.Node(ofAccount), g.Missing)
	}
}
