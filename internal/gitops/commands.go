package gitops

import (
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// The commands with which an operator suspends an owner. They are those of the tools themselves,
// and of kubectl where a tool has none.
const (
	suspendKustomization = "flux suspend kustomization NAME -n NAMESPACE"
	suspendHelmRelease   = "flux suspend helmrelease NAME -n NAMESPACE"
	suspendResourceSet   = "kubectl annotate resourcesets.fluxcd.controlplane.io NAME -n NAMESPACE " +
		disabled
	suspendFluxInstance = "kubectl annotate fluxinstances.fluxcd.controlplane.io NAME -n NAMESPACE " +
		disabled
	suspendApplication    = "argocd app set NAMESPACE/NAME --sync-policy none"
	suspendApplicationSet = "kubectl patch applicationsets.argoproj.io NAME -n NAMESPACE " +
		`--type merge -p '{"spec":{"syncPolicy":{"applicationsSync":"create-only"}}}'`
	suspendBundleDeployment = "kubectl patch bundledeployments.fleet.cattle.io NAME -n NAMESPACE " +
		paused
	suspendBundle  = "kubectl patch bundles.fleet.cattle.io NAME -n NAMESPACE " + paused
	suspendGitRepo = "kubectl patch gitrepos.fleet.cattle.io NAME -n NAMESPACE " + paused
	suspendHelmOp  = "kubectl patch helmops.fleet.cattle.io NAME -n NAMESPACE " + paused

	suspendClusterDeployment = "kubectl patch clusterdeployments.k0rdent.mirantis.com NAME -n " +
		`NAMESPACE --type merge -p '{"spec":{"dryRun":true}}'`
	suspendAzimuthCluster = "kubectl patch clusters.azimuth.stackhpc.com NAME -n NAMESPACE " + paused

	disabled = "--overwrite fluxcd.controlplane.io/reconcile=disabled"
	paused   = `--type merge -p '{"spec":{"paused":true}}'`
)

// commandFor fills in a command for one owner. An owner that is elsewhere may be in a namespace
// that nothing here names.
func commandFor(command string, ref object.Ref) string {
	if ref.Namespace == "" {
		command = strings.ReplaceAll(command, "NAMESPACE/", "")
		command = strings.ReplaceAll(command, " -n NAMESPACE", "")
	}
	return strings.NewReplacer("NAMESPACE", ref.Namespace, "NAME", ref.Name).Replace(command)
}

// HowToResume says how to resume an owner of which the switch was set.
func HowToResume(owner object.Ref, was Switch) string {
	row := rowOf(owner.GroupKind())
	switch {
	case row == nil:
		return "resume it"
	case row.GroupKind == kustomization, row.GroupKind == fluxHelmRelease:
		return strings.Replace(commandFor(row.command, owner), "suspend", "resume", 1)
	case was.Was == nil:
		return "remove " + strings.Join(row.path, ".") + " from it"
	}
	return "set " + strings.Join(row.path, ".") + " to " + string(was.Was) + " in it"
}
