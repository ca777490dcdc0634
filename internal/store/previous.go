package store

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

const (
	// mostPrevious is how many older versions of a document are read at most.
	mostPrevious = 1000
	// mostProofs is how many envelopes are read at most in search of one that proves which
	// mgmtd.json is that of a store.
	mostProofs = 1000
)

// previousDocuments calls fn with the older versions of a document, newest first, until fn reports
// that it has what it searched for. A bucket without versions has none, and neither has one whose
// credentials may not read them. ErrUnreachable: there may be some.
func previousDocuments(ctx context.Context, b bucket.Bucket, key string, most int64,
	fn func(data []byte) (done bool, err error)) error {
	v, ok := b.(bucket.Versioned)
	if !ok {
		return nil
	}
	read := 0
	err := v.PreviousVersions(ctx, key, func(r io.Reader) error {
		data, err := io.ReadAll(io.LimitReader(r, most+1))
		if read++; err != nil || read > mostPrevious {
			return errors.Join(err, errStop)
		}
		if int64(len(data)) > most {
			return nil
		}
		done, err := fn(data)
		if done && err == nil {
			return errStop
		}
		return err
	})
	if ctx.Err() != nil || errors.Is(err, ErrUnreachable) {
		return err
	}
	return nil
}

// previousEnvelope finds the newest version of an envelope that a trusted key signed, below what
// somebody wrote over it. Everything that makes it this envelope is in the signed payload: source,
// time, id and store.
func (s *Store) previousEnvelope(ctx context.Context, key EnvelopeKey) (e Signed, found bool,
	err error) {
	if !s.keys.CanTrust() {
		return Signed{}, false, nil
	}
	err = previousDocuments(ctx, s.bucket, key.String(), maxEnvelope,
		func(data []byte) (bool, error) {
			older, err := s.openEnvelope(key, data)
			if err == nil && older.Trust == Trusted {
				e, found = older, true
			}
			return found, nil
		})
	return e, found, err
}

// previousMarker finds the mgmtd.json of a store below what somebody wrote over it, or below a
// deletion; problem is the error of the current one. mgmtd.json is not signed: an older version
// counts only when an envelope that a trusted key signed names its id.
func previousMarker(ctx context.Context, o Options, problem error) (m marker, found bool,
	err error) {
	format, isFormat := errors.AsType[*FormatError](problem)
	damaged := IsCorrupt(problem) || isFormat && format.Format == 0
	if !damaged && !errors.Is(problem, ErrNotFound) || !o.Keys.CanTrust() {
		return marker{}, false, nil
	}
	var refused []string // ids that no envelope proves
	err = previousDocuments(ctx, o.Bucket, markerKey, maxMarker, func(data []byte) (bool, error) {
		older, err := parseMarker(data)
		if err != nil || slices.Contains(refused, older.StoreID) {
			return false, nil
		}
		found, err = proveMarker(ctx, o, older)
		if m = older; !found {
			refused = append(refused, older.StoreID)
		}
		return found, err
	})
	return m, found && err == nil, err
}

// proveMarker reports whether an envelope in the bucket that a trusted key signed names the id of a
// store.
func proveMarker(ctx context.Context, o Options, m marker) (bool, error) {
	s := &Store{bucket: o.Bucket, keys: o.Keys, plain: o.Plain, marker: m, limits: formatLimits()}
	keys, err := s.Snapshots(ctx, "")
	if err != nil {
		return false, err
	}
	for i, key := range slices.Backward(keys) {
		if len(keys)-i > mostProofs {
			break
		}
		e, err := s.GetEnvelope(ctx, key)
		if err == nil && e.Trust == Trusted {
			return true, nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrUnreachable) {
			return false, err
		}
	}
	return false, nil
}
