package restore

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// withReports is a workload cluster with objects of a kind of which nothing is known: one that it
// owns, and one that owns its Secret.
func withReports() []string {
	return append(onInfra("DevCluster", `{}`),
		`{"kind":"Report","metadata":{"namespace":"n","name":"owned","ownerReferences":[
			{"kind":"Cluster","name":"w"}]}}`,
		`{"kind":"Report","metadata":{"namespace":"n","name":"labelled","labels":{
			"cluster.x-k8s.io/cluster-name":"w"}}}`)
}

// TestWhatIsCapturedByRelationIsNotRestored: the plan says so of each object, whether the target
// serves its kind or not, and the workload cluster is restored without it. A move says that it
// stays.
func TestWhatIsCapturedByRelationIsNotRestored(t *testing.T) {
	for _, served := range []bool{true, false} {
		x := newTrial(t, newMemory(t, "source", withReports()...), newMemory(t, "target"))
		if !served {
			x.target.kinds = slices.DeleteFunc(slices.Clone(x.target.kinds),
				func(k kube.Kind) bool { return k.Kind == "Report" })
		}
		plan := x.makePlan(t)
		did := actions(plan)
		for _, name := range []string{"owned", "labelled"} {
			ref := "Report.acme.example.org/n/" + name
			of := slices.DeleteFunc(slices.Clone(plan.Findings), func(f object.Finding) bool {
				return f.Ref.String() != ref
			})
			if did[ref] != Skip || len(of) != 1 || of[0].Code != object.CodeCapturedOnly ||
				of[0].Severity != object.Warning || of[0].Unit != "n/w" {
				t.Errorf("served %v: %s: %q, findings %v", served, ref, did[ref], of)
			}
		}
		if failures, err := x.run(t); err != nil || len(failures) > 0 {
			t.Fatal(failures, err)
		}
		for ref := range x.target.objects {
			if ref.Kind == "Report" {
				t.Errorf("%s was restored", ref)
			}
		}
		if x.target.objects[clusterNamed("n", "w")] == nil {
			t.Error("its workload cluster was not restored")
		}
	}
}

// TestPlansWithAndWithoutWhatIsCapturedByRelationAreTheSame: such objects come and go while an
// operator reads the plan of a move.
func TestPlansWithAndWithoutWhatIsCapturedByRelationAreTheSame(t *testing.T) {
	with := newTrial(t, newMemory(t, "source", withReports()...), newMemory(t, "target"))
	without := newTrial(t, newMemory(t, "source", onInfra("DevCluster", `{}`)...),
		newMemory(t, "target"))
	if a, b := with.makePlan(t).Digest(), without.makePlan(t).Digest(); a != b {
		t.Errorf("digests %s and %s", a, b)
	}
}

// TestAKindOfTheConfigurationIsRestored though it was captured by relation, when nothing was known
// of it.
func TestAKindOfTheConfigurationIsRestored(t *testing.T) {
	x := newTrial(t, newMemory(t, "source", withReports()...), newMemory(t, "target"))
	rows, err := capi.New([]capi.Row{{GroupKind: object.GroupKind{Group: "acme.example.org",
		Kind: "Report"}, Source: "a test", Pause: capi.PauseNone}})
	if err != nil {
		t.Fatal(err)
	}
	x.snapshot.Graph.Rows = rows
	if did := actions(x.makePlan(t)); did["Report.acme.example.org/n/owned"] != Create {
		t.Errorf("actions %v", did)
	}
}
