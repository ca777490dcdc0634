package gitops

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

// API groups of owners.
const (
	groupFluxKustomize = "kustomize.toolkit.fluxcd.io"
	groupFluxHelm      = "helm.toolkit.fluxcd.io"
	groupFluxOperator  = "fluxcd.controlplane.io"
	groupArgo          = "argoproj.io"
	groupFleet         = "fleet.cattle.io"
	groupK0rdent       = "k0rdent.mirantis.com"
	groupAzimuth       = "azimuth.stackhpc.com"
)

// The kinds of owners.
var (
	kustomization     = object.GroupKind{Group: groupFluxKustomize, Kind: "Kustomization"}
	fluxHelmRelease   = object.GroupKind{Group: groupFluxHelm, Kind: "HelmRelease"}
	resourceSet       = object.GroupKind{Group: groupFluxOperator, Kind: "ResourceSet"}
	fluxInstance      = object.GroupKind{Group: groupFluxOperator, Kind: "FluxInstance"}
	application       = object.GroupKind{Group: groupArgo, Kind: "Application"}
	applicationSet    = object.GroupKind{Group: groupArgo, Kind: "ApplicationSet"}
	bundleDeployment  = object.GroupKind{Group: groupFleet, Kind: "BundleDeployment"}
	bundle            = object.GroupKind{Group: groupFleet, Kind: "Bundle"}
	gitRepo           = object.GroupKind{Group: groupFleet, Kind: "GitRepo"}
	helmOp            = object.GroupKind{Group: groupFleet, Kind: "HelmOp"}
	clusterDeployment = object.GroupKind{Group: groupK0rdent, Kind: "ClusterDeployment"}
	azimuthCluster    = object.GroupKind{Group: groupAzimuth, Kind: "Cluster"}
	// helmRelease stands for a release of Helm itself, which is no object.
	helmRelease = object.GroupKind{Kind: "Helm release"}
	// magnumCluster stands for a cluster of Magnum, which is in the database of OpenStack.
	magnumCluster = object.GroupKind{Kind: "Magnum cluster"}
)

// Tool is a tool that applies objects.
type Tool string

// The tools.
const (
	Flux    Tool = "Flux"
	ArgoCD  Tool = "Argo CD"
	Helm    Tool = "Helm"
	Fleet   Tool = "Fleet"
	K0rdent Tool = "k0rdent"
	Azimuth Tool = "Azimuth"
	Magnum  Tool = "Magnum"
)

// kindRow is what is known of one kind of owner.
type kindRow struct {
	object.GroupKind
	tool Tool
	// source is where the knowledge comes from: project, version, file.
	source string
	// path is the switch, the names of fields from the object down. suspends is the value with which
	// it is suspended; nil means that the field is absent then.
	path     []string
	suspends any
	// also are other values of the switch with which an owner counts as suspended.
	also []any
	// overwrites: an active owner of this kind writes the whole spec of the owners that it applies,
	// so it ends their suspension. The others apply only the fields that Git states.
	overwrites bool
	// command is the command that suspends it; NAME and NAMESPACE stand for those of the owner.
	command string
}

// kindRows are the kinds of owners.
var kindRows = []kindRow{
	{GroupKind: kustomization, tool: Flux, path: []string{"spec", "suspend"}, suspends: true,
		command: suspendKustomization,
		source: "fluxcd/kustomize-controller v1.9.4, api/v1/kustomization_types.go (spec.suspend, " +
			"status.inventory)"},
	{GroupKind: fluxHelmRelease, tool: Flux, path: []string{"spec", "suspend"}, suspends: true,
		command: suspendHelmRelease,
		source: "fluxcd/helm-controller v1.6.3, api/v2/helmrelease_types.go (spec.suspend, " +
			"releaseName, targetNamespace, status.inventory)"},
	{GroupKind: resourceSet, tool: Flux, suspends: "disabled",
		path:    []string{"metadata", "annotations", groupFluxOperator + "/reconcile"},
		command: suspendResourceSet,
		source: "controlplaneio-fluxcd/flux-operator v0.58.1, api/v1/common_types.go " +
			"(ReconcileAnnotation), api/v1/resourceset_types.go"},
	{GroupKind: fluxInstance, tool: Flux, suspends: "disabled",
		path:    []string{"metadata", "annotations", groupFluxOperator + "/reconcile"},
		command: suspendFluxInstance,
		source:  "controlplaneio-fluxcd/flux-operator v0.58.1, api/v1/fluxinstance_types.go"},
	// Without "automated", an Application is synchronized only when somebody asks for it.
	{GroupKind: application, tool: ArgoCD, path: []string{"spec", "syncPolicy", "automated"},
		overwrites: true, command: suspendApplication,
		source: "argoproj/argo-cd v3.5.1, pkg/apis/application/v1alpha1/types.go " +
			"(SyncPolicyAutomated); controller/appcontroller.go (autoSync)"},
	{GroupKind: applicationSet, tool: ArgoCD, overwrites: true,
		path:     []string{"spec", "syncPolicy", "applicationsSync"},
		suspends: "create-only", also: []any{"create-delete"}, command: suspendApplicationSet,
		source: "argoproj/argo-cd v3.5.1, pkg/apis/application/v1alpha1/applicationset_types.go " +
			"(ApplicationsSyncPolicy)"},
	{GroupKind: bundleDeployment, tool: Fleet, path: []string{"spec", "paused"}, suspends: true,
		overwrites: true, command: suspendBundleDeployment,
		source: "rancher/fleet 3b2c622c, pkg/apis/fleet.cattle.io/v1alpha1/" +
			"bundledeployment_types.go"},
	{GroupKind: bundle, tool: Fleet, path: []string{"spec", "paused"}, suspends: true,
		overwrites: true, command: suspendBundle,
		source: "rancher/fleet 3b2c622c, pkg/apis/fleet.cattle.io/v1alpha1/bundle_types.go"},
	{GroupKind: gitRepo, tool: Fleet, path: []string{"spec", "paused"}, suspends: true,
		overwrites: true, command: suspendGitRepo,
		source: "rancher/fleet 3b2c622c, pkg/apis/fleet.cattle.io/v1alpha1/gitrepo_types.go"},
	{GroupKind: helmOp, tool: Fleet, path: []string{"spec", "paused"}, suspends: true,
		overwrites: true, command: suspendHelmOp,
		source: "rancher/fleet 3b2c622c, pkg/apis/fleet.cattle.io/v1alpha1/helmop_types.go (BundleSpec)"},
	// Its controller returns before it writes the HelmRelease.
	{GroupKind: clusterDeployment, tool: K0rdent, path: []string{"spec", "dryRun"}, suspends: true,
		overwrites: true, command: suspendClusterDeployment,
		source: "k0rdent/kcm (main, 2026), api/v1beta1/clusterdeployment_types.go (spec.dryRun); " +
			"internal/controller/clusterdeployment_controller.go"},
	{GroupKind: azimuthCluster, tool: Azimuth, path: []string{"spec", "paused"}, suspends: true,
		overwrites: true, command: suspendAzimuthCluster,
		source: "azimuth-cloud/azimuth-capi-operator 0.23, azimuth_capi/models/v1alpha1/cluster.py " +
			"(spec.paused); azimuth_capi/operator.py (the Helm release has the name of the Cluster)"},
	{GroupKind: helmRelease, tool: Helm, source: "helm/helm v3.19, pkg/action/validate.go " +
		"(helmReleaseNameAnnotation)"},
	{GroupKind: magnumCluster, tool: Magnum, source: "azimuth-cloud/magnum-capi-helm a8b82c24, " +
		"magnum_capi_helm/driver.py; vexxhost/magnum-cluster-api 3890a362, " +
		"magnum_cluster_api/resources.py"},
}

// rowOf returns the row of a kind; nil when it is no kind of owner.
func rowOf(gk object.GroupKind) *kindRow {
	i := slices.IndexFunc(kindRows, func(r kindRow) bool { return r.GroupKind == gk })
	if i < 0 {
		return nil
	}
	return &kindRows[i]
}

// listed reports whether owners of the kind are objects of a management cluster.
func (row *kindRow) listed() bool { return row.Group != "" }

// manager is the name under which a tool writes, in managedFields.
type manager struct {
	name   string
	tool   Tool
	source string
}

// managers are the field managers of tools that apply what Git says. Helm's own is not among them:
// objects of a release have annotations that name it.
var managers = []manager{
	{"kustomize-controller", Flux, "fluxcd/kustomize-controller v1.9.4, main.go (controllerName)"},
	{"helm-controller", Flux, "fluxcd/helm-controller v1.6.3, main.go (controllerName)"},
	{"flux-operator", Flux, "controlplaneio-fluxcd/flux-operator v0.58.1, cmd/operator/main.go " +
		"(controllerName)"},
	{"argocd-controller", ArgoCD, "argoproj/argo-cd v3.5.1, common/common.go (ArgoCDSSAManager)"},
	{"argocd-application-controller", ArgoCD, "argoproj/argo-cd v2.4, the name of the binary in " +
		"writes without a field manager"},
}

func managerNamed(name string) *manager {
	i := slices.IndexFunc(managers, func(m manager) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return &managers[i]
}
