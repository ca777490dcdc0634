package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/pack"
	"github.com/mgmtd/mgmtd/internal/store/seal"
)

// limits of what is stored, in bytes. Writers stay within them and readers refuse more: they are
// part of the format. They are a field of Store so that tests can make them small.
type limits struct {
	pack      pack.Limits
	maxPlain  int64 // uncompressed pack, shard or tree
	maxStored int64 // the same as stored: what cannot be compressed grows a little
}

func formatLimits() limits {
	return limits{pack: pack.FormatLimits(), maxPlain: 32 << 20, maxStored: 33 << 20}
}

// encrypter is for what is encrypted unless the store is plain: all but trees and signed documents.
func (s *Store) encrypter() seal.Encrypter {
	if !s.Encrypted() {
		return nil
	}
	return s.keys
}

// decrypter is the reverse of encrypter.
func (s *Store) decrypter(encrypted bool) seal.Decrypter {
	if !encrypted {
		return nil
	}
	return s.keys
}

// seal returns the stored bytes of a whole document and their key. Trees are never encrypted: they
// hold hashes only, and a verify without an identity needs them.
func (s *Store) seal(kind Kind, plain []byte) (Key, []byte, error) {
	if int64(len(plain)) > s.limits.maxPlain {
		return "", nil, fmt.Errorf("store %s: it has %d bytes, more than the %d of the format", kind,
			len(plain), s.limits.maxPlain)
	}
	to := s.encrypter()
	if kind == KindTree {
		to = nil
	}
	stored, err := seal.Document(plain, to)
	if err != nil {
		return "", nil, fmt.Errorf("store %s: %w", kind, err)
	}
	return layout.KeyOf(kind, to != nil, stored), stored, nil
}

// unseal begins to read what getContent returned for key. The caller closes it. *KeyError when no
// identity fits, bucket.DamageError when it is no age file.
func (s *Store) unseal(key Key, stored []byte) (io.ReadCloser, error) {
	return seal.Open(string(key), stored, s.decrypter(key.Encrypted()), s.limits.maxPlain)
}

// getPlain reads a whole shard or tree.
func (s *Store) getPlain(ctx context.Context, key Key, kind Kind) ([]byte, error) {
	stored, err := s.getContent(ctx, key, kind)
	if err != nil {
		return nil, err
	}
	r, err := s.unseal(key, stored)
	if err != nil {
		return nil, bucket.AsCorrupt(string(key), err)
	}
	defer r.Close()
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil, bucket.AsCorrupt(string(key), err)
	}
	return plain, nil
}

// putContent stores bytes under the key made of their hash; the key being there already with these
// bytes is success, so it may run twice. It reads them, for a snapshot must not name a key that
// went bad. Then it is retained as a new one is.
func (s *Store) putContent(ctx context.Context, key Key, data []byte) error {
	err := s.bucket.Put(ctx, string(key), data)
	if !errors.Is(err, ErrExists) {
		return err
	}
	there, err := bucket.ReadAll(ctx, s.bucket, string(key), s.limits.maxStored)
	if err == nil && !bytes.Equal(there, data) {
		err = &CorruptError{Key: string(key), Reason: layout.ReasonHash}
	}
	if r, ok := s.bucket.(bucket.Retainer); ok && err == nil {
		_, err = r.Retain(ctx, string(key), key.SHA256())
	}
	return err
}

// getContent reads a key of a kind, or an older version of it, and checks the bytes against the
// name, and the name against the kind of store: a plain pack in an encrypted store was put there by
// somebody who could not encrypt.
func (s *Store) getContent(ctx context.Context, key Key, want Kind) ([]byte, error) {
	if err := s.checkKey(key, want); err != nil {
		return nil, err
	}
	data, err := bucket.ReadAll(ctx, s.bucket, string(key), s.limits.maxStored)
	if err == nil && layout.SHA256Hex(data) != key.SHA256() {
		err = &CorruptError{Key: string(key), Reason: layout.ReasonHash}
	}
	if err != nil {
		return s.getPrevious(ctx, key, err)
	}
	return data, nil
}

// getPrevious finds the bytes of a key among its older versions, when the current ones are damaged
// or deleted (newest is that error). In a versioned bucket, somebody who overwrites or deletes a
// key destroys nothing. Without a version that fits, newest is returned.
func (s *Store) getPrevious(ctx context.Context, key Key, newest error) ([]byte, error) {
	v, ok := s.bucket.(bucket.Versioned)
	if !ok || !IsCorrupt(newest) && !errors.Is(newest, ErrNotFound) {
		return nil, newest
	}
	_, data, err := bucket.FindVersion(ctx, v, string(key), key.SHA256(), s.limits.maxStored)
	switch {
	case err == nil:
		return data, nil
	case ctx.Err() != nil, errors.Is(err, ErrUnreachable): // it may be there
		return nil, err
	}
	return nil, newest
}

func (s *Store) checkKey(key Key, want Kind) error {
	if key.Kind() != want || want == "" {
		return &CorruptError{Key: fmt.Sprintf("%.120q", string(key)), Reason: "it is not the key of a " +
			string(want)}
	}
	if want != KindTree && key.Encrypted() != s.Encrypted() {
		return &CorruptError{Key: string(key), Reason: "it is not encrypted as the store says"}
	}
	return nil
}
