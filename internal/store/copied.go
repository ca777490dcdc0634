package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

const maxCopied = 1 << 16

// RecordsCopied reports whether the copy has a record of every snapshot that ever came to it. One
// that an earlier version made has not: nobody knows what it once had.
func (s *Store) RecordsCopied() bool { return s.marker.RecordsCopied }

// PutCopied records that a snapshot comes to the copy, right before its envelope does. It may run
// twice. A run that dies in between leaves a number that counts as copied, which the next run
// brings.
func (s *Store) PutCopied(ctx context.Context, e *Signed) error {
	key := record.CopiedKey(e.Key(), e.Sequence)
	err := s.putSigned(ctx, key, &record.Copied{Header: s.signer().Header(key)}, maxCopied)
	if errors.Is(err, ErrExists) {
		return nil // whatever it is: the name counts
	}
	return err
}

// WasCopied reports whether a record that is accepted says that this very snapshot came to the
// copy: another one may have its number.
func (s *Store) WasCopied(ctx context.Context, e *Signed) (bool, error) {
	var c record.Copied
	signature, err := s.getSigned(ctx, record.CopiedKey(e.Key(), e.Sequence), &c, maxCopied)
	if IsMissing(err) || IsUnusable(err) {
		return false, nil
	}
	return err == nil && s.accepted(signature.Trust), err
}

// Copied returns the numbers of all snapshots that ever came to a copy, by the names of their
// records. The records are not read: what somebody puts there can only keep a number from being
// explained. In a versioned bucket those that a delete marker hides are among them. ErrDenied when
// the credentials may not list versions.
func (s *Store) Copied(ctx context.Context) (map[EnvelopeKey]int64, error) {
	copied := map[EnvelopeKey]int64{}
	note := func(key string) {
		if k, sequence, ok := record.ParseCopiedKey(key); ok {
			copied[k] = sequence
		}
	}
	err := s.bucket.List(ctx, record.CopiedFolder, func(i bucket.Info) error {
		note(i.Key)
		return nil
	})
	b, ok := s.bucket.(bucket.Repairer)
	if err != nil || !ok {
		return copied, err
	}
	if versions, err := b.HasVersions(ctx); err != nil || !versions {
		return copied, err
	}
	err = b.ListVersions(ctx, record.CopiedFolder, func(key string, _ []bucket.Version) error {
		note(key)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("list versions of %s: %w", record.CopiedFolder, err)
	}
	return copied, err
}
