package restore

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	ownAnnotations       = "mgmtd.dev/"
	annotationOperation  = capi.AnnotationOperation // a lock, or the mark of an earlier version
	annotationWasPaused  = capi.AnnotationWasPaused // gone with the release
	fieldMetadata        = "metadata"
	conditionPaused      = "Paused"
	fieldOwnerReferences = "ownerReferences"
)

// isPaused reports whether spec.paused of a Cluster is set, by whomever.
func isPaused(u *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
	return paused
}

// isPausedByHand reports whether a Cluster is paused and no operation of ours has paused it.
func isPausedByHand(u *unstructured.Unstructured) bool {
	return isPaused(u) && !capi.PausedByUs(u.Object)
}

// acceptPause changes a Cluster of the snapshot as the pause has changed the live one that is
// adopted and was paused by hand: a Cluster whose spec.paused is false differs by its pause alone.
func acceptPause(want, live *unstructured.Unstructured) {
	gvk := want.GroupVersionKind()
	spec, _ := want.Object["spec"].(map[string]any)
	if _, set := spec["paused"]; set && isPausedByHand(live) &&
		capi.Cluster == (object.GroupKind{Group: gvk.Group, Kind: gvk.Kind}) {
		spec["paused"] = true
	}
}
