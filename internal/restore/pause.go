package restore

import (
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
)

const (
	ownAnnotations = "mgmtd.dev/"
	// gone once the UID of what was created is journaled
	annotationOperation  = capi.AnnotationOperation
	annotationWasPaused  = capi.AnnotationWasPaused // gone with the release
	fieldMetadata        = "metadata"
	conditionPaused      = "Paused"
	fieldOwnerReferences = "ownerReferences"
)

// Pause sets the switch of u's kind, if it has one of its own, and marks in u what it was. It may
// run again: a switch that is marked stays as it is. It reports whether it changed anything.
func Pause(u *unstructured.Unstructured) bool {
	if PausedByUs(u) {
		return false
	}
	was := capi.WasAbsent
	switch capi.PauseOf(gkOf(u)) {
	case capi.PauseSpec:
		if paused, set, _ := unstructured.NestedBool(u.Object, "spec", "paused"); set {
			was = strconv.FormatBool(paused)
		}
		// spec is an object in every kind that has this switch.
		_ = unstructured.SetNestedField(u.Object, true, "spec", "paused")
	case capi.PauseAnnotation:
		if _, set := u.GetAnnotations()[capi.AnnotationPaused]; set {
			was = capi.WasTrue
		} else {
			Annotate(u, capi.AnnotationPaused, "")
		}
	default:
		return false
	}
	Annotate(u, annotationWasPaused, was)
	return true
}

// PausedByUs tells whether an operation set the switch and has not given it back.
func PausedByUs(u *unstructured.Unstructured) bool {
	_, ours := u.GetAnnotations()[annotationWasPaused]
	return ours
}

// Unpause gives the switch back, to exactly what it was: what was absent is removed, not set to
// false. A switch that we did not set stays as it is: somebody else set it. It reports whether it
// changed anything.
func Unpause(u *unstructured.Unstructured) bool {
	if !PausedByUs(u) {
		return false
	}
	was := u.GetAnnotations()[annotationWasPaused]
	switch capi.PauseOf(gkOf(u)) {
	case capi.PauseSpec:
		if was == capi.WasAbsent {
			unstructured.RemoveNestedField(u.Object, "spec", "paused")
		} else {
			_ = unstructured.SetNestedField(u.Object, was == capi.WasTrue, "spec", "paused")
		}
	case capi.PauseAnnotation:
		if was != capi.WasTrue {
			Unannotate(u, capi.AnnotationPaused)
		}
	}
	Unannotate(u, annotationWasPaused)
	return true
}

// Annotate sets one annotation.
func Annotate(u *unstructured.Unstructured, key, value string) {
	a := u.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a[key] = value
	u.SetAnnotations(a)
}

// Unannotate removes one annotation, and the field with the last of them.
func Unannotate(u *unstructured.Unstructured, key string) {
	a := u.GetAnnotations()
	if _, ok := a[key]; !ok {
		return
	}
	delete(a, key)
	if len(a) == 0 {
		a = nil
	}
	u.SetAnnotations(a)
}
