package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// VerifyLevel is how deep a verify goes.
type VerifyLevel string

// The levels. Structure needs no identity; Full verifies the structure, too, Sample does not.
const (
	LevelStructure VerifyLevel = "structure"
	LevelSample    VerifyLevel = "sample"
	LevelFull      VerifyLevel = "full"
)

// Supersedes reports whether a later good result at level l means that damage found at level o is
// gone. A sample supersedes nothing: it may have read other packs.
func (l VerifyLevel) Supersedes(o VerifyLevel) bool {
	return l == LevelFull || l == LevelStructure && o == LevelStructure
}

// VerifyOutcome is the outcome of a verify.
type VerifyOutcome string

// The outcomes.
const (
	OutcomeOK      VerifyOutcome = "ok"      // the snapshot can be relied on
	OutcomeDamaged VerifyOutcome = "damaged" // something is missing, or is not what it should be
)

// Verification is the result of one verify of a snapshot. It names keys of the store, and no
// object.
type Verification struct {
	// The header, ID and Snapshot are set by PutVerification.
	placed
	ID string `json:"id"` // 12 random lower-case hex digits

	Snapshot VerifiedSnapshot `json:"snapshot"`
	Level    VerifyLevel      `json:"level"`
	// when it ended; PutVerification cuts it to milliseconds, UTC
	Time    time.Time     `json:"time"`
	Writer  string        `json:"writer"` // program and version
	Outcome VerifyOutcome `json:"result"`
	Keys    int64         `json:"keys"` // that were read for the structure
	// that were compared with their shards; 0 for the structure alone
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"` // stored bytes that were read for the structure
	// Findings counts all, First names a few: those that an outcome of damaged is for come first.
	Findings int64                 `json:"findings"`
	First    []VerificationFinding `json:"first,omitempty"`
}

// VerifiedSnapshot is the snapshot of a verification, down to the bytes of its envelope.
type VerifiedSnapshot struct {
	Source     string     `json:"source"` // UID
	SourceName string     `json:"sourceName"`
	Time       time.Time  `json:"time"`
	ID         SnapshotID `json:"id"`
	SHA256     string     `json:"sha256"` // of the stored envelope
}

// VerificationFinding is a finding of a verification.
type VerificationFinding struct {
	Code string `json:"code"`
	Key  string `json:"key,omitempty"` // of a tree, shard or pack; empty when it is not about one
}

// SignedVerification is the result of a verify as it was read.
type SignedVerification struct {
	Verification
	Trust Trust
	KeyID string // of the key that signed, as minisign prints it; a claim unless Trust is Trusted
}

// VerificationKey names the result of a verify: "checks/<source>/<snapshot's time>-<snapshot's
// id>/<time>-<id>.json". Those of one snapshot sort by time.
type VerificationKey struct {
	Snapshot EnvelopeKey
	Time     time.Time // UTC, whole milliseconds
	ID       string
}

const (
	verificationFolder = "checks/"
	verificationSuffix = ".json"
	maxVerification    = 64 << 10
	maxFirst           = 10 // findings that a record names
	// The same result is recorded again after this time. It is less than a day, since a daily
	// verify does not end at the same second each day.
	verificationInterval = 23 * time.Hour
)

// String returns the key as it is in the bucket.
func (k VerificationKey) String() string {
	return verificationFolderOf(k.Snapshot) + k.Time.UTC().Format(layout.EnvelopeTime) + "-" +
		k.ID + verificationSuffix
}

// verificationFolderOf is the folder of the verifications of a snapshot: the key of its envelope,
// with another first folder and without the suffix.
func verificationFolderOf(k EnvelopeKey) string {
	return verificationFolder + strings.TrimSuffix(strings.TrimPrefix(k.String(),
		layout.EnvelopeFolder),
		layout.EnvelopeSuffix) + "/"
}

// parseVerificationKey reads a key; anything but the exact form is no key. Both names in it have
// the form of an envelope's.
func parseVerificationKey(s string) (VerificationKey, bool) {
	rest, ok := strings.CutPrefix(s, verificationFolder)
	folder, file, isFile := cutLast(rest, "/")
	if !ok || !isFile {
		return VerificationKey{}, false
	}
	snapshot, err := ParseEnvelopeKey(layout.EnvelopeFolder + folder + layout.EnvelopeSuffix)
	own, ownErr := ParseEnvelopeKey(layout.EnvelopeFolder + snapshot.Source + "/" + file)
	k := VerificationKey{Snapshot: snapshot, Time: own.Time, ID: string(own.ID)}
	return k, err == nil && ownErr == nil && k.String() == s
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// validate checks a verification before it is written and after it is read.
func (c *Verification) validate() error {
	k, ok := parseVerificationKey(c.Key)
	s := c.Snapshot
	switch {
	case !ok:
		return fmt.Errorf("key %.120q is not that of a verification", c.Key)
	case s.Source != k.Snapshot.Source || s.ID != k.Snapshot.ID || !s.Time.Equal(k.Snapshot.Time) ||
		!c.Time.Equal(k.Time) || c.ID != k.ID:
		return errors.New("snapshot, time or id are not those of its key")
	case !layout.IsHex(s.SHA256, 64):
		return errors.New("sha256 of the envelope is not 64 lower-case hex digits")
	case !slices.Contains([]VerifyLevel{LevelStructure, LevelSample, LevelFull}, c.Level):
		return fmt.Errorf("level %.40q is not known", string(c.Level))
	case c.Outcome != OutcomeOK && c.Outcome != OutcomeDamaged:
		return fmt.Errorf("result %.40q is not known", string(c.Outcome))
	case c.Outcome == OutcomeDamaged && c.Findings < 1:
		return errors.New("it is damaged without a finding")
	case min(c.Keys, c.Objects, c.Bytes, c.Findings) < 0:
		return errors.New("a count is negative")
	case len(c.First) > maxFirst:
		return fmt.Errorf("it names more than %d findings", maxFirst)
	}
	texts := []string{s.SourceName, c.Writer}
	for _, f := range c.First {
		texts = append(texts, f.Code, f.Key)
	}
	for _, text := range texts {
		if !printable(text) {
			return fmt.Errorf("%.80q does not print", text)
		}
	}
	return nil
}

// CanRecordVerifications reports whether a verification that is written with these keys is accepted
// by those who read with them: it can be signed, or the store is plain, was opened as plain and
// without trusted keys.
func (s *Store) CanRecordVerifications() bool {
	return s.keys.CanSign() || !s.Encrypted() && s.plain && !s.keys.CanTrust()
}

// PutVerification records the result of a verify of the snapshot e. Level, Time, Writer, Outcome,
// counts and findings are the caller's; at most ten findings are named. When the last accepted
// result at the same level has the same outcome and is less than 23 hours old, nothing is written
// and that one is returned: otherwise a snapshot that is verified by schedule would fill the store.
// *UsageError when the result would not be accepted: see CanRecordVerifications.
func (s *Store) PutVerification(ctx context.Context, e Signed, c Verification) (SignedVerification,
	error) {
	if !s.CanRecordVerifications() {
		return SignedVerification{}, &UsageError{Text: "record the result of a verify: no key to " +
			"sign it with",
			Tip: "give the signing key (--signing-key)"}
	}
	var id [layout.SnapshotIDLength / 2]byte
	rand.Read(id[:]) // never fails
	k := VerificationKey{Snapshot: e.Key(), Time: c.Time.UTC().Truncate(time.Millisecond),
		ID: hex.EncodeToString(id[:])}
	c.Format, c.StoreID, c.Key, c.ID, c.Time = Format, s.ID(), k.String(), k.ID, k.Time
	c.Snapshot = VerifiedSnapshot{Source: e.Source.UID, SourceName: e.Source.Name, Time: e.Time,
		ID: e.ID, SHA256: e.SHA256}
	c.First = c.First[:min(len(c.First), maxFirst)]
	if err := c.validate(); err != nil {
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
	data, err := s.encodeSigned(c.Key, c)
	if err == nil && len(data) > maxVerification {
		err = fmt.Errorf("it has %d bytes, more than the %d of the format", len(data), maxVerification)
	}
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
	var c Verification
	trust, by, err := s.openPlaced(key, data, &c)
	if err != nil {
		return SignedVerification{}, err
	}
	if err := c.validate(); err != nil {
		return SignedVerification{}, &CorruptError{Key: key, Reason: "payload: " + err.Error()}
	}
	c.Time, c.Snapshot.Time = c.Time.UTC(), c.Snapshot.Time.UTC()
	return SignedVerification{Verification: c, Trust: trust, KeyID: by}, nil
}

// VerificationKeys lists the verifications of the snapshots of one source, or of all when source is
// "", without reading them: by the key of the snapshot's envelope, newest first. Files with other
// names are passed over.
func (s *Store) VerificationKeys(ctx context.Context, source string) (map[string][]VerificationKey,
	error) {
	prefix := verificationFolder
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
		if k, ok := parseVerificationKey(i.Key); ok {
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
	keys, err := s.verificationKeys(ctx, verificationFolderOf(of))
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
		_, corrupt := errors.AsType[*CorruptError](err)
		_, newer := errors.AsType[*FormatError](err)
		switch {
		case err == nil:
			list = append(list, c)
		case errors.Is(err, ErrNotFound) && !errors.Is(err, ErrStoreMissing):
			// deleted since it was listed
		case corrupt, newer, errors.Is(err, ErrForeign):
			damaged = append(damaged, err)
		default:
			return nil, nil, err
		}
	}
	return list, damaged, nil
}

// counts tells whether c may be believed, and is about the very bytes of e.
func (s *Store) counts(c SignedVerification, e Signed) bool {
	return s.vouched(c.Trust) && c.Snapshot.SHA256 == e.SHA256
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
		_, corrupt := errors.AsType[*CorruptError](err)
		_, newer := errors.AsType[*FormatError](err)
		if corrupt || newer || errors.Is(err, ErrForeign) || errors.Is(err, ErrNotFound) &&
			!errors.Is(err, ErrStoreMissing) {
			continue
		}
		if err != nil {
			return Signed{}, SignedVerification{}, err
		}
		list, _, err := s.ReadVerifications(ctx, of)
		if err != nil {
			return Signed{}, SignedVerification{}, err
		}
		if c, ok := s.DecidingVerification(e, list); ok && c.Outcome == OutcomeOK && s.vouched(e.Trust) {
			return e, c, nil
		}
	}
	return Signed{}, SignedVerification{}, &BucketError{Op: "find", Key: "verified snapshot of " +
		source,
		Class: ErrNotFound}
}
