package store

import (
	"context"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/pack"
)

// NewPackWriter begins to write packs; modTime, in whole seconds, becomes the time of all files in
// them. The context also ends the uploads in the background. *UsageError when the store was not
// opened for writing. The caller ends it with Close, or with Abort, which may follow Close.
func (s *Store) NewPackWriter(ctx context.Context, modTime time.Time) (*PackWriter, error) {
	if err := s.mayWrite(); err != nil {
		return nil, err
	}
	return pack.NewWriter(ctx, pack.Options{ModTime: modTime, Limits: s.limits.pack,
		Encrypt: s.encrypter(), Put: s.putContent})
}

// ReadPack reads a pack and calls fn for every file in it, in order; fn may retain body. The stored
// bytes are compared with the key before anything is decrypted. Errors: ErrNotFound, *CorruptError,
// *KeyError when no identity fits; an error of fn is returned unchanged. fn may have been called
// before damage is found further on.
func (s *Store) ReadPack(ctx context.Context, key Key,
	fn func(name string, body []byte) error) error {
	stored, err := s.getContent(ctx, key, KindPack)
	if err != nil {
		return err
	}
	r, err := s.unseal(key, stored)
	if err != nil {
		return bucket.AsCorrupt(string(key), err)
	}
	defer r.Close()
	var ofCaller error
	err = pack.Read(r, s.limits.pack, func(name string, body []byte) error {
		if ofCaller = ctx.Err(); ofCaller == nil {
			ofCaller = fn(name, body)
		}
		return ofCaller
	})
	if ofCaller != nil {
		return ofCaller
	}
	return bucket.AsCorrupt(string(key), err)
}
