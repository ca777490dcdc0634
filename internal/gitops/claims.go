package gitops

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

// claim is what an object says of one owner.
type claim struct {
	// Ref is the owner. Without a namespace, it may be in any; without a name, only its tool is
	// known.
	object.Ref
	tool Tool
	// weak: other tools leave such a mark, too. It counts only when the owner is there and does not
	// say otherwise.
	weak bool
}

// labelMark is a label or an annotation whose value is the name of an owner.
type labelMark struct {
	name, namespace string // keys; namespace is empty where the mark says no namespace
	owner           object.GroupKind
	annotation      bool
	weak            bool
	source          string
}

// The keys of Argo CD and Helm.
const (
	argoTrackingID    = "argocd.argoproj.io/tracking-id"
	argoInstance      = "argocd.argoproj.io/instance"
	commonInstance    = "app.kubernetes.io/instance"
	helmReleaseName   = "meta.helm.sh/release-name"
	helmReleaseSpace  = "meta.helm.sh/release-namespace"
	fleetObjectSet    = "objectset.rio.cattle.io/id"
	objectSetOwner    = "objectset.rio.cattle.io/owner-gvk"
	magnumUUID        = "magnum.openstack.org/cluster-uuid"
	magnumClusterUUID = "cluster-uuid"
)

// labelMarks are the marks that name an owner. What has a form of its own is in claimsOf.
var labelMarks = []labelMark{
	{name: groupFluxKustomize + "/name", namespace: groupFluxKustomize + "/namespace",
		owner:  kustomization,
		source: "fluxcd/kustomize-controller v1.9.4, docs/spec/v1/kustomizations.md"},
	{name: groupFluxHelm + "/name", namespace: groupFluxHelm + "/namespace", owner: fluxHelmRelease,
		source: "fluxcd/helm-controller v1.6.3, internal/postrender/common_renderer.go"},
	{name: "resourceset." + groupFluxOperator + "/name",
		namespace: "resourceset." + groupFluxOperator + "/namespace", owner: resourceSet,
		source: "controlplaneio-fluxcd/flux-operator v0.58.1, " +
			"internal/controller/resourceset_controller.go"},
	{name: groupFluxOperator + "/name", namespace: groupFluxOperator + "/namespace",
		owner: fluxInstance,
		source: "controlplaneio-fluxcd/flux-operator v0.58.1, " +
			"internal/controller/fluxinstance_controller.go"},
	{name: helmReleaseName, namespace: helmReleaseSpace, owner: helmRelease, annotation: true,
		source: "helm/helm v3.19, pkg/action/validate.go (helmReleaseNameAnnotation)"},
	// The label that Argo CD's documentation advises in place of the common one.
	{name: argoInstance, owner: application,
		source: "argoproj/argo-cd v3.5.1, docs/faq.md (application.instanceLabelKey)"},
	// Helm charts set it, too.
	{name: commonInstance, owner: application, weak: true,
		source: "argoproj/argo-cd v3.5.1, docs/user-guide/resource_tracking.md"},
	{name: "fleet.cattle.io/bundle-name", namespace: "fleet.cattle.io/bundle-namespace",
		owner: bundle,
		source: "rancher/fleet 3b2c622c, pkg/apis/fleet.cattle.io/v1alpha1/gitrepo_types.go " +
			"(BundleLabel)"},
	{name: magnumUUID, owner: magnumCluster,
		source: "azimuth-cloud/magnum-capi-helm a8b82c24, magnum_capi_helm/driver.py"},
	{name: magnumClusterUUID, owner: magnumCluster,
		source: "vexxhost/magnum-cluster-api 3890a362, magnum_cluster_api/resources.py"},
}

// claimsOf returns what the metadata of an object says of its owners.
func claimsOf(ref object.Ref, meta gjson.Result) []claim {
	labels, annotations := meta.Get("labels"), meta.Get("annotations")
	var claims []claim
	for i := range labelMarks {
		m := &labelMarks[i]
		from := labels
		if m.annotation {
			from = annotations
		}
		name := value(from, m.name)
		if name == "" {
			continue
		}
		owner := refOf(m.owner, value(from, m.namespace), name)
		if m.owner == application {
			owner = applicationNamed(name)
		}
		claims = append(claims, claim{tool: rowOf(m.owner).tool, weak: m.weak, Ref: owner})
	}
	if c, ok := trackedBy(ref, value(annotations, argoTrackingID)); ok {
		claims = append(claims, c)
	}
	// A GitRepo labels its Bundles.
	if repo := value(labels, "fleet.cattle.io/repo-name"); repo != "" &&
		ref.GroupKind() == bundle {
		claims = append(claims, claim{tool: Fleet, Ref: refOf(gitRepo, ref.Namespace, repo)})
	}
	// Fleet installs its bundles as Helm releases. Without an owner in the annotation, the object is
	// none of another component of Rancher (rancher/wrangler v3, pkg/apply/desiredset_apply.go).
	if value(annotations, fleetObjectSet) != "" && value(annotations, objectSetOwner) == "" {
		claims = append(claims, claim{tool: Fleet, Ref: refOf(bundleDeployment, "", "")})
	}
	meta.Get("ownerReferences").ForEach(func(_, o gjson.Result) bool {
		group, _, _ := strings.Cut(o.Get("apiVersion").String(), "/")
		kind := object.GroupKind{Group: group, Kind: o.Get("kind").String()}
		if row := rowOf(kind); row != nil && row.listed() {
			claims = append(claims, claim{tool: row.tool, Ref: refOf(kind, ref.Namespace,
				strings.Clone(o.Get("name").String()))})
		}
		return true
	})
	return append(claims, managersOf(meta)...)
}

// managersOf returns a claim without a name for each tool among the field managers of an object.
func managersOf(meta gjson.Result) (claims []claim) {
	meta.Get("managedFields").ForEach(func(_, entry gjson.Result) bool {
		if m := managerNamed(entry.Get("manager").String()); m != nil &&
			entry.Get("subresource").String() == "" {
			claims = append(claims, claim{tool: m.tool})
		}
		return true
	})
	return claims
}

// trackedBy reads a tracking id, "APPLICATION:GROUP/KIND:NAMESPACE/NAME". The Application of
// another namespace than that of Argo CD is written "NAMESPACE_NAME". An id that names another
// object was copied with a manifest, and Argo CD ignores it (argoproj/argo-cd v3.5.1,
// util/argo/resource_tracking.go, controller/state.go isSelfReferencedObj).
func trackedBy(ref object.Ref, id string) (claim, bool) {
	app, of, found := strings.Cut(id, ":")
	kind, name, ok := strings.Cut(of, ":")
	if !found || !ok || app == "" {
		return claim{}, false
	}
	namespace, name, _ := strings.Cut(name, "/")
	if kind != ref.Group+"/"+ref.Kind || name != ref.Name ||
		ref.Namespace != "" && namespace != ref.Namespace {
		return claim{}, false
	}
	return claim{tool: ArgoCD, Ref: applicationNamed(app)}, true
}

// applicationNamed returns the Application that a tracking id or a label names. The name of an
// object has no underscore.
func applicationNamed(name string) object.Ref {
	if namespace, of, ok := strings.Cut(name, "_"); ok {
		return refOf(application, namespace, of)
	}
	return refOf(application, "", name)
}

func refOf(gk object.GroupKind, namespace, name string) object.Ref {
	return object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: namespace, Name: name}
}

// value returns a copy of the text under a key that may contain dots; "" when there is none.
func value(in gjson.Result, key string) string {
	if key == "" {
		return ""
	}
	return strings.Clone(in.Get(gjson.Escape(key)).String())
}
