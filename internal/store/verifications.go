package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// SignedVerification is the result of a verify as it was read.
type SignedVerification struct {
	Verification
	Signature
}

const (
	maxVerification = 64 << 10
	// verificationInterval is after how long the same result is recorded again. It is less than a
	// day, since a daily verify does not end at the same second each day.
	verificationInterval = 23 * time.Hour
)

// CanRecordVerifications reports whether a verification that is written with these keys is accepted
// by those who read with them: it can be signed, or the store is plain, was opened as plain and
// without trusted keys.
func (s *Store) CanRecordVerifications() bool {
	return !s.readOnly &&
		(s.signsChecks() || !s.keys.CanSign() && !s.Encrypted() && s.plain && !s.keys.CanTrust())
}

// PutVerification records the result of a verify of the snapshot e. Level, Time, Writer, Outcome,
// counts and findings are the caller's; at most ten findings are named. When the last accepted
// result at the same level has the same outcome and is less than 23 hours old, nothing is written
// and that one is returned: otherwise a snapshot that is verified by schedule would fill the store.
// *UsageError when the result would not be accepted: see CanRecordVerifications.
func (s *Store) PutVerification(ctx context.Context, e Signed, c Verification) (SignedVerification,
	error) {
	if err := s.refuseReadOnly(); err != nil {
		return SignedVerification{}, err
	}
	if !s.CanRecordVerifications() {
		return SignedVerification{}, &UsageError{Text: "record the result of a verify: no key to " +
			"sign it with",
			Tip: "give the signing key", TipKey: object.HintSigningKey}
	}
	var id [layout.SnapshotIDLength / 2]byte
	rand.Read(id[:]) // never fails
	k := VerificationKey{Snapshot: e.Key(), Time: c.Time.UTC().Truncate(time.Millisecond),
		ID: hex.EncodeToString(id[:])}
	c.Header, c.ID, c.Time = s.signer().Header(k.String()), k.ID, k.Time
	c.Snapshot = VerifiedSnapshot{Source: e.Source.UID, SourceName: e.Source.Name, Time: e.Time,
		ID: e.ID, SHA256: e.SHA256}
	c.First = c.First[:min(len(c.First), record.MaxFirst)]
	if err := c.Validate(); err != nil {
		return SignedVerification{}, fmt.Errorf("record verification: %w", err)
	}
	known, _, err := s.Verifications(ctx, e.Key())
	if err != nil {
		return SignedVerification{}, err
	}
	for _, o := range known {
		if o.Level == c.Level && s.counts(o, e) {
			if age := c.Time.Sub(o.Time); o.Outcome == c.Outcome && age >= 0 && age < verificationInterval {
				return o, nil
			}
			break
		}
	}
	data, err := s.signer().Encode(c.Key, &c, maxVerification)
	if err != nil {
		return SignedVerification{}, fmt.Errorf("record verification: %w", err)
	}
	if err := s.bucket.Put(ctx, c.Key, data); err != nil {
		return SignedVerification{}, err
	}
	return s.openVerification(c.Key, data)
}

// GetVerification reads one result and checks it: the signature, then that it is what its name says
// and of this store. It does not require a signature: see Verdict. Errors: ErrNotFound,
// *CorruptError, *FormatError, ErrForeign.
func (s *Store) GetVerification(ctx context.Context, k VerificationKey) (SignedVerification,
	error) {
	data, err := bucket.ReadAll(ctx, s.bucket, k.String(), maxVerification)
	if err != nil {
		return SignedVerification{}, err
	}
	return s.openVerification(k.String(), data)
}

func (s *Store) openVerification(key string, data []byte) (SignedVerification, error) {
	var v Verification
	signature, err := s.snapshotSigner().Open(key, data, &v)
	if err != nil {
		return SignedVerification{}, err
	}
	v.Time, v.Snapshot.Time = v.Time.UTC(), v.Snapshot.Time.UTC()
	return SignedVerification{Verification: v, Signature: signature}, nil
}

// VerificationKeys lists the verifications of the snapshots of one source, or of all when source is
// "", without reading them: by the key of the snapshot's envelope, newest first. Files with other
// names are passed over.
func (s *Store) VerificationKeys(ctx context.Context, source string) (map[string][]VerificationKey,
	error) {
	prefix := record.VerificationFolder
	if source != "" {
		if !layout.ValidSource(source) {
			return nil, fmt.Errorf("list verifications: source %.40q is not a UID", source)
		}
		prefix += source + "/"
	}
	return s.verificationKeys(ctx, prefix)
}

func (s *Store) verificationKeys(ctx context.Context, prefix string) (map[string][]VerificationKey,
	error) {
	keys := map[string][]VerificationKey{}
	err := s.bucket.List(ctx, prefix, func(i bucket.Info) error {
		if k, ok := record.ParseVerificationKey(i.Key); ok {
			of := k.Snapshot.String()
			keys[of] = append(keys[of], k)
		}
		return nil
	})
	for _, list := range keys {
		slices.SortStableFunc(list, func(a, b VerificationKey) int { return b.Time.Compare(a.Time) })
	}
	return keys, err
}

// Verifications lists and reads the verifications of one snapshot, newest first. damaged says which
// records are there and cannot be read as such; they count for nothing.
func (s *Store) Verifications(ctx context.Context, of EnvelopeKey) (list []SignedVerification,
	damaged []error,
	err error) {
	keys, err := s.verificationKeys(ctx, record.VerificationFolderOf(of))
	if err != nil {
		return nil, nil, err
	}
	return s.ReadVerifications(ctx, keys[of.String()])
}

// ReadVerifications is Verifications for keys that VerificationKeys listed.
func (s *Store) ReadVerifications(ctx context.Context, keys []VerificationKey) (
	list []SignedVerification,
	damaged []error, err error) {
	for _, k := range keys {
		c, err := s.GetVerification(ctx, k)
		switch {
		case err == nil:
			list = append(list, c)
		case IsMissing(err):
			// deleted since it was listed
		case OfStore(ctx, err) != nil:
			return nil, nil, err
		default:
			damaged = append(damaged, err)
		}
	}
	return list, damaged, nil
}

// counts reports whether c is accepted, and is about the very bytes of e.
func (s *Store) counts(c SignedVerification, e Signed) bool {
	return s.accepted(c.Trust) && c.Snapshot.SHA256 == e.SHA256
}

// DecidingVerification returns the verification that decides the state of a snapshot: the newest
// that found damage, unless a later good one supersedes it (VerifyLevel.Supersedes); else the
// newest. Verifications that are not accepted, or are of another envelope of this name, are
// ignored. ok is false when none is left. list must be sorted newest first.
func (s *Store) DecidingVerification(e Signed, list []SignedVerification) (v SignedVerification,
	ok bool) {
	var good []SignedVerification
	for _, c := range list {
		if !s.counts(c, e) {
			continue
		}
		if c.Outcome == OutcomeOK {
			good = append(good, c)
		} else if !slices.ContainsFunc(good, func(g SignedVerification) bool {
			return g.Level.Supersedes(c.Level)
		}) {
			return c, true
		}
	}
	if len(good) == 0 {
		return SignedVerification{}, false
	}
	return good[0], true
}

// Verified returns the newest snapshot of a source that a verify found good, and that verification.
// Both are accepted, the verification is of the very envelope that is stored, and no damage was
// found since. A prune never removes this snapshot. It costs two lists, and two reads for each
// verified snapshot from the newest to the one returned. ErrNotFound when there is none.
func (s *Store) Verified(ctx context.Context, source string) (Signed, SignedVerification, error) {
	checks, err := s.VerificationKeys(ctx, source)
	if err != nil {
		return Signed{}, SignedVerification{}, err
	}
	keys, err := s.Snapshots(ctx, source)
	if err != nil {
		return Signed{}, SignedVerification{}, err
	}
	slices.SortStableFunc(keys, func(a, b EnvelopeKey) int { return b.Time.Compare(a.Time) })
	for _, key := range keys {
		of := checks[key.String()]
		if len(of) == 0 {
			continue
		}
		e, err := s.GetEnvelope(ctx, key)
		if OfStore(ctx, err) != nil {
			return Signed{}, SignedVerification{}, err
		}
		if err != nil {
			continue
		}
		list, _, err := s.ReadVerifications(ctx, of)
		if err != nil {
			return Signed{}, SignedVerification{}, err
		}
		if c, ok := s.DecidingVerification(e, list); ok && c.Outcome == OutcomeOK && s.accepted(e.Trust) {
			return e, c, nil
		}
	}
	return Signed{}, SignedVerification{}, &BucketError{Op: "find", Key: "verified snapshot of " +
		source,
		Class: ErrNotFound}
}
