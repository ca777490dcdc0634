// Package drawtest has graphs for tests of drawings.
package drawtest

import (
	"fmt"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const capi = "cluster.x-k8s.io"

// hostile is a name that tries to break out of each format.
const hostile = "a\"b'<c>&#35;\\n`*_*`[x](y)\nend\x1b[31m]]>"

// Owned is an edge to the owner of an object.
func Owned(by *mgmtv1.Ref) *mgmtv1.GraphEdge {
	return &mgmtv1.GraphEdge{To: by, Owner: true, Field: "metadata.ownerReferences"}
}

func names(to *mgmtv1.Ref, field string) *mgmtv1.GraphEdge {
	return &mgmtv1.GraphEdge{To: to, Field: field}
}

func missing(e *mgmtv1.GraphEdge) *mgmtv1.GraphEdge {
	e.Missing = true
	return e
}

func ref(group, kind, namespace, name string) *mgmtv1.Ref {
	return &mgmtv1.Ref{Group: group, Kind: kind, Namespace: namespace, Name: name}
}

// Graph has an owner, names, missing objects, an object outside of the selection and a hostile
// name.
func Graph() []*mgmtv1.GraphSnapshotResponse {
	const unit = "team-a/web"
	cluster, class := ref(capi, "Cluster", "team-a", "web"), ref(capi, "ClusterClass", "team-a",
		"small")
	machine, other := ref(capi, "Machine", "team-a", "web-0"), ref(capi, "Cluster", "team-b", "shop")
	return []*mgmtv1.GraphSnapshotResponse{
		{Ref: ref("", "Namespace", "", "team-a"), Shared: true},
		{Ref: ref("", "ConfigMap", "team-a", "nobodys")},
		{Ref: ref("", "Secret", "team-a", hostile), Unit: unit,
			Edges: []*mgmtv1.GraphEdge{Owned(machine)}},
		{Ref: ref("", "Secret", "team-a", "orphan"), Unit: unit,
			Edges: []*mgmtv1.GraphEdge{missing(Owned(cluster))}},
		{Ref: cluster, Unit: unit, Edges: []*mgmtv1.GraphEdge{names(class, "spec.topology.classRef"),
			names(machine, "spec.x"), names(other, "spec.y")}},
		{Ref: class, Shared: true},
		{Ref: machine, Unit: unit, Edges: []*mgmtv1.GraphEdge{Owned(cluster),
			missing(names(ref("", "Secret", "team-a", "gone"), "spec.bootstrap.dataSecretName"))}},
	}
}

// Fleet is a graph of n workload clusters of ten objects each.
func Fleet(n int) []*mgmtv1.GraphSnapshotResponse {
	class := ref(capi, "ClusterClass", "fleet", "small")
	all := []*mgmtv1.GraphSnapshotResponse{{Ref: class, Shared: true},
		{Ref: ref("", "ConfigMap", "fleet", "nobodys")}}
	for i := range n {
		name := fmt.Sprintf("w-%d", i)
		cluster := ref(capi, "Cluster", "fleet", name)
		all = append(all, &mgmtv1.GraphSnapshotResponse{Ref: cluster, Unit: "fleet/" + name,
			Edges: []*mgmtv1.GraphEdge{names(class, "spec.topology.classRef")}})
		for j, kind := range []string{"Machine", "Machine", "Machine", "Machine", "MachineSet",
			"MachineDeployment", "KubeadmControlPlane", "MachineHealthCheck", "MachinePool"} {
			all = append(all, &mgmtv1.GraphSnapshotResponse{Ref: ref(capi, kind, "fleet",
				fmt.Sprint(name, "-", j)), Unit: "fleet/" + name, Edges: []*mgmtv1.GraphEdge{Owned(cluster)}})
		}
	}
	return all
}
