// Package tree is the format of a tree: the list of the keys of a snapshot.
package tree

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Tree lists the keys of all shards and packs of a snapshot, each list sorted and without repeats.
// A snapshot in which nothing changed names the tree of the one before.
type Tree struct {
	Shards []layout.Key `json:"shards"`
	Packs  []layout.Key `json:"packs"`
}

// Sorted returns the keys sorted and without repeats; never nil, since an empty list is [] in JSON.
func Sorted(keys []layout.Key) []layout.Key {
	sorted := append([]layout.Key{}, keys...)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// minKey is less than the bytes of any key of a pack, shard or tree.
const minKey = 80

// Encode returns the text of a tree with sorted lists.
func Encode(t Tree) ([]byte, error) { return document.Encode(t) }

// Decode accepts only the bytes that Encode returns for the same tree: a tree holds nothing but
// sorted keys, each once. bucket.DamageError.
func Decode(text []byte) (Tree, error) {
	var t Tree
	// a short text must not become a list of millions of short strings
	if bytes.Count(text, []byte(`"`)) > 2*(len(text)/minKey+2) {
		return Tree{}, bucket.DamageError("it names more keys than fit into it")
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return Tree{}, bucket.DamageError("decode tree: " + err.Error())
	}
	for kind, keys := range map[layout.Kind][]layout.Key{layout.KindShard: t.Shards,
		layout.KindPack: t.Packs} {
		for _, key := range keys {
			if key.Kind() != kind {
				return Tree{}, bucket.DamageError(fmt.Sprintf("it names %.120q as a %s", string(key), kind))
			}
		}
	}
	canonical, err := Encode(Tree{Shards: Sorted(t.Shards), Packs: Sorted(t.Packs)})
	if err != nil {
		return Tree{}, bucket.DamageError("decode tree: " + err.Error())
	}
	if !bytes.Equal(canonical, text) {
		return Tree{}, bucket.DamageError("it is more than two sorted lists of keys, each key once")
	}
	return t, nil
}
