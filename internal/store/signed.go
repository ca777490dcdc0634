package store

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
)

// mayRecord checks the conditions for writing a signed document. A *UsageError says what is
// missing.
func (s *Store) mayRecord() error {
	if err := s.refuseReadOnly(); err != nil {
		return err
	}
	if s.Encrypted() && !s.keys.CanSign() {
		return &UsageError{Text: "write to store " + s.String() + ": no key to sign with",
			Tip: "give the signing key", TipKey: object.HintSigningKey}
	}
	return s.mayWritePlain()
}

// accepted reports whether a document may be relied upon: a trusted key signed it, or the store is
// plain and was opened as plain and without trusted keys.
func (s *Store) accepted(trust Trust) bool {
	return trust == Trusted || s.plain &&
		!s.keys.CanTrust()
}

// signsChecks reports whether there is a signing key whose results of verifies readers trust.
func (s *Store) signsChecks() bool { return s.keys.Signs(keys.ForCheck) }

// signer writes and reads the signed documents of this store.
func (s *Store) signer() document.Signer {
	return document.Signer{StoreID: s.ID(), Keys: s.keys}
}

// snapshotSigner reads what a copy has byte for byte from its origin: envelopes, pins and the
// results of verifies. In a store that is no copy it is signer. Ownership records and those of
// operations are never read by it: they have one home.
func (s *Store) snapshotSigner() document.Signer {
	return document.Signer{StoreID: s.ID(), Origin: s.Origin(), Keys: s.keys}
}

// putSigned stores a payload, signed, under a key that is written once. ErrExists when the key
// exists.
func (s *Store) putSigned(ctx context.Context, key string, payload document.Payload,
	most int) error {
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
	most int64) (Signature, error) {
	data, err := bucket.ReadAll(ctx, s.bucket, key, most)
	if err != nil {
		return Signature{}, err
	}
	return s.signer().Open(key, data, payload)
}
