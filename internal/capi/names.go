package capi

import "github.com/mgmtd/mgmtd/internal/object"

// API groups of Cluster API.
const (
	GroupCore           = "cluster.x-k8s.io"
	GroupBootstrap      = "bootstrap.cluster.x-k8s.io"
	GroupControlPlane   = "controlplane.cluster.x-k8s.io"
	GroupInfrastructure = "infrastructure.cluster.x-k8s.io"
	GroupAddons         = "addons.cluster.x-k8s.io"
	GroupIPAM           = "ipam.cluster.x-k8s.io"
	GroupRuntime        = "runtime.cluster.x-k8s.io"
	GroupClusterctl     = "clusterctl.cluster.x-k8s.io"
)

// Kinds that flows know by name: those of Kubernetes and of Cluster API core. Everything else that
// a flow has to know of a kind is data of this package.
var (
	Namespace                 = object.GroupKind{Kind: "Namespace"}
	Secret                    = object.GroupKind{Kind: "Secret"}
	ConfigMap                 = object.GroupKind{Kind: "ConfigMap"}
	Cluster                   = object.GroupKind{Group: GroupCore, Kind: "Cluster"}
	ClusterClass              = object.GroupKind{Group: GroupCore, Kind: "ClusterClass"}
	Machine                   = object.GroupKind{Group: GroupCore, Kind: "Machine"}
	MachinePool               = object.GroupKind{Group: GroupCore, Kind: "MachinePool"}
	KubeadmControlPlane       = object.GroupKind{Group: GroupControlPlane, Kind: "KubeadmControlPlane"}
	ClusterResourceSet        = object.GroupKind{Group: GroupAddons, Kind: "ClusterResourceSet"}
	ClusterResourceSetBinding = object.GroupKind{Group: GroupAddons, Kind: "ClusterResourceSetBinding"}
	ExtensionConfig           = object.GroupKind{Group: GroupRuntime, Kind: "ExtensionConfig"}
	IPAddress                 = object.GroupKind{Group: GroupIPAM, Kind: "IPAddress"}
	IPAddressClaim            = object.GroupKind{Group: GroupIPAM, Kind: "IPAddressClaim"}
	Provider                  = object.GroupKind{Group: GroupClusterctl, Kind: "Provider"}
)

// Annotations of Cluster API and of this product.
const (
	// AnnotationPaused pauses one object (Cluster API contract).
	AnnotationPaused = "cluster.x-k8s.io/paused"
	// AnnotationManagedBy marks the object of an infrastructure that something outside of its provider
	// manages: no controller of the provider reconciles it (Cluster API contract).
	AnnotationManagedBy = "cluster.x-k8s.io/managed-by"
	// AnnotationSkipRemediation keeps a MachineHealthCheck from replacing a Machine (cluster-api
	// v1.14, core/reconcilers/machinehealthcheck/machinehealthcheck_targets.go).
	AnnotationSkipRemediation = "cluster.x-k8s.io/skip-remediation"
	// AnnotationConversionData has what an object would lose at the version that it is read or stored
	// at. Conversion webhooks write and remove it (cluster-api v1.14, util/conversion/conversion.go).
	AnnotationConversionData = "cluster.x-k8s.io/conversion-data"
	// AnnotationBlockMove is set by providers on objects that must not be moved yet, and removed when
	// they are ready (clusterctl contract).
	AnnotationBlockMove = "clusterctl.cluster.x-k8s.io/block-move"
	// AnnotationWorkloadID carries the id of a workload cluster from one management cluster to the
	// next.
	AnnotationWorkloadID = "mgmtd.dev/workload-id"
	// AnnotationOperation names the operation, and its run, that holds the lock of a Cluster on the
	// source of a move, or has set the switch of another object there. Earlier versions also marked
	// with it what a restore had created and not finished.
	AnnotationOperation = "mgmtd.dev/operation"
	// AnnotationEpoch carries the epoch of the ownership record on the Cluster of its owner:
	// ownership.EpochMark. A host whose catalog is lost detects an old record by it.
	AnnotationEpoch = "mgmtd.dev/epoch"
	// AnnotationFenced marks a Cluster that was fenced: paused since another management cluster owns
	// the workload cluster, or is about to. Its value says why (FencedByRecord, FencedByOperator).
	AnnotationFenced = "mgmtd.dev/fenced"
	// AnnotationWasPaused marks an object whose pause switch an operation set. Its value is what
	// the switch was before: WasAbsent, WasFalse or WasTrue.
	AnnotationWasPaused = "mgmtd.dev/was-paused"
)

// Values of AnnotationWasPaused.
const (
	WasAbsent = "absent"
	WasFalse  = "false"
	WasTrue   = "true"
)

// Values of AnnotationFenced.
const (
	// FencedByRecord: a trusted ownership record names another management cluster.
	FencedByRecord = "record"
	// FencedByOperator: an operator asked for it, before a restore elsewhere.
	FencedByOperator = "operator"
	// FenceLifting follows one of them while the fence is being lifted: the Cluster is still paused,
	// and no restore elsewhere may rely on that any more.
	FenceLifting = "-lifting"
)

// Labels of Cluster API and clusterctl.
const (
	// LabelClusterName names the workload cluster of an object.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	// LabelMove and LabelMoveHierarchy ask clusterctl move to move an object, and what it owns.
	LabelMove          = "clusterctl.cluster.x-k8s.io/move"
	LabelMoveHierarchy = "clusterctl.cluster.x-k8s.io/move-hierarchy"
	// labelControlPlane is on the Machines of a control plane and what belongs to them.
	labelControlPlane = "cluster.x-k8s.io/control-plane"
)
