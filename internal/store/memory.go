package store

import (
	"context"
	"time"
)

// Memory knows, from one snapshot of a source in a store to the next, under which keys content is
// stored, so that what did not change is not written again. What it forgets is written once more;
// what it says is believed as far as the tree of the base names the key, and the base is the newest
// snapshot of the source. A store without a signing key has none: its ids could be computed by who
// reads the catalog, and guesses at a Secret be confirmed.
type Memory interface {
	Recall(ctx context.Context) (Known, error)
	// Remember changes what is known. When change.Was is not what is known, as after another run in
	// between, all of it is forgotten.
	Remember(ctx context.Context, change KnownChange) error
}

// Known is what is known of the base, which is the snapshot that was remembered last.
type Known struct {
	// of the content ids and of the sealing; the same for as long as anything is known
	Secret []byte
	// the key of its envelope and its SHA-256; empty when nothing is known
	Base string
	// by the id of the part's name: what the writer of the snapshot sealed
	Parts map[ContentID][]byte
	Keys  map[string]KnownKey
}

// KnownKey is a shard or a pack.
type KnownKey struct {
	Size    int64     `json:"size"`
	Written time.Time `json:"written"`
	// Retained is until when the storage keeps it from being deleted, as far as is known; zero when
	// it is not asked to.
	Retained time.Time `json:"retained,omitzero"`
}

// KnownChange is the difference between two bases.
type KnownChange struct {
	Was, Base string
	Parts     map[ContentID][]byte // new or changed
	GoneParts []ContentID
	Keys      map[string]KnownKey // new or changed
	GoneKeys  []string
}
