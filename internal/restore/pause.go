package restore

import (
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
