package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// This file brings what is stored to a copy, byte for byte. Package replicate decides what, and in
// which order.

// OriginError is an error about the side that is copied from; without it, an error of a copy is
// about the copy.
type OriginError struct{ Err error }

func (e *OriginError) Error() string { return "read from the origin: " + e.Err.Error() }

// Unwrap returns the error of the origin.
func (e *OriginError) Unwrap() error { return e.Err }

// MayCopy checks the conditions for a copy run into s from another store before any work is done:
// what is copied must be signed by a trusted key, and the run records what it does and which
// snapshots the copy lacks on purpose. *UsageError.
func (s *Store) MayCopy(from *Store) error {
	switch {
	case s.Origin() == "", s.Origin() != from.OriginID(), s.Encrypted() != from.Encrypted():
		return &UsageError{Text: "copy store " + from.String() + ": " + s.String() +
			" is not a copy of it"}
	case !from.accepted(Unsigned) && !from.keys.CanTrust():
		return &UsageError{Text: "copy store " + from.String() + ": no trusted keys to check " +
			"signatures with", Tip: "give the public key of the mgmtd that writes it",
			TipKey: object.HintTrustedKey}
	}
	for _, purpose := range []keys.Purpose{keys.ForStore, keys.ForPrune} {
		if err := s.keys.MaySign(keys.Claim{Purpose: purpose}); err != nil {
			return err
		}
	}
	return s.mayRecord()
}

// Accepted reports whether an envelope may be relied upon: a trusted key signed it, or the store is
// plain and was opened as plain and without trusted keys.
func (s *Store) Accepted(e *Signed) bool { return s.accepted(e.Trust) }

// CopyContent brings a pack, shard or tree from another store, and returns its size. The bytes are
// compared with the name on the way. A key that is there already, with these bytes, is success.
// Errors: *OriginError; those of the bucket; *CorruptError when the copy has other bytes there.
func (s *Store) CopyContent(ctx context.Context, from *Store, key Key) (int64, error) {
	data, err := from.getContent(ctx, key, key.Kind())
	if err != nil {
		return 0, &OriginError{err}
	}
	return int64(len(data)), s.putContent(ctx, key, data)
}

// CheckContent reads a pack or shard that is there, and compares the bytes with the name. Errors:
// ErrNotFound, *CorruptError, those of the bucket.
func (s *Store) CheckContent(ctx context.Context, key Key) error {
	_, err := s.getContent(ctx, key, key.Kind())
	return err
}

// CopyEnvelope brings an envelope that was read from another store, with which the snapshot is in
// the copy: all that it names is there. It may run twice. Errors: *OriginError; ErrNotFound when
// its tree is not in the copy; *CorruptError when another envelope has its key there.
func (s *Store) CopyEnvelope(ctx context.Context, from *Store, e *Signed) error {
	if !from.accepted(e.Trust) {
		return &OriginError{e.Untrusted(e.Key().String())}
	}
	data, err := from.rawEnvelope(ctx, e)
	if err != nil {
		return &OriginError{err}
	}
	if _, err := s.openEnvelope(e.Key(), data); err != nil {
		return err
	}
	if _, err := s.bucket.Stat(ctx, string(e.Tree)); err != nil {
		return fmt.Errorf("copy envelope: %w", err)
	}
	if err := s.checkStoreID(ctx); err != nil {
		return fmt.Errorf("copy envelope: %w", err)
	}
	return s.putSame(ctx, e.Key().String(), data, maxEnvelope)
}

// rawEnvelope returns the stored bytes of an envelope, which may be those of an older version.
func (s *Store) rawEnvelope(ctx context.Context, e *Signed) (data []byte, err error) {
	key := e.Key().String()
	current, err := bucket.ReadAll(ctx, s.bucket, key, maxEnvelope)
	if err == nil && layout.SHA256Hex(current) == e.SHA256 {
		return current, nil
	}
	if err != nil && !IsCorrupt(err) && !IsMissing(err) {
		return nil, err
	}
	searchErr := previousDocuments(ctx, s.bucket, key, maxEnvelope, func(older []byte) (bool, error) {
		if layout.SHA256Hex(older) != e.SHA256 {
			return false, nil
		}
		data = older
		return true, nil
	})
	switch {
	case searchErr != nil:
		return nil, searchErr
	case data == nil && err == nil:
		return nil, &CorruptError{Key: key, Reason: "it has changed since it was read"}
	case data == nil:
		return nil, err
	}
	return data, nil
}

// putSame stores bytes under a key that is written once; the very same bytes may be there already.
func (s *Store) putSame(ctx context.Context, key string, data []byte, most int64) error {
	err := s.bucket.Put(ctx, key, data)
	if !errors.Is(err, ErrExists) {
		return err
	}
	there, err := bucket.ReadAll(ctx, s.bucket, key, most)
	if err == nil && !bytes.Equal(there, data) {
		err = &CorruptError{Key: key, Reason: "it is not what the origin has"}
	}
	return err
}

// CopyPin brings the pin of a snapshot. One that is in the copy already stays as it is. copied is
// false for a pin that is gone, damaged, or not signed by a trusted key: nobody asked for it.
func (s *Store) CopyPin(ctx context.Context, from *Store, k EnvelopeKey) (copied bool, err error) {
	key := record.PinKey(k)
	data, err := bucket.ReadAll(ctx, from.bucket, key, maxPin)
	if err == nil {
		var p Pin
		var signature Signature
		if signature, err = from.snapshotSigner().Open(key, data, &p); err == nil &&
			(!from.accepted(signature.Trust) || p.StoreID != s.Origin()) {
			return false, nil
		}
	}
	switch {
	case OfStore(ctx, err) != nil:
		return false, &OriginError{err}
	case err != nil: // gone, or nobody can read it
		return false, nil
	}
	if err := s.bucket.Put(ctx, key, data); err != nil && !errors.Is(err, ErrExists) {
		return false, err
	}
	return true, nil
}

// CopyVerification brings the result of a verify. copied is false for one that does not count in
// the copy: it is not accepted, is of another store than the origin, or found that bytes are
// damaged or missing in the origin: in the copy they fitted their names when they were copied.
func (s *Store) CopyVerification(ctx context.Context, from *Store, k VerificationKey) (copied bool,
	err error) {
	data, err := bucket.ReadAll(ctx, from.bucket, k.String(), maxVerification)
	var v SignedVerification
	if err == nil {
		v, err = from.openVerification(k.String(), data)
	}
	switch {
	case OfStore(ctx, err) != nil:
		return false, &OriginError{err}
	case err != nil: // gone, or nobody can read it
		return false, nil
	case !from.accepted(v.Trust), v.StoreID != s.Origin(),
		v.Level == LevelStructure && v.Outcome == OutcomeDamaged:
		return false, nil
	}
	return true, s.putSame(ctx, k.String(), data, maxVerification)
}
