package record

import (
	"fmt"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Pin protects a snapshot from removal. It is written once. Its existence decides, so that a
// damaged pin protects the snapshot, too.
type Pin struct {
	document.Header
	Source string            `json:"source"`
	ID     layout.SnapshotID `json:"id"`
	Time   time.Time         `json:"time"`   // PutPin cuts it to milliseconds, UTC
	Reason string            `json:"reason"` // for people; may be empty
}

// PinFolder has the pins.
const PinFolder = "pins/"

// PinKey is the key of the pin of a snapshot.
func PinKey(k layout.EnvelopeKey) string {
	return PinFolder + strings.TrimPrefix(k.String(),
		layout.EnvelopeFolder)
}

// Claim returns what the pin is for and about.
func (p *Pin) Claim() keys.Claim {
	return keys.Claim{Purpose: keys.ForPin, Sources: []string{p.Source}}
}

// Validate returns what breaks the format.
func (p *Pin) Validate() error {
	if !document.Printable(p.Reason) {
		return fmt.Errorf("%.80q does not print", p.Reason)
	}
	return nil
}
