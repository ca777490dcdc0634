package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
)

// Tree lists the keys of all shards and packs of a snapshot, each list sorted and without repeats.
// A snapshot in which nothing changed names the tree of the one before.
type Tree struct {
	Shards []Key `json:"shards"`
	Packs  []Key `json:"packs"`
}

// PutTree stores a tree and returns its key; it sorts a copy of the lists and drops repeats. Run
// twice it leaves a second copy; only an envelope makes one count.
func (s *Store) PutTree(ctx context.Context, t Tree) (Key, error) {
	if err := s.mayWrite(); err != nil {
		return "", err
	}
	t = Tree{Shards: sortedKeys(t.Shards), Packs: sortedKeys(t.Packs)}
	for kind, keys := range map[Kind][]Key{KindShard: t.Shards, KindPack: t.Packs} {
		for _, key := range keys {
			if err := s.checkKey(key, kind); err != nil {
				return "", fmt.Errorf("store tree: %w", err)
			}
		}
	}
	text, err := encodeTree(t)
	if err != nil {
		return "", fmt.Errorf("store tree: %w", err)
	}
	key, stored, err := s.seal(KindTree, text)
	if err != nil {
		return "", err
	}
	return key, s.putContent(ctx, key, stored)
}

// GetTree reads a tree; it needs no identity. ErrNotFound, *CorruptError.
func (s *Store) GetTree(ctx context.Context, key Key) (Tree, error) {
	text, err := s.getPlain(ctx, key, KindTree)
	if err != nil {
		return Tree{}, err
	}
	t, err := decodeTree(text)
	if err != nil {
		return Tree{}, bucket.AsCorrupt(string(key), err)
	}
	for _, k := range slices.Concat(t.Shards, t.Packs) {
		if err := s.checkKey(k, k.Kind()); err != nil {
			return Tree{}, &CorruptError{Key: string(key), Reason: "it names " + string(k) +
				", which is not encrypted as the store says"}
		}
	}
	return t, nil
}

func sortedKeys(keys []Key) []Key {
	sorted := append([]Key{}, keys...) // never nil: an empty list is [], not null
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// minKey is less than the bytes of any key of a pack, shard or tree.
const minKey = 80

func encodeTree(t Tree) ([]byte, error) { return document.Encode(t) }

// decodeTree takes only the bytes that encodeTree makes of the same tree: so there is nothing in a
// tree but sorted keys, each once.
func decodeTree(text []byte) (Tree, error) {
	var t Tree
	// a short text must not become a list of millions of short strings
	if bytes.Count(text, []byte(`"`)) > 2*(len(text)/minKey+2) {
		return Tree{}, bucket.Damage("it names more keys than fit into it")
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return Tree{}, bucket.Damage("decode tree: " + err.Error())
	}
	for kind, keys := range map[Kind][]Key{KindShard: t.Shards, KindPack: t.Packs} {
		for _, key := range keys {
			if key.Kind() != kind {
				return Tree{}, bucket.Damage(fmt.Sprintf("it names %.120q as a %s", string(key), kind))
			}
		}
	}
	canonical, err := encodeTree(Tree{Shards: sortedKeys(t.Shards), Packs: sortedKeys(t.Packs)})
	if err != nil {
		return Tree{}, bucket.Damage("decode tree: " + err.Error())
	}
	if !bytes.Equal(canonical, text) {
		return Tree{}, bucket.Damage("it is more than two sorted lists of keys, each key once")
	}
	return t, nil
}
