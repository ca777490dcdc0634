package move

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAnOrphanThatASelectorMatchesIsReported: a MachineSet would adopt it, and then delete Machines
// of which it has too many. Selectors that match what has a controller do no harm.
func TestAnOrphanThatASelectorMatchesIsReported(t *testing.T) {
	const api = `"apiVersion":"cluster.x-k8s.io/v1beta2"`
	owned := func(kind, name, controller string) string {
		return `,"ownerReferences":[{` + api + `,"kind":"` + kind + `","name":"` + name + `","uid":"u-` +
			name + `"` + controller + `}]`
	}
	machine := func(owners string) string {
		return core("Machine", "m", `"metadata":{"name":"m","uid":"u-m","labels":{`+
			`"cluster.x-k8s.io/cluster-name":"w"}`+owners+`}`)
	}
	const byCluster = `"spec":{"selector":{"matchLabels":{"cluster.x-k8s.io/cluster-name":"w"}}}`
	const byName = `"spec":{"selector":{"matchLabels":{"cluster.x-k8s.io/cluster-name":"w",` +
		`"cluster.x-k8s.io/deployment-name":"a"}}}`
	controller := owned("MachineSet", "a", `,"controller":true`)
	const adopts = "error would-adopt: selectors match objects that nothing controls: "
	for name, tt := range map[string]struct {
		drop    []object.Ref
		paused  bool
		objects []string
		want    []string
	}{
		"two selectors match what has a controller": {objects: []string{machine(controller),
			core("MachineSet", "a", `"metadata":{"name":"a","labels":{"cluster.x-k8s.io/cluster-name":"w"}`+
				owned("MachineDeployment", "a", `,"controller":true`)+`},`+byCluster),
			core("MachineSet", "b", `"metadata":{"name":"b","labels":{"cluster.x-k8s.io/cluster-name":"w"}`+
				owned("MachineDeployment", "b", `,"controller":true`)+`},`+byCluster),
			core("MachineDeployment", "a", byCluster), core("MachineDeployment", "b", byCluster)}},
		"a Machine that only its Cluster owns": {objects: []string{machine(owned("Cluster", "w", "")),
			core("MachineSet", "a", `"metadata":{"name":"a"`+owned("MachineDeployment", "a",
				`,"controller":true`)+`},`+byName)}},
		"an orphan": {objects: []string{machine(owned("Cluster", "w", "")), core("MachineDeployment", "a",
			byCluster), core("MachineSet", "a", `"metadata":{"name":"a"`+owned("MachineDeployment", "a",
			`,"controller":true`)+`},`+byCluster)},
			want: []string{adopts + "Machine m is matched by MachineSet a; that"}},
		"an orphan of a Cluster that is paused": {paused: true, objects: []string{core("Cluster", "w", ""),
			machine(owned("Cluster", "w", "")), core("MachineSet", "a", `"metadata":{"name":"a"`+
				owned("MachineDeployment", "a", `,"controller":true`)+`},`+byCluster)},
			want: []string{"warning would-adopt: selectors match objects that nothing controls: Machine m is"}},
		"a MachineSet without its MachineDeployment": {objects: []string{core("MachineSet", "old",
			`"metadata":{"name":"old","labels":{"cluster.x-k8s.io/cluster-name":"w"}},`+byName),
			core("MachineDeployment", "b", byCluster)}, want: []string{adopts +
			"MachineSet old is matched by MachineDeployment b; "}},
		"a Machine whose controller is left out": {drop: []object.Ref{{Group: "cluster.x-k8s.io",
			Kind: "MachineSet", Namespace: "ns", Name: "a"}}, objects: []string{machine(controller),
			core("MachineSet", "b", `"metadata":{"name":"b"`+owned("MachineDeployment", "b",
				`,"controller":true`)+`},`+byCluster)},
			want: []string{adopts + "Machine m is matched by MachineSet b; "}},
		"a control plane Machine that nothing controls": {objects: []string{core("Machine", "m",
			`"metadata":{"name":"m","labels":{"cluster.x-k8s.io/cluster-name":"w",`+
				`"cluster.x-k8s.io/control-plane":""}}`), anObject("controlplane.cluster.x-k8s.io/v1beta2",
			"KubeadmControlPlane", "cp", `"metadata":{"name":"cp","labels":{"cluster.x-k8s.io/cluster-name":"w"}}`)},
			want: []string{adopts + "Machine m is matched by KubeadmControlPlane cp; "}},
		"an empty selector": {objects: []string{machine(""), core("MachineSet", "a",
			`"metadata":{"name":"a"`+owned("MachineDeployment", "a", `,"controller":true`)+
				`},"spec":{"selector":{}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := sourceOf(t, tt.objects...)
			c.spec.DropOwners = tt.drop
			for _, n := range c.nodes {
				n.Paused = tt.paused && n.Kind == "Cluster"
			}
			checkFound(t, found(t, c, checkAdoption), tt.want...)
		})
	}
}
