// Package fleet creates workload clusters to test with. The controllers of a management cluster
// provision live ones in the lab's cloud (Create). Bare ones are written into an API server without
// controllers, as the controllers would have left them (CreateBare).
package fleet

import "k8s.io/apimachinery/pkg/types"

// Shape says what a live workload cluster is made of.
type Shape struct {
	// Name of the workload cluster.
	Name string
	// Namespace of the workload cluster, without the fleet's prefix.
	Namespace string
	// ClassNamespace is where its ClusterClass is, without the fleet's prefix;
	// empty for a workload cluster without a class.
	ClassNamespace string
	// PatchedBy is the handler of a runtime extension that generates patches for the ClusterClass;
	// empty for none. The workload clusters of one class have the same.
	PatchedBy string
	// ControlPlanes is the number of control plane Machines, 1 or 3.
	ControlPlanes int
	// Pools has the number of Machines of each MachineDeployment.
	Pools []int
	// HealthChecks adds MachineHealthChecks. Those with a class have them from it.
	HealthChecks bool
	// Addons selects the workload cluster by the namespace's ClusterResourceSet.
	Addons bool
	// ExternalEtcd gives it an etcd that its control plane does not manage, for one without a class.
	ExternalEtcd bool
	// Paused pauses the workload cluster once it is Available.
	Paused bool
	// ScalingUp pauses the workload cluster earlier: when its control plane is Available and gets its
	// second Machine. Of the objects that controllers have written by then, some are as they are
	// never again later. ControlPlanes must be 3.
	ScalingUp bool
	// Templates is the folder of Cluster API's own templates (lab.Templates). When it is set, the
	// ClusterClass and the Cluster are those of the templates, in one namespace, with one pool, and
	// the fields above but for the names and the numbers of Machines must be empty.
	Templates string
}

// Shapes is the standard fleet: one row for each thing that a snapshot, a
// restore or a move could get wrong.
func Shapes() []Shape {
	return []Shape{
		// Two of one namespace share a ClusterClass, its templates, a ClusterResourceSet and a
		// Secret.
		{Name: "classy", Namespace: "team-a", ClassNamespace: "team-a", ControlPlanes: 1, Pools: []int{2},
			Addons: true},
		{Name: "classy-ha", Namespace: "team-a", ClassNamespace: "team-a", ControlPlanes: 3,
			Pools: []int{1, 1}, Addons: true},
		// Without a class. A snapshot must contain what they name only in their specs.
		{Name: "plain", Namespace: "team-b", ControlPlanes: 1, Pools: []int{1, 1}, Addons: true,
			HealthChecks: true},
		{Name: "plain-ha", Namespace: "team-b", ControlPlanes: 3, Pools: []int{1}, HealthChecks: true},
		// The class is in a namespace with no workload cluster.
		{Name: "cross", Namespace: "team-c", ClassNamespace: "classes", ControlPlanes: 1,
			Pools: []int{1}},
		// Paused before: it must stay so.
		{Name: "paused", Namespace: "team-c", ControlPlanes: 1, Pools: []int{1}, Paused: true},
	}
}

// Named picks shapes of the standard fleet, in the table's order.
func Named(names ...string) []Shape {
	var shapes []Shape
	for _, shape := range Shapes() {
		for _, name := range names {
			if shape.Name == name {
				shapes = append(shapes, shape)
			}
		}
	}
	return shapes
}

// Machines is the number of Machines of the workload cluster.
func (s Shape) Machines() int {
	n := s.ControlPlanes
	for _, pool := range s.Pools {
		n += pool
	}
	return n
}

// Key is the workload cluster's namespace and name in a fleet of that prefix.
func (s Shape) Key(prefix string) types.NamespacedName {
	return types.NamespacedName{Namespace: prefix + s.Namespace, Name: s.Name}
}
