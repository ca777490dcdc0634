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

// CheckLevel is how deep a verify looked.
type CheckLevel string

// The levels. Structure needs no identity; Full looks at the structure, too, Sample does not.
const (
	CheckStructure CheckLevel = "structure"
	CheckSample    CheckLevel = "sample"
	CheckFull      CheckLevel = "full"
)

// Settles tells whether a good result at level l, later on, means that damage found at level o is
// gone. A sample settles nothing: it may have read other packs.
func (l CheckLevel) Settles(o CheckLevel) bool {
	return l == CheckFull || l == CheckStructure && o == CheckStructure
}

// CheckOutcome is what a verify came to.
type CheckOutcome string

// The outcomes.
const (
	CheckOK      CheckOutcome = "ok"      // nothing that keeps the snapshot from being relied on
	CheckDamaged CheckOutcome = "damaged" // something is missing, or is not what it should be
)

// Check is the result of one verify of a snapshot. It names keys of the store, and no object.
type Check struct {
	// What is placed, ID and Snapshot are set by PutCheck.
	placed
	ID string `json:"id"` // 12 random lower-case hex digits

	Snapshot CheckedSnapshot `json:"snapshot"`
	Level    CheckLevel      `json:"level"`
	Time     time.Time       `json:"time"`   // when it ended; PutCheck cuts it to milliseconds, UTC
	Writer   string          `json:"writer"` // program and version
	Outcome  CheckOutcome    `json:"result"`
	Keys     int64           `json:"keys"` // that were read for the structure
	// that were compared with their shards; 0 for the structure alone
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"` // stored bytes that were read for the structure
	// Findings counts all, First names a few: those that an outcome of damaged is for come first.
	Findings int64        `json:"findings"`
	First    []CheckedKey `json:"first,omitempty"`
}

// CheckedSnapshot is the snapshot that a check is about, down to the bytes of its envelope.
type CheckedSnapshot struct {
	Source     string     `json:"source"` // UID
	SourceName string     `json:"sourceName"`
	Time       time.Time  `json:"time"`
	ID         SnapshotID `json:"id"`
	SHA256     string     `json:"sha256"` // of the stored envelope
}

// CheckedKey is a finding of a check.
type CheckedKey struct {
	Code string `json:"code"`
	Key  string `json:"key,omitempty"` // of a tree, shard or pack; empty when it is not about one
}

// SignedCheck is the result of a verify as it was read.
type SignedCheck struct {
	Check
	Trust Trust
	KeyID string // of the key that signed, as minisign prints it; a claim unless Trust is Trusted
}

// CheckKey names the result of a verify: "checks/<source>/<snapshot's time>-<snapshot's
// id>/<time>-<id>.json". Those of one snapshot sort by time.
type CheckKey struct {
	Snapshot EnvelopeKey
	Time     time.Time // UTC, whole milliseconds
	ID       string
}

const (
	checkFolder = "checks/"
	checkSuffix = ".json"
	maxCheck    = 64 << 10
	maxFirst    = 10 // findings that a record names
	// how often the same is said again of a snapshot; less than a day, for a daily verify does not
	// end at the same second
	checkInterval = 23 * time.Hour
)

// String returns the key as it is in the bucket.
func (k CheckKey) String() string {
	return checksOf(k.Snapshot) + k.Time.UTC().Format(layout.EnvelopeTime) + "-" + k.ID + checkSuffix
}

// checksOf is the folder of the checks of a snapshot: the key of its envelope, but for the first
// folder and the suffix.
func checksOf(k EnvelopeKey) string {
	return checkFolder + strings.TrimSuffix(strings.TrimPrefix(k.String(), layout.EnvelopeFolder),
		layout.EnvelopeSuffix) + "/"
}

// parseCheckKey reads a key; anything but the exact form is no key. Both names in it have the form
// of an envelope's.
func parseCheckKey(s string) (CheckKey, bool) {
	rest, ok := strings.CutPrefix(s, checkFolder)
	folder, file, isFile := cutLast(rest, "/")
	if !ok || !isFile {
		return CheckKey{}, false
	}
	snapshot, err := ParseEnvelopeKey(layout.EnvelopeFolder + folder + layout.EnvelopeSuffix)
	own, ownErr := ParseEnvelopeKey(layout.EnvelopeFolder + snapshot.Source + "/" + file)
	k := CheckKey{Snapshot: snapshot, Time: own.Time, ID: string(own.ID)}
	return k, err == nil && ownErr == nil && k.String() == s
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// check holds for what is written and for what is read.
func (c *Check) check() error {
	k, ok := parseCheckKey(c.Key)
	s := c.Snapshot
	switch {
	case !ok:
		return fmt.Errorf("key %.120q is not that of a check", c.Key)
	case s.Source != k.Snapshot.Source || s.ID != k.Snapshot.ID || !s.Time.Equal(k.Snapshot.Time) ||
		!c.Time.Equal(k.Time) || c.ID != k.ID:
		return errors.New("snapshot, time or id are not those of its key")
	case !layout.IsHex(s.SHA256, 64):
		return errors.New("sha256 of the envelope is not 64 lower-case hex digits")
	case !slices.Contains([]CheckLevel{CheckStructure, CheckSample, CheckFull}, c.Level):
		return fmt.Errorf("level %.40q is not known", string(c.Level))
	case c.Outcome != CheckOK && c.Outcome != CheckDamaged:
		return fmt.Errorf("result %.40q is not known", string(c.Outcome))
	case c.Outcome == CheckDamaged && c.Findings < 1:
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

// CanRecordChecks tells whether the result of a verify that is written with these keys would count
// for those who use them to read: it can be signed, or the store is plain and was opened as such
// and without trusted keys.
func (s *Store) CanRecordChecks() bool {
	return s.keys.CanSign() || !s.Encrypted() && s.plain && !s.keys.CanTrust()
}

// PutCheck records the result of a verify of the snapshot e. Level, Time, Writer, Outcome, counts
// and findings are the caller's; it names at most ten of those. It writes nothing, and returns what
// is there, when the last result at the same level that counts is the same and less than 23 hours
// old: else a snapshot that is verified by schedule would fill the store. A *UsageError when it
// would not count: see CanRecordChecks.
func (s *Store) PutCheck(ctx context.Context, e Signed, c Check) (SignedCheck, error) {
	if !s.CanRecordChecks() {
		return SignedCheck{}, &UsageError{Text: "record the result of a verify: no key to sign it with",
			Tip: "give the signing key (--signing-key)"}
	}
	var id [layout.SnapshotIDLength / 2]byte
	rand.Read(id[:]) // never fails
	k := CheckKey{Snapshot: e.Key(), Time: c.Time.UTC().Truncate(time.Millisecond),
		ID: hex.EncodeToString(id[:])}
	c.Format, c.StoreID, c.Key, c.ID, c.Time = Format, s.ID(), k.String(), k.ID, k.Time
	c.Snapshot = CheckedSnapshot{Source: e.Source.UID, SourceName: e.Source.Name, Time: e.Time,
		ID: e.ID, SHA256: e.SHA256}
	c.First = c.First[:min(len(c.First), maxFirst)]
	if err := c.check(); err != nil {
		return SignedCheck{}, fmt.Errorf("record check: %w", err)
	}
	known, _, err := s.Checks(ctx, e.Key())
	if err != nil {
		return SignedCheck{}, err
	}
	for _, o := range known {
		if o.Level == c.Level && s.counts(o, e) {
			if age := c.Time.Sub(o.Time); o.Outcome == c.Outcome && age >= 0 && age < checkInterval {
				return o, nil
			}
			break
		}
	}
	data, err := s.encodeSigned(c.Key, c)
	if err == nil && len(data) > maxCheck {
		err = fmt.Errorf("it has %d bytes, more than the %d of the format", len(data), maxCheck)
	}
	if err != nil {
		return SignedCheck{}, fmt.Errorf("record check: %w", err)
	}
	if err := s.bucket.Put(ctx, c.Key, data); err != nil {
		return SignedCheck{}, err
	}
	return s.openCheck(c.Key, data)
}

// GetCheck reads one result and checks it: the signature, then that it is what its name says and of
// this store. It does not require a signature: see Verdict. Errors: ErrNotFound, *CorruptError,
// *FormatError, ErrForeign.
func (s *Store) GetCheck(ctx context.Context, k CheckKey) (SignedCheck, error) {
	data, err := bucket.ReadAll(ctx, s.bucket, k.String(), maxCheck)
	if err != nil {
		return SignedCheck{}, err
	}
	return s.openCheck(k.String(), data)
}

func (s *Store) openCheck(key string, data []byte) (SignedCheck, error) {
	var c Check
	trust, by, err := s.openPlaced(key, data, &c)
	if err != nil {
		return SignedCheck{}, err
	}
	if err := c.check(); err != nil {
		return SignedCheck{}, &CorruptError{Key: key, Reason: "payload: " + err.Error()}
	}
	c.Time, c.Snapshot.Time = c.Time.UTC(), c.Snapshot.Time.UTC()
	return SignedCheck{Check: c, Trust: trust, KeyID: by}, nil
}

// CheckKeys lists the checks of the snapshots of one source, or of all when source is "", without
// reading them: by the key of the snapshot's envelope, newest first. Files with other names are
// passed over.
func (s *Store) CheckKeys(ctx context.Context, source string) (map[string][]CheckKey, error) {
	prefix := checkFolder
	if source != "" {
		if !layout.ValidSource(source) {
			return nil, fmt.Errorf("list checks: source %.40q is not a UID", source)
		}
		prefix += source + "/"
	}
	return s.checkKeys(ctx, prefix)
}

func (s *Store) checkKeys(ctx context.Context, prefix string) (map[string][]CheckKey, error) {
	keys := map[string][]CheckKey{}
	err := s.bucket.List(ctx, prefix, func(i bucket.Info) error {
		if k, ok := parseCheckKey(i.Key); ok {
			of := k.Snapshot.String()
			keys[of] = append(keys[of], k)
		}
		return nil
	})
	for _, list := range keys {
		slices.SortStableFunc(list, func(a, b CheckKey) int { return b.Time.Compare(a.Time) })
	}
	return keys, err
}

// Checks lists and reads the checks of one snapshot, newest first. damaged says which records are
// there and cannot be read as such; they count for nothing.
func (s *Store) Checks(ctx context.Context, of EnvelopeKey) (list []SignedCheck, damaged []error,
	err error) {
	keys, err := s.checkKeys(ctx, checksOf(of))
	if err != nil {
		return nil, nil, err
	}
	return s.ReadChecks(ctx, keys[of.String()])
}

// ReadChecks is Checks for keys that CheckKeys listed.
func (s *Store) ReadChecks(ctx context.Context, keys []CheckKey) (list []SignedCheck,
	damaged []error, err error) {
	for _, k := range keys {
		c, err := s.GetCheck(ctx, k)
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
func (s *Store) counts(c SignedCheck, e Signed) bool {
	return s.vouched(c.Trust) && c.Snapshot.SHA256 == e.SHA256
}

// Verdict returns the one of a snapshot's checks, newest first, that says how it stands: the newest
// that found damage, unless a later one that found none settles that (CheckLevel.Settles), else the
// newest. Checks that no trusted key signed, or that are of another envelope under this name, say
// nothing. False when none does.
func (s *Store) Verdict(e Signed, checks []SignedCheck) (SignedCheck, bool) {
	var good []SignedCheck
	for _, c := range checks {
		if !s.counts(c, e) {
			continue
		}
		if c.Outcome == CheckOK {
			good = append(good, c)
		} else if !slices.ContainsFunc(good, func(g SignedCheck) bool {
			return g.Level.Settles(c.Level)
		}) {
			return c, true
		}
	}
	if len(good) == 0 {
		return SignedCheck{}, false
	}
	return good[0], true
}

// Verified returns the newest snapshot of a source that a verify found good, and that check: both
// signed by a trusted key (or of a plain store that was opened as such and without trusted keys),
// the check about the very envelope that is there, and no damage found since. Whatever is deleted,
// this one is not. It costs two lists, and two reads for each snapshot that was verified, from the
// newest to the one that it returns. ErrNotFound when there is none.
func (s *Store) Verified(ctx context.Context, source string) (Signed, SignedCheck, error) {
	checks, err := s.CheckKeys(ctx, source)
	if err != nil {
		return Signed{}, SignedCheck{}, err
	}
	keys, err := s.Snapshots(ctx, source)
	if err != nil {
		return Signed{}, SignedCheck{}, err
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
			return Signed{}, SignedCheck{}, err
		}
		list, _, err := s.ReadChecks(ctx, of)
		if err != nil {
			return Signed{}, SignedCheck{}, err
		}
		if c, ok := s.Verdict(e, list); ok && c.Outcome == CheckOK && s.vouched(e.Trust) {
			return e, c, nil
		}
	}
	return Signed{}, SignedCheck{}, &BucketError{Op: "find", Key: "verified snapshot of " + source,
		Class: ErrNotFound}
}
