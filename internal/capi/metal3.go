package capi

import "github.com/mgmtd/mgmtd/internal/object"

// metal3Rows are the kinds of Metal3. Those of its infrastructure group are default rows.
func metal3Rows() []Row {
	return []Row{
		// Restored with an empty status for only a moment, it has its disk imaged again.
		{GroupKind: object.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"},
			Source: "metal3-io/baremetal-operator, apis/metal3.io/v1alpha1/baremetalhost_types.go " +
				"(PausedAnnotation)",
			Pause: PauseUnsupported},
	}
}
