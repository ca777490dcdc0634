package providertest_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What keeps controllers from working on a copy, besides "annotation KEY", "annotation KEY=VALUE"
// and "field PATH".
const (
	withCluster = "cluster" // its Cluster, which is there before it and has spec.paused
	passive     = "passive" // no controller acts on it
	late        = "late"    // nothing does: it comes after the release
)

// What is verified of a row. Each takes a part of its graph, and the stages of TestAPIProviders in
// which that part is checked.
const (
	captured    = "captured"    // a snapshot has all of its objects, whatever the labels of the CRDs
	ordered     = "ordered"     // objects come in an order that the graph demands
	paused      = "paused"      // no version of a copy lets a controller work before the release
	credentials = "credentials" // what the row needs travels, and the row is blocked without it
	released    = "released"    // a restore leaves all of its objects, at work
	moved       = "moved"       // a move takes all of them, and leaves nothing that hangs
)

// Kinds of two graphs that have a switch of their own.
const (
	azure = "ManagedCluster ManagedClustersAgentPool NatGateway ResourceGroup VirtualNetwork " +
		"VirtualNetworksSubnet"
	zones = "InClusterIPPool VSphereClusterIdentity VSphereDeploymentZone"
)

// table are the workload clusters whose verdict is recorded, one for each way in which a provider
// keeps credentials, pauses and hangs together, with what is verified of each. After a colon come
// the kinds that have a switch of their own.
var table = map[string]string{
	"os1":   "captured ordered paused credentials released moved: Image",
	"os2":   "captured ordered paused credentials released moved: Image",
	"os3":   "captured ordered paused credentials released moved: OpenStackFloatingIPPool",
	"aws1":  "captured ordered paused credentials released moved: AWSFargateProfile",
	"aws2":  "captured ordered paused credentials released moved: AWSFargateProfile",
	"eks1":  "captured ordered paused credentials released moved: AWSFargateProfile",
	"eks2":  "captured ordered paused released moved: AWSFargateProfile",
	"rosa1": "captured ordered paused credentials released moved",
	"az1":   "captured ordered paused credentials released moved: " + azure,
	"aks1":  "captured ordered paused credentials released moved: " + azure,
	"vs1":   "captured ordered paused credentials released moved: " + zones,
	"vs2":   "captured ordered paused credentials released moved: " + zones,
	"sup1":  "captured ordered paused released moved: ProviderServiceAccount",
	"gcp1":  "captured ordered paused credentials released moved",
	"gke1":  "captured ordered paused credentials released moved",
	"bm1": "captured ordered paused credentials released moved: BareMetalHost IPPool " +
		"Metal3DataTemplate",
	"ip1":    "captured ordered paused released moved: GlobalInClusterIPPool InClusterIPPool",
	"ip2":    "captured ordered paused released moved: GlobalInClusterIPPool InClusterIPPool",
	"h1":     "captured ordered paused credentials released moved: HelmChartProxy HelmReleaseProxy",
	"h2":     "captured ordered paused credentials released moved: HelmChartProxy HelmReleaseProxy",
	"st1":    "captured ordered paused credentials released moved: HelmRelease Manifests",
	"azc1":   "captured ordered paused credentials released moved: Cluster HelmRelease Manifests",
	"fx1":    "captured paused released",
	"fx2":    "captured paused released",
	"ar1":    "captured paused released",
	"ar2":    "captured paused released",
	"rke1":   "captured ordered paused credentials released moved",
	"k3s1":   "captured ordered paused credentials released moved",
	"talos1": "captured ordered paused credentials released moved",
	"k0s1":   "captured",
	"kam1":   "captured",
	"pk1":    "captured paused released moved",
}

// TestTheTableHasAllChecks checks that each row of the table has a graph with all that its checks
// need. TestAPIProviders carries them out.
func TestTheTableHasAllChecks(t *testing.T) {
	passed := func(*graph, string) bool { return true }
	if diff := cmp.Diff(table, verified(t, readGraphs(t), passed)); diff != "" {
		t.Errorf("what is verified (-want +got):\n%s", diff)
	}
}

// verified returns what is verified of each row, as the table has it. passed reports whether a
// stage ran for a graph, and found nothing.
func verified(t *testing.T, graphs []*graph, passed func(g *graph, stage string) bool) (
	rows map[string]string) {
	t.Helper()
	rows = map[string]string{}
	for _, g := range graphs {
		for _, row := range g.Rows {
			if rows[row.Name] != "" {
				t.Errorf("two files of testdata have the row %s", row.Name)
			}
			rows[row.Name] = g.verified(row, passed)
		}
	}
	return rows
}

func (g *graph) verified(row row, passed func(g *graph, stage string) bool) string {
	comes := row.Blocked == ""
	moves := comes && row.MoveBlocked == ""
	var checks []string
	add := func(check string, holds bool, stages ...string) {
		for _, stage := range stages {
			holds = holds && passed(g, stage)
		}
		if holds {
			checks = append(checks, check)
		}
	}
	add(captured, len(g.NotCaptured) < len(g.objects), "labelled, captured", "captured")
	add(ordered, comes && len(g.Before) > 0, "paused", "moved")
	add(paused, comes, "paused")
	add(credentials, comes && g.keepsCredentials(row), "captured", "released", "moved")
	add(released, comes, "planned", "released")
	add(moved, moves, "move planned", "moved")
	line := strings.Join(checks, " ")
	own := map[string]bool{}
	for _, r := range g.refs() {
		switch how, _, _ := strings.Cut(g.Switches[r.GroupKind().String()], " "); how {
		case "annotation", "field", late:
			own[r.Kind] = true
		}
	}
	if len(own) > 0 && comes {
		line += ": " + strings.Join(slices.Sorted(maps.Keys(own)), " ")
	}
	return line
}

// keepsCredentials reports whether a row needs objects besides the certificates of kubeadm, and all
// of them are captured and restored. TestNothingIsReleasedWithoutWhatItNeeds takes them away.
func (g *graph) keepsCredentials(row row) bool {
	needed := 0
	for name, what := range g.Needed {
		if !slices.Contains(strings.Fields(what)[1:], row.Name) {
			continue
		}
		if needed++; slices.Contains(g.NotCaptured, name) || g.NotRestored[name] != "" {
			return false
		}
	}
	return needed > 0
}
