package store

import (
	"context"
	"errors"
	"io"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// CheckOpens reports whether the identities open the content of a snapshot: it reads the tree, and
// decrypts the beginning of one shard. All content of a snapshot is encrypted to the same
// recipients. The caller has checked the signature of the envelope. Errors: *KeyError when no
// identity fits; *CorruptError, ErrNotFound.
func (s *Store) CheckOpens(ctx context.Context, e Envelope) error {
	tree, err := s.GetTree(ctx, e.Tree)
	if err != nil {
		return err
	}
	if len(tree.Shards) == 0 {
		return &CorruptError{Key: string(e.Tree), Reason: "it names no shard"}
	}
	key := tree.Shards[0]
	stored, err := s.getContent(ctx, key, KindShard)
	if err != nil {
		return err
	}
	r, err := s.unseal(key, stored)
	if err != nil {
		return bucket.AsCorrupt(string(key), err)
	}
	defer r.Close()
	_, err = io.ReadFull(r, make([]byte, 1))
	if errors.Is(err, io.EOF) {
		err = bucket.DamageError("it is empty")
	}
	return bucket.AsCorrupt(string(key), err)
}
