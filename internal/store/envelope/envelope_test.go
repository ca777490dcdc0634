package envelope

import (
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/layout"
)

func TestEnvelopeHasSortedFingerprintsOrNone(t *testing.T) {
	const a, b = "0123456789abcdef", "f123456789abcdef"
	for _, tt := range []struct {
		recipients []string
		valid      bool
	}{
		{nil, true},
		{[]string{a}, true},
		{[]string{a, b}, true},
		{[]string{b, a}, false},
		{[]string{a, a}, false},
		{[]string{a[:15]}, false},
		{[]string{"0123456789ABCDEF"}, false},
		{[]string{""}, false},
	} {
		e := Envelope{ID: layout.NewSnapshotID(), Time: time.Unix(1e9, 0), Source: Source{UID: "7d1f"},
			Sequence: 1, Tree: layout.KeyOf(layout.KindTree, false, nil), Recipients: tt.recipients}
		if err := e.Validate(); (err == nil) != tt.valid {
			t.Errorf("%q: %v", tt.recipients, err)
		}
	}
}
