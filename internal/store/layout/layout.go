// Package layout is the list of what is where in the bucket of a store: the names of its keys, and
// what they say.
package layout

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Key names a pack, a shard or a tree: "<kind>s/<first two digits>/<SHA-256 of the stored
// bytes><suffix>". A Key that ParseKey made is safe to use as a path.
type Key string

// Kind is what a Key names.
type Kind string

// Kinds of content-addressed keys.
const (
	KindPack  Kind = "pack"
	KindShard Kind = "shard"
	KindTree  Kind = "tree"
)

// form is how a kind is stored; trees have no encrypted form.
type form struct {
	kind      Kind
	folder    string
	suffix    string
	encrypted bool
}

var forms = [...]form{
	{KindPack, "packs/", ".tar.zst.age", true},
	{KindPack, "packs/", ".tar.zst", false},
	{KindShard, "shards/", ".json.zst.age", true},
	{KindShard, "shards/", ".json.zst", false},
	{KindTree, "trees/", ".json.zst", false},
}

// HexDigits are the digits of hashes and ids.
const HexDigits = "0123456789abcdef"

// IsHex reports whether s is length lower-case hex digits.
func IsHex(s string, length int) bool {
	return len(s) == length && strings.Trim(s, HexDigits) == ""
}

// ParseKey reads a key; anything but the exact form is an error.
func ParseKey(s string) (Key, error) {
	if _, _, ok := splitKey(s); !ok {
		return "", fmt.Errorf("parse key %.120q: not the key of a pack, shard or tree", s)
	}
	return Key(s), nil
}

func splitKey(s string) (form, string, bool) {
	for _, f := range forms {
		rest, ok := strings.CutPrefix(s, f.folder)
		if !ok {
			continue
		}
		rest, ok = strings.CutSuffix(rest, f.suffix)
		if !ok || len(rest) != 3+2*sha256.Size {
			continue
		}
		if sum := rest[3:]; rest[2] == '/' && IsHex(sum, 2*sha256.Size) && rest[:2] == sum[:2] {
			return f, sum, true
		}
	}
	return form{}, "", false
}

// Kind returns what the key names, or "" for a key that ParseKey would refuse.
func (k Key) Kind() Kind {
	f, _, _ := splitKey(string(k))
	return f.kind
}

// Encrypted reports whether what the key names is encrypted.
func (k Key) Encrypted() bool {
	f, _, _ := splitKey(string(k))
	return f.encrypted
}

// SHA256 returns the hash in the name, or "" for a key that ParseKey would refuse.
func (k Key) SHA256() string {
	_, sum, _ := splitKey(string(k))
	return sum
}

// String returns the key as it is in the bucket.
func (k Key) String() string { return string(k) }

// KeyOf names stored bytes.
func KeyOf(kind Kind, encrypted bool, stored []byte) Key {
	for _, f := range forms {
		if f.kind == kind && f.encrypted == encrypted {
			sum := SHA256Hex(stored)
			return Key(f.folder + sum[:2] + "/" + sum + f.suffix)
		}
	}
	panic("store: no form for " + kind)
}

// SHA256Hex returns the hash of data as hex digits.
func SHA256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Stored is a key and how many bytes are stored under it.
type Stored struct {
	Key  Key
	Size int64
}

// SnapshotID is 12 random lower-case hex digits.
type SnapshotID string

// SnapshotIDLength is the number of digits of a SnapshotID.
const SnapshotIDLength = 12

// NewSnapshotID returns a random id.
func NewSnapshotID() SnapshotID {
	var b [SnapshotIDLength / 2]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process when there is no randomness
	return SnapshotID(hex.EncodeToString(b[:]))
}

// ParseSnapshotID reads a whole id; Find takes the beginning of one.
func ParseSnapshotID(s string) (SnapshotID, error) {
	if !IsHex(s, SnapshotIDLength) {
		return "", fmt.Errorf("parse snapshot id %.40q: not %d lower-case hex digits", s,
			SnapshotIDLength)
	}
	return SnapshotID(s), nil
}

// EnvelopeKey names an envelope: "snapshots/<source>/<time>-<id>.json". Keys of one source sort by
// time.
type EnvelopeKey struct {
	Source string    // UID of the source's kube-system namespace
	Time   time.Time // UTC, whole milliseconds
	ID     SnapshotID
}

// OperationFolder has the records of operations.
const OperationFolder = "operations/"

// The parts of the key of an envelope.
const (
	EnvelopeFolder = "snapshots/"
	EnvelopeSuffix = ".json"
	EnvelopeTime   = "20060102T150405.000Z"
)

// String returns the key as it is in the bucket.
func (k EnvelopeKey) String() string {
	return EnvelopeFolder + k.Source + "/" + k.Name() + EnvelopeSuffix
}

// Name is unique among the snapshots of a source: "<time>-<id>".
func (k EnvelopeKey) Name() string { return k.Time.UTC().Format(EnvelopeTime) + "-" + string(k.ID) }

// CopyingFolder has the records of copy runs.
const CopyingFolder = "copying/"

// MayGoAtOnce reports whether what is stored under key is of no use once its run has ended, so that
// the storage is not asked to retain it.
func MayGoAtOnce(key string) bool { return strings.HasPrefix(key, CopyingFolder) }

// MayBeReused reports whether a later snapshot or operation may name what is stored under key, as
// it may a shard and a pack. An envelope or the record of an operation is for one only.
func MayBeReused(key string) bool {
	return !strings.HasPrefix(key, EnvelopeFolder) && !strings.HasPrefix(key, OperationFolder)
}

// ParseEnvelopeKey reads a key; anything but the exact form is an error.
func ParseEnvelopeKey(s string) (EnvelopeKey, error) {
	fail := func(reason string) (EnvelopeKey, error) {
		return EnvelopeKey{}, fmt.Errorf("parse envelope key %.120q: %s", s, reason)
	}
	rest, ok := strings.CutPrefix(s, EnvelopeFolder)
	if !ok {
		return fail("not in " + EnvelopeFolder)
	}
	source, file, ok := strings.Cut(rest, "/")
	if !ok || !ValidSource(source) {
		return fail("no source")
	}
	stem, ok := strings.CutSuffix(file, EnvelopeSuffix)
	if !ok || len(stem) != len(EnvelopeTime)+1+SnapshotIDLength || stem[len(EnvelopeTime)] != '-' {
		return fail("not <time>-<id>.json")
	}
	when, err := time.Parse(EnvelopeTime, stem[:len(EnvelopeTime)])
	if err != nil {
		return fail("no time")
	}
	id, err := ParseSnapshotID(stem[len(EnvelopeTime)+1:])
	if err != nil {
		return fail("no id")
	}
	k := EnvelopeKey{Source: source, Time: when, ID: id}
	if k.String() != s {
		return fail("not the usual form") // time.Parse also takes a comma for the point
	}
	return k, nil
}

// ValidSource reports whether s may be the UID of a source: it takes what a UID can be, and no more
// than fits in a key.
func ValidSource(s string) bool { return len(s) <= 128 && bucket.ValidSegment(s) }

// MarkerKey is the key of the document that makes a bucket a store.
const MarkerKey = "mgmtd.json"

// ReasonHash is why stored bytes are not what their key names.
const ReasonHash = "its bytes do not fit the hash in its name"
