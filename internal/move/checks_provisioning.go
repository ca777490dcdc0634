package move

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// provisioning is an error, as it is for clusterctl (cluster-api v1.14.2,
// cmd/clusterctl/client/cluster/mover.go, checkProvisioningCompleted): a provider may have ordered
// infrastructure and not have written its id into an object yet. The target would order it again.
var provisioning = trouble{severity: object.Error, code: object.CodeProvisioning,
	what: "it is still being provisioned",
	means: "a provider may have ordered infrastructure whose id is in no object yet, and the target " +
		"would order it once more",
	hint: "wait until all of it is provisioned, and move the workload cluster after that"}

// growing is a warning: the cloud, and no controller, starts the machines of a MachinePool. They
// join in the pause, too, and the target lists them after the release.
var growing = trouble{severity: object.Warning, code: object.CodeRollingOut,
	what: "machines of its MachinePools have not joined yet",
	means: "its cloud starts them also in the pause, and the target registers their Nodes after the " +
		"release",
	hint: "wait for their Nodes, and move the workload cluster after that"}

// checkProvisioning reports what is being provisioned.
func checkProvisioning(_ context.Context, c *checker) error {
	incomplete, pools := provisioning.group(), growing.group()
	provisioned := func(n *graph.Node) bool {
		return isCluster(n) || n.GroupKind() == capi.Machine || n.GroupKind() == capi.MachinePool
	}
	err := c.each(provisioned, func(n *graph.Node, o gjson.Result) {
		switch n.GroupKind() {
		case capi.Cluster:
			if !c.infrastructureProvisioned(n, o) {
				incomplete.note(n, "has no infrastructure yet")
			}
			if !controlPlaneInitialized(o) {
				incomplete.note(n, "has no initialized control plane yet")
			}
		case capi.Machine:
			if o.Get("status.nodeRef.name").String() == "" {
				incomplete.note(n, "has no Node yet")
			}
		case capi.MachinePool:
			if !o.Get("status.initialization.infrastructureProvisioned").Bool() &&
				!o.Get("status.infrastructureReady").Bool() { // v1beta1
				incomplete.note(n, "has no infrastructure yet")
				return
			}
			pools.note(n, missingNodes(o))
		}
	})
	incomplete.report(c)
	pools.report(c)
	return err
}

// isRef reports whether a field of an object names another object.
func isRef(o gjson.Result, path string) bool { return o.Get(path+".name").String() != "" }

// infrastructureProvisioned reports whether the infrastructure of a Cluster is provisioned, or no
// controller of the source provisions it: it names none (cluster-api v1.14.2,
// core/reconcilers/cluster/cluster_controller_phases.go, reconcileInfrastructure), or something
// outside of its provider manages it.
func (c *checker) infrastructureProvisioned(n *graph.Node, o gjson.Result) bool {
	const ref = "spec.infrastructureRef"
	switch {
	case o.Get("status.initialization.infrastructureProvisioned").Bool(),
		o.Get("status.infrastructureReady").Bool(): // v1beta1
		return true
	case !isRef(o, ref): // a topology makes it
		return !o.Get("spec.topology").Exists()
	}
	for _, need := range n.Needs {
		if need.Field != ref {
			continue
		}
		if raw, err := c.contents.Bytes(need.Ref); err == nil {
			return annotationOf(gjson.ParseBytes(raw), capi.AnnotationManagedBy).Exists()
		}
	}
	return false
}

// controlPlaneInitialized reports whether the control plane of a Cluster is initialized. A Cluster
// without a control plane object has Machines that nothing manages, which are checked one by one,
// or a control plane that Cluster API does not know. clusterctl reads the condition as well as the
// field; the condition follows from the field of the control plane that sets it (cluster-api
// v1.14.2, core/reconcilers/cluster/cluster_controller_status.go).
func controlPlaneInitialized(o gjson.Result) bool {
	if !isRef(o, "spec.controlPlaneRef") {
		return !o.Get("spec.topology").Exists()
	}
	if fields := o.Get("status.initialization"); fields.Exists() {
		return fields.Get("controlPlaneInitialized").Bool()
	}
	status, _ := conditionOf(o, "ControlPlaneInitialized") // v1beta1 has no field
	return status == "True"
}

// missingNodes says how many machines of a MachinePool have no Node yet. What an autoscaler writes
// its replicas is not in the spec.
func missingNodes(o gjson.Result) string {
	want := int64(1)
	if replicas := o.Get("spec.replicas"); replicas.Exists() {
		want = replicas.Int()
	}
	if annotationOf(o, "cluster.x-k8s.io/replicas-managed-by").Exists() {
		want = o.Get("status.replicas").Int()
	}
	if have := o.Get("status.nodeRefs.#").Int(); have < want {
		return fmt.Sprintf("has %d of %d Nodes", have, want)
	}
	return ""
}
