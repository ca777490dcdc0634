package store

import "github.com/mgmtd/mgmtd/internal/store/layout"

// The names of what is stored, as package layout defines them.
type (
	Key         = layout.Key
	Kind        = layout.Kind
	EnvelopeKey = layout.EnvelopeKey
	SnapshotID  = layout.SnapshotID
)

// Kinds of content-addressed keys.
const (
	KindPack  = layout.KindPack
	KindShard = layout.KindShard
	KindTree  = layout.KindTree
)

// ParseKey reads the key of a pack, shard or tree; anything but the exact form is an error.
func ParseKey(s string) (Key, error) { return layout.ParseKey(s) }

// ParseEnvelopeKey reads the key of an envelope; anything but the exact form is an error.
func ParseEnvelopeKey(s string) (EnvelopeKey, error) { return layout.ParseEnvelopeKey(s) }

// NewSnapshotID returns a random id.
func NewSnapshotID() SnapshotID { return layout.NewSnapshotID() }

// ParseSnapshotID reads a whole id; Find takes the beginning of one.
func ParseSnapshotID(s string) (SnapshotID, error) { return layout.ParseSnapshotID(s) }
