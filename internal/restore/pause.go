package restore

import (
	"github.com/mgmtd/mgmtd/internal/capi"
)

const (
	ownAnnotations       = "mgmtd.dev/"
	annotationOperation  = capi.AnnotationOperation // a lock, or the mark of an earlier version
	annotationWasPaused  = capi.AnnotationWasPaused // gone with the release
	fieldMetadata        = "metadata"
	conditionPaused      = "Paused"
	fieldOwnerReferences = "ownerReferences"
)
