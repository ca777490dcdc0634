package record

import (
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Copied says that a snapshot came to a copy. It is stored before the envelope and stays, so that a
// number that the copy once had is never taken for one that it never had. All that it says is in
// its key.
type Copied struct {
	document.Header
}

// CopiedFolder has, in a copy, a record for each snapshot that ever came there.
const CopiedFolder = "copied/"

// CopiedKey returns the key of the record: "copied/<source>/<number>-<time>-<id>.json".
func CopiedKey(k layout.EnvelopeKey, sequence int64) string {
	return CopiedFolder + k.Source + "/" + strconv.FormatInt(sequence, 10) + "-" + k.Name() +
		layout.EnvelopeSuffix
}

// ParseCopiedKey returns the snapshot and the number that are in the key of a record; ok is false
// for any other key.
func ParseCopiedKey(key string) (k layout.EnvelopeKey, sequence int64, ok bool) {
	rest, ok := strings.CutPrefix(key, CopiedFolder)
	if !ok {
		return k, 0, false
	}
	source, name, _ := strings.Cut(rest, "/")
	digits, name, _ := strings.Cut(name, "-")
	sequence, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || sequence < 1 {
		return k, 0, false
	}
	k, err = layout.ParseEnvelopeKey(layout.EnvelopeFolder + source + "/" + name)
	if err != nil || CopiedKey(k, sequence) != key {
		return k, 0, false
	}
	return k, sequence, true
}

// Claim returns what the record is for: it is about the store, like that of a run.
func (c *Copied) Claim() keys.Claim { return keys.Claim{Purpose: keys.ForStore} }

// Validate returns what breaks the format.
func (c *Copied) Validate() error { return nil }
