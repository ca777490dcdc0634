package store

import (
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Envelope is what is signed of a snapshot: when, of what, and which tree. It names no object and
// holds no content.
type Envelope struct {
	// Format and StoreID are set by PutEnvelope.
	Format  int    `json:"format"`
	StoreID string `json:"storeID"`

	ID SnapshotID `json:"id"`
	// when the cut was taken; PutEnvelope cuts it to milliseconds, UTC
	Time time.Time `json:"time"`
	// Source is the management cluster that was captured.
	Source          Source `json:"source"`
	ResourceVersion string `json:"resourceVersion"` // the cut
	// Sequence counts the snapshots of a source from 1, Parent is the one before: together they
	// show when one was taken away.
	Sequence int64   `json:"sequence"`
	Parent   *Parent `json:"parent,omitempty"` // nil for the first
	Tree     Key     `json:"tree"`
	Counts   Counts  `json:"counts"`
	// stored bytes of the shards and packs that the tree names
	Bytes int64 `json:"bytes"`
	// kinds ("Kind.group") that could not be read at ResourceVersion
	NotInCut []string `json:"notInCut,omitempty"`
	// only chosen namespaces were captured; which is said in the shards only
	Partial bool   `json:"partial"`
	Writer  string `json:"writer"` // program and version
	// seconds of the schedule that took it, 0 when none did
	Interval int64 `json:"interval"`
	// Expires is until when it is kept at least, and after which no more unless something else
	// keeps it; zero when it says nothing about that. PutEnvelope cuts it to milliseconds, UTC.
	Expires time.Time `json:"expires,omitzero"`
}

// Source is a management cluster.
type Source struct {
	UID               string `json:"uid"`  // of its kube-system namespace
	Name              string `json:"name"` // for people
	KubernetesVersion string `json:"kubernetesVersion"`
}

// Parent names the snapshot before and the SHA-256 of its stored envelope.
type Parent struct {
	ID     SnapshotID `json:"id"`
	SHA256 string     `json:"sha256"`
}

// Counts of what is in a snapshot.
type Counts struct {
	Objects  int64 `json:"objects"`
	Units    int64 `json:"units"`
	Missing  int64 `json:"missing"`
	NotInCut int64 `json:"notInCut"` // kinds
}

// Key returns the key under which the envelope belongs.
func (e *Envelope) Key() EnvelopeKey {
	return EnvelopeKey{Source: e.Source.UID, Time: e.Time, ID: e.ID}
}

// check holds for what is written and for what is read.
func (e *Envelope) check() error {
	if _, err := ParseSnapshotID(string(e.ID)); err != nil {
		return err
	}
	if e.Tree.Kind() != KindTree {
		return fmt.Errorf("tree %.120q is not the key of a tree", string(e.Tree))
	}
	if !layout.ValidSource(e.Source.UID) {
		return fmt.Errorf("source %.40q is not a UID", e.Source.UID)
	}
	if !e.Time.Equal(e.Time.Truncate(time.Millisecond)) || e.Time.UTC().Year() < 1970 ||
		e.Time.UTC().Year() > 9999 {
		return errors.New("time is not in whole milliseconds, or out of range")
	}
	if x := e.Expires; !x.Equal(x.Truncate(time.Millisecond)) || !x.IsZero() &&
		(x.UTC().Year() < 1970 || x.UTC().Year() > 9999) {
		return errors.New("expires is not in whole milliseconds, or out of range")
	}
	if e.Sequence < 1 {
		return errors.New("sequence is less than 1")
	}
	if e.Parent != nil {
		if _, err := ParseSnapshotID(string(e.Parent.ID)); err != nil ||
			!layout.IsHex(e.Parent.SHA256, 64) {
			return errors.New("parent is not an id and a SHA-256")
		}
	}
	for _, n := range []int64{e.Counts.Objects, e.Counts.Units, e.Counts.Missing, e.Counts.NotInCut,
		e.Bytes, e.Interval} {
		if n < 0 {
			return errors.New("a count is negative")
		}
	}
	texts := append([]string{e.Source.Name, e.Source.KubernetesVersion, e.ResourceVersion, e.Writer},
		e.NotInCut...)
	for _, text := range texts {
		if !printable(text) {
			return fmt.Errorf("%.80q does not print", text)
		}
	}
	return nil
}

// printable keeps escape sequences of a stranger's envelope off the operator's terminal.
func printable(s string) bool {
	if len(s) > 512 || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// Signed is an envelope as it was read.
type Signed struct {
	Envelope
	SHA256 string // of the stored file; what a child names as its parent
	Size   int64  // of the stored file
	Trust  Trust
	KeyID  string // of the key that signed, as minisign prints it; a claim unless Trust is Trusted
}

// RequireTrusted returns a *TrustError unless a trusted key signed the envelope.
func (s *Signed) RequireTrusted() error {
	if s.Trust == Trusted {
		return nil
	}
	return &TrustError{Key: s.Key().String(), Trust: s.Trust, KeyID: s.KeyID}
}

// envelopeFile is the stored document. The payload is text inside it, so that what was signed is
// the very bytes that jq prints.
type envelopeFile struct {
	Payload   string `json:"payload"`
	Signature string `json:"signature"`
}

const maxEnvelope = 1 << 20

// decodeEnvelopeFile splits a stored envelope. The error is damage.
func decodeEnvelopeFile(data []byte) (payload []byte, signature string, err error) {
	var f envelopeFile
	if err := document.Decode(data, &f, "payload", "signature"); err != nil {
		return nil, "", bucket.Damage(err.Error())
	}
	return []byte(f.Payload), f.Signature, nil
}

// decodePayload reads a payload that is known to be signed, or known not to be. Names that it does
// not know are left to newer writers. The error is damage, or a *FormatError without its key.
func decodePayload(payload []byte) (Envelope, error) {
	found, err := document.FormatOf(payload)
	if err != nil {
		return Envelope{}, bucket.Damage("payload: " + err.Error())
	}
	if found != Format {
		return Envelope{}, &FormatError{Format: found}
	}
	var e Envelope
	if err := document.Decode(payload, &e); err != nil {
		return Envelope{}, bucket.Damage("payload: " + err.Error())
	}
	if err := e.check(); err != nil {
		return Envelope{}, bucket.Damage("payload: " + err.Error())
	}
	e.Time, e.Expires = e.Time.UTC(), e.Expires.UTC()
	return e, nil
}

// encodeEnvelope makes the stored file; the same envelope and key make the same bytes.
func (s *Store) encodeEnvelope(e *Envelope) ([]byte, error) {
	data, err := s.encodeSigned(e.Key().String(), e)
	if err == nil && len(data) > maxEnvelope {
		err = fmt.Errorf("it has %d bytes, more than the %d of the format", len(data), maxEnvelope)
	}
	return data, err
}
