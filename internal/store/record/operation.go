package record

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// OperationKey names one record of an operation's journal:
// "operations/<id>/<seq>-<state>.json.zst.age". Keys of one operation sort by number.
type OperationKey struct {
	Operation string
	Seq       int64
	State     string

	Plain bool // of a plain store, without the last suffix
}

const (
	seqDigits = 8
	maxSeq    = 99999999
	maxHead   = 64 << 10 // first line of a record
)

// String returns the key as it is in the bucket.
func (k OperationKey) String() string {
	suffix := ".json.zst.age"
	if k.Plain {
		suffix = ".json.zst"
	}
	return fmt.Sprintf("%s%s/%0*d-%s%s", layout.OperationFolder, k.Operation, seqDigits, k.Seq,
		k.State,
		suffix)
}

// Validate returns what is wrong with a key that was not parsed.
func (k OperationKey) Validate() error {
	if !layout.ValidSource(k.Operation) {
		return fmt.Errorf("operation %.40q is not an id", k.Operation)
	}
	if k.Seq < 1 || k.Seq > maxSeq {
		return fmt.Errorf("number %d is not within 1 and %d", k.Seq, maxSeq)
	}
	if k.State == "" || len(k.State) > 64 ||
		strings.Trim(k.State, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("state %.40q is not lower-case letters, digits and dashes", k.State)
	}
	return nil
}

// ParseOperationKey reads a key; anything but the exact form is no key.
func ParseOperationKey(s string) (OperationKey, bool) {
	rest, ok := strings.CutPrefix(s, layout.OperationFolder)
	if !ok {
		return OperationKey{}, false
	}
	var k OperationKey
	k.Operation, rest, _ = strings.Cut(rest, "/")
	rest, encrypted := strings.CutSuffix(rest, ".age")
	k.Plain = !encrypted
	digits, state, _ := strings.Cut(rest, "-")
	k.State = strings.TrimSuffix(state, ".json.zst")
	seq, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return OperationKey{}, false
	}
	k.Seq = seq
	return k, k.Validate() == nil && k.String() == s
}

// Operation is what is signed of a record: its key, and its text by hash.
type Operation struct {
	document.Header
	SHA256 string `json:"sha256"` // of the text
}

// Validate accepts every record: its text is compared with the hash.
func (o *Operation) Validate() error { return nil }
