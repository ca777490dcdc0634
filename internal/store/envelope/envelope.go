// Package envelope is the format of an envelope, the signed document of one snapshot.
package envelope

import (
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Envelope is what is signed of a snapshot: when, of what, and which tree. It names no object and
// holds no content.
type Envelope struct {
	// Format and StoreID are set by PutEnvelope.
	Format  int    `json:"format"`
	StoreID string `json:"storeID"`

	ID layout.SnapshotID `json:"id"`
	// when the cut was taken; PutEnvelope cuts it to milliseconds, UTC
	Time time.Time `json:"time"`
	// Source is the management cluster that was captured.
	Source          Source `json:"source"`
	ResourceVersion string `json:"resourceVersion"` // the cut
	// Sequence counts the snapshots of a source from 1, Parent is the one before: together they
	// show when one was taken away.
	Sequence int64      `json:"sequence"`
	Parent   *Parent    `json:"parent,omitempty"` // nil for the first
	Tree     layout.Key `json:"tree"`
	Counts   Counts     `json:"counts"`
	// stored bytes of the shards and packs that the tree names
	Bytes int64 `json:"bytes"`
	// kinds ("Kind.group") that could not be read at ResourceVersion
	NotInCut []string `json:"notInCut,omitempty"`
	// only a selection was captured; which is said in the shards only
	Partial bool `json:"partial"`
	// Scope is what was asked for. Earlier versions did not write it: without it, a snapshot that is
	// not partial is whole, and the scope of a partial one is not known.
	Scope  *Scope `json:"scope,omitempty"`
	Writer string `json:"writer"` // program and version
	// seconds of the schedule that took it, 0 when none did
	Interval int64 `json:"interval"`
	// Expires is until when the snapshot is retained at least. After that it is removed, unless
	// something else requires it. Zero means no expiry. PutEnvelope cuts it to milliseconds, UTC.
	Expires time.Time `json:"expires,omitzero"`
	// Recipients are the fingerprints (keys.Fingerprint) of those whom the content is encrypted to,
	// sorted; PutEnvelope sets them. There are none in a plain store, and none in a snapshot of an
	// earlier version.
	Recipients []string `json:"recipients,omitempty"`
}

// Source is a management cluster.
type Source struct {
	UID               string `json:"uid"`  // of its kube-system namespace
	Name              string `json:"name"` // for people
	KubernetesVersion string `json:"kubernetesVersion"`
}

// Parent names the snapshot before and the SHA-256 of its stored envelope.
type Parent struct {
	ID     layout.SnapshotID `json:"id"`
	SHA256 string            `json:"sha256"`
}

// Valid reports whether p is an id and a SHA-256.
func (p Parent) Valid() bool {
	_, err := layout.ParseSnapshotID(string(p.ID))
	return err == nil && layout.IsHex(p.SHA256, 64)
}

// Counts of what is in a snapshot.
type Counts struct {
	Objects  int64 `json:"objects"`
	Units    int64 `json:"units"`
	Missing  int64 `json:"missing"`
	NotInCut int64 `json:"notInCut"` // kinds
}

// Key returns the key under which the envelope belongs.
func (e *Envelope) Key() layout.EnvelopeKey {
	return layout.EnvelopeKey{Source: e.Source.UID, Time: e.Time, ID: e.ID}
}

// Place returns the store and the key that the envelope belongs to.
func (e *Envelope) Place() (storeID, key string) { return e.StoreID, e.Key().String() }

// Claim returns what the envelope is for and about.
func (e *Envelope) Claim() keys.Claim {
	return keys.Claim{Purpose: keys.ForSnapshot, Sources: []string{e.Source.UID}, Sequence: e.Sequence}
}

// Validate returns what breaks the format.
func (e *Envelope) Validate() error {
	if _, err := layout.ParseSnapshotID(string(e.ID)); err != nil {
		return err
	}
	if e.Tree.Kind() != layout.KindTree {
		return fmt.Errorf("tree %.120q is not the key of a tree", string(e.Tree))
	}
	if !layout.ValidSource(e.Source.UID) {
		return fmt.Errorf("source %.40q is not a UID", e.Source.UID)
	}
	if !document.ValidTime(e.Time) {
		return errors.New("time is not in whole milliseconds, or out of range")
	}
	if !e.Expires.IsZero() && !document.ValidTime(e.Expires) {
		return errors.New("expires is not in whole milliseconds, or out of range")
	}
	if e.Sequence < 1 {
		return errors.New("sequence is less than 1")
	}
	if e.Parent != nil && !e.Parent.Valid() {
		return errors.New("parent is not an id and a SHA-256")
	}
	for _, n := range []int64{e.Counts.Objects, e.Counts.Units, e.Counts.Missing, e.Counts.NotInCut,
		e.Bytes, e.Interval} {
		if n < 0 {
			return errors.New("a count is negative")
		}
	}
	if err := e.validateScope(); err != nil {
		return err
	}
	for i, r := range e.Recipients {
		if !layout.IsHex(r, keys.FingerprintDigits) || i > 0 && r <= e.Recipients[i-1] {
			return errors.New("recipients are not a sorted list of fingerprints")
		}
	}
	texts := append([]string{e.Source.Name, e.Source.KubernetesVersion, e.ResourceVersion, e.Writer},
		e.NotInCut...)
	for _, text := range texts {
		if !document.Printable(text) {
			return fmt.Errorf("%.80q does not print", text)
		}
	}
	return nil
}
