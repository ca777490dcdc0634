package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

const maxEnvelope = 1 << 20

// Signed is an envelope as it was read.
type Signed struct {
	Envelope
	// HeldBy is the id of the store that it was read from: in a copy not the StoreID of the envelope.
	HeldBy string
	SHA256 string // of the stored file; what a child names as its parent
	Size   int64  // of the stored file
	Signature
	// Received is when the storage received the envelope, where a list told: Newest sets it.
	Received time.Time
	// Overwritten is why the current version of the key does not count, when the envelope was read
	// from an older one; nil otherwise.
	Overwritten error
}

// RequireTrusted returns a *TrustError unless a trusted key signed the envelope.
func (s *Signed) RequireTrusted() error {
	return s.Require(s.Key().String())
}

// PutEnvelope makes a snapshot visible: it comes after all that it names is stored, and refuses
// (ErrNotFound) when the tree is not there. It sets Format, StoreID and Recipients, and signs if
// there is a signing key. Run twice with the same envelope it succeeds; ErrExists when another has
// its key, ErrForeign when StoreID is set to another store's, or the bucket holds another store by
// now.
func (s *Store) PutEnvelope(ctx context.Context, e Envelope) (Signed, error) {
	if err := s.mayWrite(); err != nil {
		return Signed{}, err
	}
	if e.StoreID != "" && e.StoreID != s.ID() {
		return Signed{}, &BucketError{Op: "put", Key: e.Key().String(), Class: ErrForeign}
	}
	e.Format, e.StoreID, e.Time = Format, s.ID(), e.Time.UTC().Truncate(time.Millisecond)
	e.Expires = e.Expires.UTC().Truncate(time.Millisecond)
	e.Recipients = s.Recipients()
	if err := e.Validate(); err != nil {
		return Signed{}, fmt.Errorf("write envelope: %w", err)
	}
	if _, err := s.bucket.Stat(ctx, string(e.Tree)); err != nil {
		return Signed{}, fmt.Errorf("write envelope: %w", err)
	}
	if err := s.checkStoreID(ctx); err != nil {
		return Signed{}, fmt.Errorf("write envelope: %w", err)
	}
	data, err := s.signer().Encode(e.Key().String(), &e, maxEnvelope)
	if err != nil {
		return Signed{}, fmt.Errorf("write envelope: %w", err)
	}
	key := e.Key()
	err = s.bucket.Put(ctx, key.String(), data)
	if errors.Is(err, ErrExists) {
		there, readErr := bucket.ReadAll(ctx, s.bucket, key.String(), maxEnvelope)
		if readErr != nil {
			return Signed{}, readErr
		}
		if bytes.Equal(there, data) {
			err = nil // an earlier try, of which we did not hear that it worked
		}
	}
	if err != nil {
		return Signed{}, err
	}
	return s.openEnvelope(key, data)
}

// GetEnvelope reads and checks one envelope: the signature, then that it is what its name says (an
// old one under a new name is damage) and of this store. It does not require a signature: see
// Signed.RequireTrusted. In a versioned bucket, where somebody wrote over the key, it returns the
// version that a trusted key signed (Signed.Overwritten). Errors: ErrNotFound, also when the
// key was deleted; *CorruptError, *FormatError, ErrForeign.
func (s *Store) GetEnvelope(ctx context.Context, key EnvelopeKey) (Signed, error) {
	var e Signed
	data, err := bucket.ReadAll(ctx, s.bucket, key.String(), maxEnvelope)
	if err == nil {
		e, err = s.openProven(ctx, key, data)
	}
	why := err
	format, isFormat := errors.AsType[*FormatError](err)
	switch {
	case err == nil && e.Trust != Trusted && s.keys.CanTrust():
		why = e.Untrusted(key.String())
	case !IsUnusable(err), isFormat && format.Trusted:
		return e, err
	}
	older, found, searchErr := s.previousEnvelope(ctx, key)
	switch {
	case searchErr != nil:
		return Signed{}, searchErr
	case found:
		older.Overwritten = why
		return older, nil
	}
	return e, err
}

func (s *Store) openEnvelope(key EnvelopeKey, data []byte) (Signed, error) {
	var e Envelope
	signature, err := s.snapshotSigner().Open(key.String(), data, &e)
	if err != nil {
		return Signed{}, err
	}
	e.Time, e.Expires = e.Time.UTC(), e.Expires.UTC()
	return Signed{Envelope: e, HeldBy: s.ID(), SHA256: layout.SHA256Hex(data),
		Size: int64(len(data)), Signature: signature}, nil
}

// Snapshots lists the envelopes of one source, or of all when source is "", without reading them:
// oldest first within a source. Files with other names are passed over.
func (s *Store) Snapshots(ctx context.Context, source string) ([]EnvelopeKey, error) {
	list, err := s.ListedSnapshots(ctx, source)
	if err != nil {
		return nil, err
	}
	var keys []EnvelopeKey
	for _, stored := range list {
		keys = append(keys, stored.Key)
	}
	return keys, nil
}

// SnapshotGone reports whether a snapshot that was listed no longer exists: it is neither found nor
// listed. A storage that does not find a key for a moment is not believed alone, since content that
// no snapshot names is removed.
func (s *Store) SnapshotGone(ctx context.Context, k EnvelopeKey) (bool, error) {
	return s.gone(ctx, k.String())
}

func (s *Store) gone(ctx context.Context, key string) (bool, error) {
	_, err := s.bucket.Stat(ctx, key)
	if !IsMissing(err) {
		return false, err
	}
	listed := false
	err = s.bucket.List(ctx, key, func(i bucket.Info) error {
		listed = listed || i.Key == key
		return nil
	})
	return !listed, err
}

// Sources lists the UIDs of sources that have snapshots, sorted.
func (s *Store) Sources(ctx context.Context) ([]string, error) {
	keys, err := s.Snapshots(ctx, "")
	if err != nil {
		return nil, err
	}
	var sources []string
	for _, key := range keys {
		sources = append(sources, key.Source)
	}
	slices.Sort(sources)
	return slices.Compact(sources), nil
}

// Latest is what Find takes for the newest snapshot.
const Latest = "latest"

// Found is a snapshot that Find found.
type Found struct {
	Key EnvelopeKey
	// PassedOver are the envelopes that did not count in the search for the newest one.
	PassedOver []PassedOver
}

// Find finds a snapshot of a source by the beginning of an id, by "latest", or by a time (RFC
// 3339). Latest is the newest one (Newest) of a scope, and a time means the newest whose cut is not
// after it; without a scope only whole snapshots count, unless the source has partial ones of one
// scope and no others. Those that an operation took for itself count in its scope only. Where no
// snapshot counts, they find one that was passed over, so that its reader says what is wrong with
// it. An id finds snapshots of all scopes, and reads no envelope. Errors: *LookupError when there
// is none or several, *UsageError when ref is none of the three.
func (s *Store) Find(ctx context.Context, source, ref, scope string) (Found, error) {
	at, timeErr := time.Parse(time.RFC3339, ref)
	isID := ref != "" && len(ref) <= layout.SnapshotIDLength &&
		strings.Trim(ref, layout.HexDigits) == ""
	switch {
	case ref == Latest, timeErr == nil:
		return s.findNewest(ctx, source, ref, scope, at)
	case !isID:
		return Found{}, &UsageError{Text: fmt.Sprintf("find snapshot %.80q: not a snapshot id",
			ref), Tip: "give \"latest\", the beginning of an id, or a time such as 2006-01-02T15:04:05Z"}
	}
	keys, err := s.Snapshots(ctx, source)
	if err != nil {
		return Found{}, err
	}
	slices.SortStableFunc(keys, func(a, b EnvelopeKey) int { return a.Time.Compare(b.Time) })
	matches := slices.DeleteFunc(slices.Clone(keys), func(k EnvelopeKey) bool {
		return !strings.HasPrefix(string(k.ID), ref)
	})
	switch len(matches) {
	case 1:
		return Found{Key: matches[0]}, nil
	case 0:
		return Found{}, &LookupError{Ref: ref, Source: source, Matches: keys}
	default:
		return Found{}, &LookupError{Ref: ref, Source: source, Ambiguous: true, Matches: matches}
	}
}

// findNewest finds the newest snapshot of a scope whose cut is not after a time, which may be zero.
func (s *Store) findNewest(ctx context.Context, source, ref, scope string, notAfter time.Time) (
	Found, error) {
	if !layout.ValidSource(source) {
		return Found{}, fmt.Errorf("find snapshot %.80q: source %.40q is not a UID", ref, source)
	}
	scopes := map[string]bool{} // of all that were read: all there are, when none is accepted
	e, passed, err := s.Newest(ctx, source, Which{NotAfter: notAfter,
		Accept: func(e *Signed) bool {
			if e.OfOperation() != "" && (scope == "" || scope == ScopeAny) {
				return false // of what it had in flight: never the newest
			}
			scopes[e.ScopeID()] = true
			return e.InScope(scope)
		}})
	if err != nil {
		return Found{}, err
	}
	if e == nil && scope == "" && len(scopes) == 1 && !scopes[""] {
		return s.findNewest(ctx, source, ref, ScopeAny, notAfter)
	}
	if e != nil {
		return Found{Key: e.Key(), PassedOver: passed}, nil
	}
	if n := len(passed); n > 0 {
		return Found{Key: passed[n-1].Key, PassedOver: passed[:n-1]}, nil
	}
	keys, err := s.Snapshots(ctx, source)
	if err != nil {
		return Found{}, err
	}
	return Found{}, &LookupError{Ref: ref, Source: source, Scope: cmp.Or(scope, ScopeWhole),
		Matches: keys}
}
