package live

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// left is the What of a peerDifference for an object that a move leaves on its source.
const left = "left"

// peerDifference is a difference that a move makes to an object. In a table, an empty name or path
// fits every one, and because says why the program makes the difference.
type peerDifference struct{ what, kind, name, path, because string }

func (d peerDifference) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", d.what, d.kind, d.name, d.path))
}

func (d peerDifference) fits(row peerDifference) bool {
	return d.what == row.what && d.kind == row.kind && (row.name == "" || d.name == row.name) &&
		(row.path == "" || d.path == row.path)
}

// mgmtctlDifferences are all that a move by mgmtctl makes.
func mgmtctlDifferences() []peerDifference {
	const creator = "who creates an object owns the fields of it that nobody applies, unless " +
		"--managed-fields all is given"
	return []peerDifference{
		{observe.New, "Secret", "", "manager mgmtd-*", creator},
		{observe.New, "ClusterResourceSetBinding", "", "manager mgmtd-*", creator},
		{observe.New, "Cluster", "", "manager mgmtd", "it was paused, and was released"},
	}
}

// clusterctlDifferences are all that clusterctl v1.14.0 makes. It writes no status either: the
// controllers have written all of it again by the time of the comparison.
func clusterctlDifferences() []peerDifference {
	const (
		labels    = "it creates a Namespace with nothing but its name"
		unowned   = "it moves what a Cluster owns; this one is only named in a spec"
		unlinked  = "nothing owns it, and its kind is not marked to be moved"
		unapplied = "a ClusterResourceSet owns what it has applied, and this one has applied nothing"
		elsewhere = "it moves no namespace in which there is no Cluster"
		class     = "a class of another namespace is copied and stays, for Clusters that need it"
	)
	table := []peerDifference{
		{observe.New, "Namespace", "", "manager clusterctl", labels},
		{observe.Different, "Namespace", "", "metadata.labels.team", labels},
		{observe.Different, "Namespace", "",
			`metadata.labels["pod-security.kubernetes.io/enforce"]`, labels},
		{observe.Different, "Namespace", "", "metadata.managedFields", labels},
		{left, "ClusterClass", "in-memory", "", class},
		{left, "DevClusterTemplate", "in-memory", "", class},
		{left, "KubeadmControlPlaneTemplate", "in-memory", "", class},
		{left, "DevMachineTemplate", "in-memory-control-plane", "", class},
		{left, "DevMachineTemplate", "in-memory-worker", "", class},
		{left, "KubeadmConfigTemplate", "in-memory-worker", "", class},
	}
	for _, o := range []struct{ kind, name, because string }{
		{"Secret", "registry-credentials", unowned},
		{"MachineDrainRule", "skip-batch", unlinked},
		{"Secret", "addon-token", unapplied},
		{"ConfigMap", "cni", unapplied},
		{"ClusterResourceSet", "addons", elsewhere},
	} {
		table = append(table, peerDifference{observe.Gone, o.kind, o.name, "", o.because},
			peerDifference{left, o.kind, o.name, "", o.because})
	}
	return table
}

var (
	// position is the position of an item in a list.
	position = regexp.MustCompile(`\[\d+\]`)
	// operationID is what the field managers of an operation end with.
	operationID = regexp.MustCompile(`-[0-9a-f]{12}$`)
)

// peerDifferences returns what a move has changed: on its target, and what is left on its source.
func peerDifferences(before, after, rest observe.Objects) []peerDifference {
	var all []peerDifference
	add := func(what string, ref observe.Ref, path string) {
		all = append(all, peerDifference{what: what, kind: ref.Kind, name: ref.Name,
			path: position.ReplaceAllString(path, "[]")})
	}
	for _, d := range observe.Compare(before, after, observe.Options{WithoutStatus: true}) {
		if d.What != observe.Different {
			add(d.What, d.Ref, "")
		}
		for _, path := range d.Paths {
			add(d.What, d.Ref, path)
		}
	}
	for _, ref := range after.Refs() {
		if was := before[ref]; was != nil {
			for _, manager := range newManagers(was, after[ref]) {
				add(observe.New, ref, "manager "+operationID.ReplaceAllString(manager, "-*"))
			}
			for _, field := range goneStatus(was, after[ref]) {
				add(observe.Gone, ref, "status."+field)
			}
		}
	}
	for _, ref := range rest.Refs() {
		if ref.Kind != "Namespace" {
			add(left, ref, "")
		}
	}
	return all
}

// newManagers returns the field managers that an object did not have before.
func newManagers(was, is *unstructured.Unstructured) []string {
	var names []string
	for _, entry := range is.GetManagedFields() {
		if !slices.ContainsFunc(was.GetManagedFields(), func(old metav1.ManagedFieldsEntry) bool {
			return old.Manager == entry.Manager
		}) && !slices.Contains(names, entry.Manager) {
			names = append(names, entry.Manager)
		}
	}
	return names
}

// goneStatus returns the fields of the status that no controller has written again.
func goneStatus(was, is *unstructured.Unstructured) []string {
	had, _, _ := unstructured.NestedMap(was.Object, "status")
	has, _, _ := unstructured.NestedMap(is.Object, "status")
	maps.DeleteFunc(had, func(field string, _ any) bool {
		_, ok := has[field]
		return ok
	})
	return slices.Sorted(maps.Keys(had))
}

// contradictions returns the differences that are not in a table, and the rows of it that do not
// occur.
func contradictions(got, table []peerDifference) []string {
	var problems []string
	occurs := make([]bool, len(table))
	for _, d := range got {
		if i := slices.IndexFunc(table, d.fits); i >= 0 {
			occurs[i] = true
		} else {
			problems = append(problems, "not in the table: "+d.String())
		}
	}
	for i, row := range table {
		if !occurs[i] {
			problems = append(problems, fmt.Sprintf("never seen: %s (%s)", row, row.because))
		}
	}
	return problems
}

// testTable: a difference that is not in the table is a problem, and so is a row without one.
func testTable(t *testing.T) {
	lost := peerDifference{what: observe.Gone, kind: "Secret", name: "web-ca"}
	known := peerDifference{what: observe.Gone, kind: "Secret", name: "registry-credentials"}
	assertEqual(t, "contradictions", contradictions([]peerDifference{lost, known},
		[]peerDifference{known, {observe.New, "Secret", "", "", "it makes one"}}),
		[]string{"not in the table: gone: Secret web-ca", "never seen: new: Secret (it makes one)"})
}
