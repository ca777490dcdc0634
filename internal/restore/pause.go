package restore

import (
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
