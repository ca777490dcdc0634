//go:build api

package snapshot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

const selectedNS = "scope-labels"

// labelledFixture is three workload clusters of one class, with a Machine each, that name a Secret
// which all of their Clusters own. Two have the label.
type labelledFixture struct {
	*chainFixture
	kinds  []kube.Kind
	shared []string // refs of what each workload cluster needs
}

// testSelected: snapshots of a selector hold exactly the workload clusters that have the label, and
// what they share, from one to the next; a restore can be planned from them.
func testSelected(t *testing.T) {
	f := newLabelledFixture(t)
	for _, way := range []int{exactLists, watches} {
		f.newCatalog()
		f.exactLimit = way
		for _, step := range []struct {
			label, unlabel string
			units          []string
		}{
			{"a", "c", []string{"a", "b"}},
			{"", "", []string{"a", "b"}},
			{"c", "", []string{"a", "b", "c"}},
			{"", "a", []string{"b", "c"}},
			{"a", "c", []string{"a", "b"}},
		} {
			f.label(step.label, "gold")
			f.label(step.unlabel, "bronze")
			f.holds(f.takeOf("tier=gold"), step.units)
		}
		if none := f.takeOf("tier=silver"); none.Counts.Objects != 0 || !none.Partial {
			t.Errorf("without a workload cluster: %+v", none.Counts)
		}
	}
	f.planned(f.takeOf("tier=gold"))
}

func newLabelledFixture(t *testing.T) *labelledFixture {
	t.Helper()
	f := &labelledFixture{chainFixture: newChainFixture(t)}
	var err error
	if f.kinds, err = f.m.Reader().Kinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened := f.open(f.st, run(t, f.m, f.st, capture.Scope{}, exactLists).Envelope)
	class := opened.Graph.Node(object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: borrowsNS, Name: "borrower"}).Needs
	at := slices.IndexFunc(class, func(n graph.Need) bool { return n.GroupKind() == capi.ClusterClass })
	f.shared = []string{"Namespace/" + selectedNS, "Namespace/" + class[at].Namespace,
		"Secret/" + selectedNS + "/shared"}
	for work := []object.Ref{class[at].Ref}; len(work) > 0; work = work[1:] {
		if slices.Contains(f.shared, work[0].String()) {
			continue
		}
		f.shared = append(f.shared, work[0].String()) // the class, its templates and their Secrets
		for _, need := range opened.Graph.Node(work[0]).Needs {
			work = append(work, need.Ref)
		}
	}
	f.create(kube.NamespaceKind.GroupKind, "", selectedNS, "", "")
	var owners []string
	for _, name := range []string{"a", "b", "c"} {
		tier := map[bool]string{true: `,"labels":{"tier":"gold"}`}[name != "c"]
		made := f.create(capi.Cluster, selectedNS, name, tier, fmt.Sprintf(
			`,"spec":{"topology":{"classRef":{"name":%q,"namespace":%q},"version":"v1.35.0"}}`,
			class[at].Name, class[at].Namespace))
		owners = append(owners, fmt.Sprintf(`{"apiVersion":%q,"kind":"Cluster","name":%q,"uid":%q}`,
			made.GetAPIVersion(), name, made.GetUID()))
		f.create(capi.Machine, selectedNS, name+"-0",
			fmt.Sprintf(`,"labels":{"cluster.x-k8s.io/cluster-name":%q}`, name), fmt.Sprintf(
				`,"spec":{"clusterName":%q,"bootstrap":{"dataSecretName":"shared"},
				"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"DevMachine","name":"none"}}`, name))
	}
	f.create(kube.SecretKind.GroupKind, selectedNS, "shared", `,"ownerReferences":[`+
		strings.Join(owners, ",")+`]`, "")
	return f
}

func (f *labelledFixture) create(gk object.GroupKind, namespace, name, meta, more string) (
	made *unstructured.Unstructured) {
	f.t.Helper()
	k, _ := kube.FindKind(append(f.kinds, kube.NamespaceKind, kube.SecretKind), gk)
	u := &unstructured.Unstructured{}
	err := u.UnmarshalJSON(fmt.Appendf(nil,
		`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q%s}%s}`, k.APIVersion(), k.Kind,
		name, namespace, meta, more))
	if err == nil {
		made, err = f.m.Writer().Create(f.t.Context(), k, u)
	}
	if err != nil {
		f.t.Fatalf("%s %s: %v", gk, name, err)
	}
	return made
}

func (f *labelledFixture) label(cluster, tier string) {
	f.t.Helper()
	if cluster == "" {
		return
	}
	k, _ := kube.FindKind(f.kinds, capi.Cluster)
	if _, err := f.m.Writer().PatchMetadata(f.t.Context(), k, selectedNS, cluster, map[string]any{
		"labels": map[string]any{"tier": tier}}); err != nil {
		f.t.Fatal(err)
	}
}

// takeOf takes a snapshot, which is what a full one is.
func (f *labelledFixture) takeOf(text string) *snapshot.Result {
	f.t.Helper()
	taken, _ := f.take(func(o *snapshot.Options) { o.Scope.Selector = selector(f.t, text) })
	return taken
}

// holds compares the refs of a snapshot with those of these workload clusters.
func (f *labelledFixture) holds(taken *snapshot.Result, units []string) {
	f.t.Helper()
	want := slices.Clone(f.shared)
	for _, name := range units {
		want = append(want, "Cluster.cluster.x-k8s.io/"+selectedNS+"/"+name,
			"Machine.cluster.x-k8s.io/"+selectedNS+"/"+name+"-0")
	}
	slices.Sort(want)
	s := f.open(f.st, taken.Envelope)
	var got []string
	for _, n := range s.Graph.Nodes {
		got = append(got, n.Ref.String())
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("with the label are %v (-want +got):\n%s", units, diff)
	}
	secret := s.Graph.Node(object.Ref{Kind: "Secret", Namespace: selectedNS, Name: "shared"})
	if !secret.Shared || int(taken.Counts.Units) != len(units) || !taken.Partial {
		f.t.Errorf("%+v, %d units", secret, taken.Counts.Units)
	}
	for _, m := range taken.Missing {
		if m.Owner || m.Name != "none" {
			f.t.Errorf("missing: %+v", m)
		}
	}
}

// planned plans a restore of a and b: nothing of c is in it, nor waits for it.
func (f *labelledFixture) planned(taken *snapshot.Result) {
	f.t.Helper()
	s := f.open(f.st, taken.Envelope)
	contents, err := s.Load(f.t.Context(), s.Graph.Nodes, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	target := servers.Connect(f.t, crowded)
	kinds, err := target.Reader().Kinds(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	plan, err := restore.NewPlan(f.t.Context(), restore.Input{
		Snapshot: s.Snapshot, Contents: contents, Kinds: kinds,
		Source: restore.Snapshot{ID: string(taken.ID), Source: object.Side{UID: taken.Source.UID},
			Time: taken.Time},
		Target: object.Side{Name: target.Name(), UID: target.UID()}, Reader: target.Reader(),
		Prober: target.Prober(), Spec: restore.Spec{SourceIsGone: true}})
	if err != nil {
		f.t.Fatal(err)
	}
	var units []string
	for _, u := range plan.Units {
		units = append(units, u.Name)
	}
	if !slices.Equal(units, []string{selectedNS + "/a", selectedNS + "/b"}) {
		f.t.Errorf("units: %v", units)
	}
	partial := ""
	for _, found := range plan.Findings {
		if found.Code == object.CodeOwnerMissing {
			f.t.Errorf("finding: %+v", found)
		}
		if found.Code == object.CodePartialSnapshot {
			partial = found.Message
		}
	}
	if !strings.Contains(partial, `workload clusters that "tier=gold" does not select`) {
		f.t.Errorf("of what is not in it the plan says %q", partial)
	}
	for _, o := range plan.Shared.Objects {
		if o.Kind == "Secret" && o.Name == "shared" && len(o.Owners) != 2 {
			f.t.Errorf("%s will have the owners %v", o.Ref, o.Owners)
		}
	}
}
