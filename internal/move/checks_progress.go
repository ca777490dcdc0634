package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// All that controllers know of a rollout, an upgrade or a remediation is in the objects that they
// reconcile, and they acknowledge a pause between two reconciles. So one that is interrupted by a
// move goes on on the target, and loses nothing: these are warnings. But the post-flight does not
// tell a Machine that a rollout replaces from one that a controller replaces by mistake.
const (
	goesOn = "the pause interrupts that, and the target goes on with it after the release; when " +
		"Machines come or go there before the copy is checked, the move pauses it again on the target, " +
		"and leaves it paused on the source"
	letItEnd = "let it end, and move the workload cluster after that; or be ready to accept it " +
		"after its release"
)

var (
	rollingOut = trouble{severity: object.Warning, code: object.CodeRollingOut,
		what: "its Machines are being replaced, added or removed", means: goesOn, hint: letItEnd}
	upgrading = trouble{severity: object.Warning, code: object.CodeUpgrading,
		what: "its topology is being upgraded or changed", means: goesOn, hint: letItEnd}
	remediating = trouble{severity: object.Warning, code: object.CodeRemediating,
		what: "unhealthy Machines are being replaced or repaired", means: goesOn, hint: letItEnd}
	// updatingInPlace is an error: it is a runtime extension, and no controller, that works on the
	// machine. It runs on after its request was answered, and knows of no pause (cluster-api v1.14.2,
	// core/reconcilers/machine/machine_controller_inplace_update.go, callUpdateMachineHook). That of
	// the target is asked after the release.
	updatingInPlace = trouble{severity: object.Error, code: object.CodeUpdatingInPlace,
		what: "its Machines are being updated in place",
		means: "a runtime extension of the source works on them, which no pause stops, and that of the " +
			"target would work on the same machines after the release",
		hint: "let the updates end, and move the workload cluster after that"}
	hooksPending = trouble{severity: object.Warning, code: object.CodeHooksPending,
		what: "calls of runtime hooks are pending",
		means: "the target makes them after the release, also those that the source has made and that " +
			"were to be repeated",
		hint: "check that the runtime extensions answer to the target, or wait until the hooks are done"}
)

// Annotations of Cluster API: api/core/v1beta2/machine_types.go, common_types.go,
// api/runtime/v1beta2/extensionconfig_types.go and
// api/controlplane/kubeadm/v1beta2/kubeadm_control_plane_types.go of cluster-api v1.14.2.
const (
	annotationUpdateInProgress = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
	annotationPendingHooks     = "runtime.cluster.x-k8s.io/pending-hooks"
	annotationRemediate        = "cluster.x-k8s.io/remediate-machine"
	annotationRemediation      = "controlplane.cluster.x-k8s.io/remediation-in-progress"
	// labelTopologyOwned is on what the topology controller made.
	labelTopologyOwned = "topology.cluster.x-k8s.io/owned"
)

// progress are the kinds of work in which controllers may be. Each row says in words what an object
// is in the middle of, or "". The deletion of an object, and so a hook that delays it, is an error
// of the plan of the copy.
var progress = []struct {
	trouble
	in func(n *graph.Node, o gjson.Result, topology string) string
}{
	{rollingOut, inRollout},
	{upgrading, inUpgrade},
	{remediating, inRemediation},
	{updatingInPlace, inUpdate},
	{hooksPending, inHook},
}

// checkProgress reports what controllers of the source are in the middle of.
func checkProgress(_ context.Context, c *checker) error {
	versions := map[string]string{} // of the topologies, by unit
	err := c.each(isCluster, func(n *graph.Node, o gjson.Result) {
		versions[n.Unit] = o.Get("spec.topology.version").String()
	})
	if err != nil {
		return err
	}
	groups := make([]*group, len(progress))
	for i, row := range progress {
		groups[i] = row.group()
	}
	reconciled := func(n *graph.Node) bool {
		return isCluster(n) || isControlPlane(n) || hasReplicas(n) || n.GroupKind() == capi.Machine
	}
	err = c.each(reconciled, func(n *graph.Node, o gjson.Result) {
		for i, row := range progress {
			groups[i].note(n, row.in(n, o, versions[n.Unit]))
		}
	})
	for _, g := range groups {
		g.report(c)
	}
	return err
}

// hasReplicas reports whether an object replaces Machines of workers.
func hasReplicas(n *graph.Node) bool {
	return n.GroupKind() == machineDeployment || n.GroupKind() == capi.MachinePool
}

// isControlPlane reports whether an object is a control plane by contract, and no template of one.
func isControlPlane(n *graph.Node) bool {
	return n.Group == capi.GroupControlPlane && !strings.HasSuffix(n.Kind, "Template")
}

// inRollout says what a control plane, a MachineDeployment or a MachinePool has to replace, to make
// or to remove. A MachineSet replaces nothing: its MachineDeployment counts its Machines.
func inRollout(n *graph.Node, o gjson.Result, _ string) string {
	if !hasReplicas(n) && !isControlPlane(n) {
		return ""
	}
	have, want := o.Get("status.replicas"), o.Get("spec.replicas")
	if want.Exists() && have.Exists() && have.Int() != want.Int() &&
		n.GroupKind() != capi.MachinePool {
		return fmt.Sprintf("has %d of %d Machines", have.Int(), want.Int())
	}
	// updatedReplicas: contract v1beta1, which leaves out 0
	for _, path := range []string{"status.v1beta2.upToDateReplicas", "status.upToDateReplicas",
		"status.updatedReplicas"} {
		if upToDate := o.Get(path); upToDate.Exists() {
			if upToDate.Int() < have.Int() {
				return fmt.Sprintf("has %d of %d Machines up to date", upToDate.Int(), have.Int())
			}
			break
		}
	}
	rolling, _ := conditionOf(o, "RollingOut")
	upToDate, _ := conditionOf(o, "MachinesSpecUpToDate") // of a control plane, contract v1beta1
	if rolling == "True" || upToDate == "False" {
		return "is rolling out"
	}
	return ""
}

// pendingTopology are reasons of TopologyReconciled=False that end by themselves: others are
// errors, or the pause (cluster-api v1.14.2, api/core/v1beta2/cluster_types.go and
// v1beta1_condition_consts.go).
var pendingTopology = []string{"ClusterCreating", "ClusterUpgrading", "ControlPlaneUpgradePending",
	"MachineDeploymentsCreatePending", "MachineDeploymentsUpgradePending",
	"MachineDeploymentsUpgradeDeferred", "MachinePoolsCreatePending", "MachinePoolsUpgradePending",
	"MachinePoolsUpgradeDeferred", "LifecycleHookBlocking"}

// inUpgrade says what of a topology does not have the version of its Cluster yet.
func inUpgrade(n *graph.Node, o gjson.Result, topology string) string {
	if isCluster(n) {
		status, reason := conditionOf(o, "TopologyReconciled")
		if status == "False" && slices.Contains(pendingTopology, reason) {
			return "has a topology that is not reconciled (" + reason + ")"
		}
		return ""
	}
	if topology == "" ||
		!o.Get("metadata.labels."+gjson.Escape(labelTopologyOwned)).Exists() {
		return ""
	}
	version := ""
	switch {
	case isControlPlane(n):
		version = o.Get("spec.version").String()
	case hasReplicas(n):
		version = o.Get("spec.template.spec.version").String()
	}
	// a managed control plane may name less of a version than the topology: v1.34 for v1.34.2
	if version == "" || strings.HasPrefix(strings.TrimPrefix(topology, "v"),
		strings.TrimPrefix(version, "v")) {
		return ""
	}
	return "has version " + version + " and is to have " + topology
}

// inRemediation says why a Machine is to be replaced or repaired, or that a control plane is at it.
func inRemediation(n *graph.Node, o gjson.Result, _ string) string {
	if isControlPlane(n) && annotationOf(o, annotationRemediation).Exists() {
		return "is replacing a Machine"
	}
	if n.GroupKind() != capi.Machine {
		return ""
	}
	for _, name := range []string{"OwnerRemediated", "ExternallyRemediated", "HealthCheckSucceeded"} {
		if status, _ := conditionOf(o, name); status == "False" {
			return "is unhealthy"
		}
	}
	if annotationOf(o, annotationRemediate).Exists() {
		return "is to be replaced"
	}
	return ""
}

// inUpdate says that a Machine is updated in place.
func inUpdate(n *graph.Node, o gjson.Result, _ string) string {
	if n.GroupKind() == capi.Machine && (annotationOf(o, annotationUpdateInProgress).Exists() ||
		annotationOf(o, annotationPendingHooks).Exists()) {
		return "is being updated"
	}
	return ""
}

// inHook says which runtime hooks of a Cluster are pending.
func inHook(n *graph.Node, o gjson.Result, _ string) string {
	hooks := annotationOf(o, annotationPendingHooks).String()
	if !isCluster(n) || hooks == "" {
		return ""
	}
	return "waits for " + hooks
}
