package store

import (
	"context"
	"errors"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// mostPrevious is how many older versions of a document are read at most.
const mostPrevious = 1000

// previousDocuments calls fn with the older versions of a document, until fn reports that it has
// what it searched for. The oldest version comes first: the document is written once, so that what
// somebody wrote over it lies above, and may be any number of versions. A bucket without versions
// has none, and neither has one whose credentials may not read them. ErrUnreachable: there may be
// some.
func previousDocuments(ctx context.Context, b bucket.Bucket, key string, most int64,
	fn func(data []byte) (done bool, err error)) error {
	v, ok := b.(bucket.Versioned)
	if !ok {
		return nil
	}
	versions, err := v.Versions(ctx, key)
	if ctx.Err() != nil || errors.Is(err, ErrUnreachable) {
		return err
	}
	read := 0
	for _, older := range slices.Backward(versions) {
		if older.Current || older.Deleted || older.Size > most {
			continue
		}
		if read++; read > mostPrevious {
			break
		}
		data, err := bucket.ReadVersion(ctx, v, key, older.ID, most)
		if ctx.Err() != nil || errors.Is(err, ErrUnreachable) {
			return err
		}
		if err != nil {
			continue
		}
		if done, err := fn(data); done || err != nil {
			return err
		}
	}
	return nil
}

// previousEnvelope finds the version of an envelope that a trusted key signed, below what somebody
// wrote over it. Everything that makes it this envelope is in the signed payload: source,
// time, id and store.
func (s *Store) previousEnvelope(ctx context.Context, key EnvelopeKey) (e Signed, found bool,
	err error) {
	if !s.keys.CanTrust() {
		return Signed{}, false, nil
	}
	err = previousDocuments(ctx, s.bucket, key.String(), maxEnvelope,
		func(data []byte) (bool, error) {
			older, err := s.openProven(ctx, key, data)
			if errors.Is(err, ErrUnreachable) {
				return false, err
			}
			if err == nil && older.Trust == Trusted {
				e, found = older, true
			}
			return found, nil
		})
	return e, found, err
}
