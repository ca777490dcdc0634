package store

import (
	"context"
	"errors"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

const (
	// mostPrevious is how many older versions of a document are read at most.
	mostPrevious = 1000
	// mostProofs is how many envelopes are read at most in search of one that proves which
	// mgmtd.json is that of a store.
	mostProofs = 1000
)

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

// previousMarker finds the mgmtd.json of a store below what somebody wrote over it, or below a
// deletion; problem is the error of the current one. mgmtd.json is not signed, but
// in a copy: an older version counts only when an envelope that a trusted key signed names its id.
func previousMarker(ctx context.Context, o Options, problem error) (m marker, found bool,
	err error) {
	format, isFormat := errors.AsType[*FormatError](problem)
	_, untrusted := errors.AsType[*TrustError](problem) // that of a copy
	damaged := IsCorrupt(problem) || untrusted || isFormat && format.Format == 0
	if !damaged && !errors.Is(problem, ErrNotFound) || !o.Keys.CanTrust() {
		return marker{}, false, nil
	}
	var refused []string // ids that no envelope proves
	err = previousDocuments(ctx, o.Bucket, markerKey, maxMarker, func(data []byte) (bool, error) {
		older, err := parseMarker(data, o.Keys)
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
	if m.Origin != "" {
		return true, nil // that of a copy is signed
	}
	s := &Store{bucket: o.Bucket, keys: o.Keys, plain: o.Plain, marker: m, limits: formatLimits(),
		ancestry: &ancestry{}}
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
	return s.proveByHidden(ctx)
}

// proveByHidden is proveMarker where somebody put delete markers on all envelopes.
func (s *Store) proveByHidden(ctx context.Context) (proven bool, err error) {
	b, ok := s.bucket.(bucket.Repairer)
	if !ok || !s.keys.CanTrust() {
		return false, nil
	}
	tries := 0
	err = b.ListVersions(ctx, layout.EnvelopeFolder, func(key string, v []bucket.Version) error {
		k, err := ParseEnvelopeKey(key)
		if err != nil || !v[0].Deleted {
			return nil //nolint:nilerr // not an envelope that is hidden
		}
		_, proven, err = s.previousEnvelope(ctx, k)
		if tries++; err == nil && (proven || tries == mostProofs) {
			err = errStop
		}
		return err
	})
	if ctx.Err() != nil || errors.Is(err, ErrUnreachable) {
		return false, err
	}
	return proven, nil
}
