package capi

import "strings"

// IsForeignHold reports whether a finalizer, or an annotation of a Machine that IsDeletionHook
// accepts, makes a deletion wait for a controller that belongs neither to Kubernetes nor to Cluster
// API. The finalizers of Cluster API and of its providers are in its domain by convention.
func IsForeignHold(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	if IsDeletionHook(name) {
		return !ownHooks[name]
	}
	switch domain {
	case "foregroundDeletion", "orphan", "kubernetes", "kubernetes.io":
		return false
	}
	return domain != GroupCore && !strings.HasSuffix(domain, "."+GroupCore) &&
		!strings.HasSuffix(domain, ".kubernetes.io")
}

// IsDeletionHook reports whether an annotation of a Machine makes its deletion wait: its prefix is
// PreDrainDeleteHookAnnotationPrefix or PreTerminateDeleteHookAnnotationPrefix of
// sigs.k8s.io/cluster-api v1.14, api/core/v1beta2/machine_types.go.
func IsDeletionHook(annotation string) bool {
	domain, _, _ := strings.Cut(annotation, "/")
	return domain == "pre-drain.delete.hook.machine."+GroupCore ||
		domain == "pre-terminate.delete.hook.machine."+GroupCore
}

// ownHooks are set and removed by providers of control planes, which a restore needs anyway:
// PreTerminateHookCleanupAnnotation of the kubeadm (and k0s) and of the RKE2 control plane. That of
// k3s is the bare prefix (cluster-api-k3s v0.3, controlplane/controllers/scale.go).
var ownHooks = map[string]bool{
	"pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup":  true,
	"pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke2-cleanup": true,
	"pre-terminate.delete.hook.machine.cluster.x-k8s.io":              true,
}
