package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
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
	return err == nil && s.accepted(signature.Trust), OfStore(ctx, err)
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

// mostTraces is how many records CopyTraces reads: those that the storage received first, since
// whoever writes junk does so later.
const mostTraces = 16

// CopyTraces returns the id of a copy whose records are in a store that says that it is none; ""
// when there are no such records. A trusted key signed them. Either the store is that copy, and
// somebody wrote the mgmtd.json of its origin over it, or somebody put the records here.
func (s *Store) CopyTraces(ctx context.Context) (string, error) {
	if s.Origin() != "" || !s.keys.CanTrust() {
		return "", nil
	}
	var traces []bucket.Info
	err := s.bucket.List(ctx, record.CopiedFolder, func(i bucket.Info) error {
		traces = append(traces, i)
		return nil
	})
	if err != nil {
		return "", err
	}
	slices.SortStableFunc(traces, func(a, b bucket.Info) int { return a.Modified.Compare(b.Modified) })
	for _, i := range traces[:min(mostTraces, len(traces))] {
		data, err := bucket.ReadAll(ctx, s.bucket, i.Key, maxCopied)
		if err := fatal(ctx, err); err != nil {
			return "", err
		}
		id := claimedStore(data)
		if err != nil || id == "" || id == s.ID() {
			continue
		}
		var c record.Copied
		signature, err := document.Signer{StoreID: id, Keys: s.keys}.Open(i.Key, data, &c)
		if err == nil && signature.Trust == Trusted {
			return id, nil
		}
	}
	return "", nil
}

// claimedStore returns the id of the store that a signed document says it is of, before its
// signature is checked; "" when it says none.
func claimedStore(data []byte) string {
	var file document.File
	var header document.Header
	if document.Decode(data, &file) != nil ||
		document.Decode([]byte(file.Payload), &header) != nil ||
		!layout.IsHex(header.StoreID, storeIDLength) {
		return ""
	}
	return header.StoreID
}
