package store

import "context"

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
