package incremental

import (
	"context"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
)

// StateStore stores the states of one source in one store, one for each scope, from one snapshot to
// the next: a snapshot reuses what the one before it in its scope wrote. Content
// that it does not list is written once more. A store without a signing key has no state: anyone
// who reads the catalog could compute its content IDs and so confirm guesses at a Secret.
type StateStore interface {
	// Load returns the state of a scope; the first time one that has a secret and nothing else.
	Load(ctx context.Context, scope string) (State, error)
	// Update changes the state of a scope in one transaction. If delta.From is not the stored
	// snapshot, another run has updated the state in between: all of the state but its secret is
	// deleted and the delta is dropped.
	Update(ctx context.Context, scope string, delta StateDelta) error
}

// State describes the snapshot that a run recorded last.
type State struct {
	// Secret is the input of the content IDs and of the sealing. It stays the same for as long as
	// the state holds anything.
	Secret []byte
	// Snapshot is the key of the snapshot's envelope and its SHA-256; empty when no snapshot is
	// recorded.
	Snapshot string
	// Parts are the sealed parts of the index, by the content ID of the part's name.
	Parts map[store.ContentID][]byte
	// Keys are the shards and packs of the snapshot.
	Keys map[string]StoredKey
}

// StoredKey describes a shard or a pack in the store.
type StoredKey struct {
	Size    int64     `json:"size"`
	Written time.Time `json:"written"`
	// Retained is until when the storage refuses to delete the key, as far as is known; zero when
	// no retention was asked for.
	Retained time.Time `json:"retained,omitzero"`
}

// StateDelta is the difference between the states of two snapshots.
type StateDelta struct {
	From, To     string                     // State.Snapshot before and after
	Parts        map[store.ContentID][]byte // new or changed
	DeletedParts []store.ContentID
	Keys         map[string]StoredKey // new or changed
	DeletedKeys  []string
}
