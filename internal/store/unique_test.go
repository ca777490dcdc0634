package store

import (
	"bytes"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/seal"
)

// TestSameContentIsStoredUnderNewKeys: a prune deletes keys that nothing names. A writer must
// therefore never find what it is about to store there already.
func TestSameContentIsStoredUnderNewKeys(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, _ string) {
		files := map[string]string{nameA: `{"a":1}`}
		if a, b := writePack(t, s, files), writePack(t, s, files); a == b {
			t.Errorf("two packs have the key %s", a)
		}
		shards := make([]Key, 2)
		trees := make([]Key, 2)
		for i := range 2 {
			shard, err := s.PutShard(t.Context(), []byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			shards[i] = shard.Key
			if trees[i], err = s.PutTree(t.Context(), Tree{Shards: shards[:1]}); err != nil {
				t.Fatal(err)
			}
		}
		if shards[0] == shards[1] {
			t.Errorf("two shards have the key %s", shards[0])
		}
		if trees[0] == trees[1] {
			t.Errorf("two trees have the key %s", trees[0])
		}
	})
}

// TestContentWithoutUniqueFrameIsRead: stores of earlier writers have no frame of random bytes.
func TestContentWithoutUniqueFrameIsRead(t *testing.T) {
	s, _ := newTestStore(t, true)
	put := func(kind Kind, stored []byte) Key {
		t.Helper()
		key := layout.KeyOf(kind, false, stored)
		if err := s.putContent(t.Context(), key, stored); err != nil {
			t.Fatal(err)
		}
		return key
	}
	without := func(key Key) []byte {
		t.Helper()
		stored, err := s.getContent(t.Context(), key, key.Kind())
		if err != nil {
			t.Fatal(err)
		}
		frame := seal.UniqueFrame()
		if !bytes.HasPrefix(stored, frame[:8]) {
			t.Fatalf("%s begins with %x", key, stored[:8])
		}
		return stored[len(frame):]
	}
	pack := put(KindPack, without(writePack(t, s, map[string]string{nameA: `{"a":1}`})))
	stored, err := s.PutShard(t.Context(), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	shard := put(KindShard, without(stored.Key))
	treeKey, err := s.PutTree(t.Context(), Tree{Shards: []Key{shard}, Packs: []Key{pack}})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := s.GetTree(t.Context(), put(KindTree, without(treeKey)))
	if err != nil || len(tree.Shards) != 1 || tree.Shards[0] != shard {
		t.Errorf("tree %v, %v", tree, err)
	}
	if text, err := s.GetShard(t.Context(), shard); err != nil || string(text) != "{}" {
		t.Errorf("shard %q, %v", text, err)
	}
	files := 0
	err = s.ReadPack(t.Context(), pack, func(name string, body []byte) error {
		files++
		if name != nameA || string(body) != `{"a":1}` {
			t.Errorf("%s: %q", name, body)
		}
		return nil
	})
	if err != nil || files != 1 {
		t.Errorf("%d files, %v", files, err)
	}
}
