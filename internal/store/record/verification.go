package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
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
	document.Header
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
	Source     string            `json:"source"` // UID
	SourceName string            `json:"sourceName"`
	Time       time.Time         `json:"time"`
	ID         layout.SnapshotID `json:"id"`
	SHA256     string            `json:"sha256"` // of the stored envelope
}

// VerificationFinding is a finding of a verification.
type VerificationFinding struct {
	Code string `json:"code"`
	Key  string `json:"key,omitempty"` // of a tree, shard or pack; empty when it is not about one
}

// VerificationKey names the result of a verify: "checks/<source>/<snapshot's time>-<snapshot's
// id>/<time>-<id>.json". Those of one snapshot sort by time.
type VerificationKey struct {
	Snapshot layout.EnvelopeKey
	Time     time.Time // UTC, whole milliseconds
	ID       string
}

// The parts of the key of a verification, and the most findings that it names.
const (
	VerificationFolder = "checks/"
	VerificationSuffix = ".json"
	MaxFirst           = 10 // findings that a record names
)

// String returns the key as it is in the bucket.
func (k VerificationKey) String() string {
	return VerificationFolderOf(k.Snapshot) + k.Time.UTC().Format(layout.EnvelopeTime) + "-" +
		k.ID + VerificationSuffix
}

// VerificationFolderOf is the folder of the verifications of a snapshot: the key of its envelope,
// with another first folder and without the suffix.
func VerificationFolderOf(k layout.EnvelopeKey) string {
	return VerificationFolder + strings.TrimSuffix(strings.TrimPrefix(k.String(),
		layout.EnvelopeFolder),
		layout.EnvelopeSuffix) + "/"
}

// ParseVerificationKey reads a key; anything but the exact form is no key. Both names in it have
// the form of an envelope's.
func ParseVerificationKey(s string) (VerificationKey, bool) {
	rest, ok := strings.CutPrefix(s, VerificationFolder)
	folder, file, isFile := cutLast(rest, "/")
	if !ok || !isFile {
		return VerificationKey{}, false
	}
	snapshot, err := layout.ParseEnvelopeKey(layout.EnvelopeFolder + folder + layout.EnvelopeSuffix)
	own, ownErr := layout.ParseEnvelopeKey(layout.EnvelopeFolder + snapshot.Source + "/" + file)
	k := VerificationKey{Snapshot: snapshot, Time: own.Time, ID: string(own.ID)}
	return k, err == nil && ownErr == nil && k.String() == s
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Claim returns what the verification is for and about.
func (c *Verification) Claim() keys.Claim {
	return keys.Claim{Purpose: keys.ForCheck, Sources: []string{c.Snapshot.Source}}
}

// Validate returns what breaks the format.
func (c *Verification) Validate() error {
	k, ok := ParseVerificationKey(c.Key)
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
	case len(c.First) > MaxFirst:
		return fmt.Errorf("it names more than %d findings", MaxFirst)
	}
	texts := []string{s.SourceName, c.Writer}
	for _, f := range c.First {
		texts = append(texts, f.Code, f.Key)
	}
	for _, text := range texts {
		if !document.Printable(text) {
			return fmt.Errorf("%.80q does not print", text)
		}
	}
	return nil
}
