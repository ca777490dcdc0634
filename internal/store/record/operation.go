package record

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// OperationKey names one record of an operation's journal: "operations/<id>/<seq>.json.zst.age".
// Keys of one operation sort by number. The number alone names a record, so that of two hosts that
// write the next one only one succeeds.
type OperationKey struct {
	Operation string
	Seq       int64

	Plain bool // of a plain store, without the last suffix
}

const (
	seqDigits = 8
	maxSeq    = 99999999

	recordSuffix    = ".json.zst"
	encryptedSuffix = ".age"
)

// String returns the key as it is in the bucket.
func (k OperationKey) String() string {
	suffix := recordSuffix + encryptedSuffix
	if k.Plain {
		suffix = recordSuffix
	}
	return fmt.Sprintf("%s%s/%0*d%s", layout.OperationFolder, k.Operation, seqDigits, k.Seq, suffix)
}

// Validate returns what is wrong with a key that was not parsed.
func (k OperationKey) Validate() error {
	if !layout.ValidSource(k.Operation) {
		return fmt.Errorf("operation %.40q is not an id", k.Operation)
	}
	if k.Seq < 1 || k.Seq > maxSeq {
		return fmt.Errorf("number %d is not within 1 and %d", k.Seq, maxSeq)
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
	rest, encrypted := strings.CutSuffix(rest, encryptedSuffix)
	k.Plain = !encrypted
	seq, err := strconv.ParseInt(strings.TrimSuffix(rest, recordSuffix), 10, 64)
	if err != nil {
		return OperationKey{}, false
	}
	k.Seq = seq
	return k, k.Validate() == nil && k.String() == s
}

// Operation is what is signed of a record: its key, what follows by hash, and what anybody may
// read of the operation without an identity. It names no object and no workload cluster.
type Operation struct {
	document.Header
	// SHA256 is of what follows the line, as it is stored.
	SHA256 string `json:"sha256"`
	OperationHead
}

// OperationHead is the first line of a record: who wrote it, and where the operation stands.
type OperationHead struct {
	// Host wrote the record, at Time by its clock, in whole milliseconds.
	Host string    `json:"host"`
	Time time.Time `json:"time"`
	// Kind, State, Source and Target are those of the operation.
	Kind   string `json:"kind"`
	State  string `json:"state"`
	Source string `json:"source,omitempty"`
	Target string `json:"target,omitempty"`
	// Snapshot is the id of the snapshot that the operation needs.
	Snapshot string `json:"snapshot,omitempty"`
	// Final says that the operation can never run again, and that no other one needs it.
	Final bool `json:"final,omitempty"`
	// GivenUp says that an operator has ended it for good with work left.
	GivenUp bool `json:"givenUp,omitempty"`
	// Whole says that the record holds all of the journal, and that earlier ones are not needed.
	Whole bool `json:"whole,omitempty"`
	// Previous is the SHA-256 of the record before it, as stored; empty in the first one.
	Previous string `json:"previous,omitempty"`
}

// Claim returns what the record is for. It is about no certain sources: an operation has two sides.
func (o *Operation) Claim() keys.Claim { return keys.Claim{Purpose: keys.ForOperation} }

// Validate returns what breaks the format. The text is compared with the hash apart from it.
func (o *Operation) Validate() error {
	if !document.ValidTime(o.Time) {
		return fmt.Errorf("time %s is not in whole milliseconds", o.Time)
	}
	for _, text := range []string{o.Host, o.Kind, o.State, o.Source, o.Target,
		o.Snapshot} {
		if !document.Printable(text) {
			return fmt.Errorf("%.80q does not print", text)
		}
	}
	if !layout.IsHex(o.SHA256, 64) {
		return errors.New("sha256 is not 64 lower-case hex digits")
	}
	if o.Previous != "" && !layout.IsHex(o.Previous, 64) {
		return errors.New("previous is not 64 lower-case hex digits")
	}
	return nil
}
