package store

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
)

// mayRecord checks the conditions for writing a signed document. A *UsageError says what is
// missing.
func (s *Store) mayRecord() error {
	if s.Encrypted() && !s.keys.CanSign() {
		return &UsageError{Text: "write to store " + s.String() + ": no key to sign with",
			Tip: "give the signing key", TipKey: object.HintSigningKey}
	}
	if !s.Encrypted() {
		return s.mayWrite()
	}
	return nil
}

// accepted reports whether a document may be relied upon: a trusted key signed it, or the store is
// plain and was opened as plain and without trusted keys.
func (s *Store) accepted(trust Trust) bool {
	return trust == Trusted || s.plain &&
		!s.keys.CanTrust()
}

// signer writes and reads the signed documents of this store.
func (s *Store) signer() document.Signer {
	return document.Signer{StoreID: s.ID(), Keys: s.keys}
}

// putSigned stores a payload, signed, under a key that is written once. ErrExists when the key
// exists.
func (s *Store) putSigned(ctx context.Context, key string, payload any, most int) error {
	if err := s.mayRecord(); err != nil {
		return err
	}
	data, err := s.signer().Encode(key, payload, most)
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return s.bucket.Put(ctx, key, data)
}

// getSigned reads a document that putSigned wrote into payload. Errors: ErrNotFound, *CorruptError,
// *FormatError, ErrForeign.
func (s *Store) getSigned(ctx context.Context, key string, payload document.Payload,
	most int64) (trust Trust, keyID string, err error) {
	data, err := bucket.ReadAll(ctx, s.bucket, key, most)
	if err != nil {
		return "", "", err
	}
	return s.signer().Open(key, data, payload)
}
