package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/tree"
)

// PutShard stores the JSON of a shard, which package snapshot defines. Run twice it leaves a second
// copy; only a tree makes one count.
func (s *Store) PutShard(ctx context.Context, text []byte) (Stored, error) {
	if err := s.mayWrite(); err != nil {
		return Stored{}, err
	}
	key, stored, err := s.seal(KindShard, text)
	if err != nil {
		return Stored{}, err
	}
	return Stored{Key: key, Size: int64(len(stored))}, s.putContent(ctx, key, stored)
}

// GetShard returns the JSON of a shard. ErrNotFound, *CorruptError, *KeyError when no identity
// fits.
func (s *Store) GetShard(ctx context.Context, key Key) ([]byte, error) {
	return s.getPlain(ctx, key, KindShard)
}

// PutTree stores a tree and returns its key; it sorts a copy of the lists and drops repeats. Run
// twice it leaves a second copy; only an envelope makes one count.
func (s *Store) PutTree(ctx context.Context, t Tree) (Key, error) {
	if err := s.mayWrite(); err != nil {
		return "", err
	}
	t = Tree{Shards: tree.Sorted(t.Shards), Packs: tree.Sorted(t.Packs)}
	for kind, keys := range map[Kind][]Key{KindShard: t.Shards, KindPack: t.Packs} {
		for _, key := range keys {
			if err := s.checkKey(key, kind); err != nil {
				return "", fmt.Errorf("store tree: %w", err)
			}
		}
	}
	text, err := tree.Encode(t)
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
	t, err := tree.Decode(text)
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
