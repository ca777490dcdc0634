package store

import (
	"io/fs"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/envelope"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/pack"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/store/tree"
)

// The names of what is stored, as package layout defines them.
type (
	Key         = layout.Key
	Kind        = layout.Kind
	EnvelopeKey = layout.EnvelopeKey
	SnapshotID  = layout.SnapshotID
)

// Kinds of content-addressed keys.
const (
	KindPack  = layout.KindPack
	KindShard = layout.KindShard
	KindTree  = layout.KindTree
)

// ParseKey reads the key of a pack, shard or tree; anything but the exact form is an error.
func ParseKey(s string) (Key, error) { return layout.ParseKey(s) }

// ParseEnvelopeKey reads the key of an envelope; anything but the exact form is an error.
func ParseEnvelopeKey(s string) (EnvelopeKey, error) { return layout.ParseEnvelopeKey(s) }

// NewSnapshotID returns a random id.
func NewSnapshotID() SnapshotID { return layout.NewSnapshotID() }

// ParseSnapshotID reads a whole id; Find takes the beginning of one.
func ParseSnapshotID(s string) (SnapshotID, error) { return layout.ParseSnapshotID(s) }

// What writes and reads packs, as package pack defines it.
type (
	Entry      = pack.Entry
	PackWriter = pack.Writer
	PackRef    = pack.Ref
	Stored     = layout.Stored
)

// EntryName returns the name of an object's file in a pack.
func EntryName(e Entry) (string, error) { return pack.EntryName(e) }

// ParseEntryName reads what EntryName returned; anything else is an error.
func ParseEntryName(name string) (Entry, error) { return pack.ParseEntryName(name) }

// What a store holds, as packages envelope, tree and record define it.
type (
	Envelope = envelope.Envelope
	Source   = envelope.Source
	Parent   = envelope.Parent
	Counts   = envelope.Counts
	Scope    = envelope.Scope
	Tree     = tree.Tree

	Owner               = record.Owner
	Pin                 = record.Pin
	Range               = record.Range
	OperationRecordKey  = record.OperationKey
	OperationHead       = record.OperationHead
	Verification        = record.Verification
	VerificationKey     = record.VerificationKey
	VerificationFinding = record.VerificationFinding
	VerifiedSnapshot    = record.VerifiedSnapshot
	VerifyLevel         = record.VerifyLevel
	VerifyOutcome       = record.VerifyOutcome
)

// The scopes that have a name of their own.
const (
	ScopeWhole = envelope.ScopeWhole
	ScopeAny   = envelope.ScopeAny
)

// OperationScope returns the scope of the snapshots that an operation takes for itself.
func OperationScope(source, operation string) Scope {
	return envelope.OperationScope(source, operation)
}

// ScopeOf returns the scope of a selection of a source.
func ScopeOf(source string, namespaces []string, selector, schedule string) Scope {
	return envelope.ScopeOf(source, namespaces, selector, schedule)
}

// The levels of a verify, and its outcomes.
const (
	LevelStructure = record.LevelStructure
	LevelSample    = record.LevelSample
	LevelFull      = record.LevelFull
	OutcomeOK      = record.OutcomeOK
	OutcomeDamaged = record.OutcomeDamaged
)

// The keys of a store, as package keys defines them.
type (
	Keys        = keys.Keys
	KeyOptions  = keys.Options
	Secret      = keys.Secret
	Generated   = keys.Generated
	ContentID   = keys.ContentID
	ContentIDs  = keys.ContentIDs
	Trust       = keys.Trust
	Signature   = keys.Signature
	TrustedKey  = keys.TrustedKey
	KeyLimits   = keys.Limits
	LastTrusted = keys.LastTrusted
	KeyPurpose  = keys.Purpose
)

// MaxEpoch is the highest epoch of an ownership record that counts.
const MaxEpoch = record.MaxEpoch

// Levels of trust in a signature.
const (
	Trusted       = keys.Trusted
	UnknownSigner = keys.UnknownSigner
	Unsigned      = keys.Unsigned
	Unchecked     = keys.Unchecked
	Limited       = keys.Limited
)

// Names of the files that Keygen writes.
const (
	IdentityFile   = keys.IdentityFile
	RecipientFile  = keys.RecipientFile
	SigningFile    = keys.SigningFile
	SigningPubFile = keys.SigningPubFile
)

// ExposedFile says who can read or replace a file with a secret that should not; empty for nobody.
func ExposedFile(info fs.FileInfo) string { return keys.Exposed(info) }

// LoadKeys reads and checks all keys at once. *KeyError, *UsageError; no message holds secret text.
func LoadKeys(o KeyOptions) (*Keys, error) { return keys.Load(o) }

// ReadIdentities reads identity files, of which ask gives the passphrases, and returns their text
// as one of KeyOptions.Identities. It calls exposed for each file without a passphrase that
// everybody can read. *KeyError, or the error of ask.
func ReadIdentities(files []string, ask func(file string) (Secret, error),
	exposed func(file, who string)) (Secret, error) {
	return keys.ReadIdentities(files, ask, exposed)
}

// Keygen writes a new identity and a new signing key into dir, and never replaces one. *UsageError
// for a file that exists.
func Keygen(dir string, now time.Time) (Generated, error) { return keys.Generate(dir, now, nil) }

// KeygenProtected is Keygen with an identity that is protected by a passphrase.
func KeygenProtected(dir string, now time.Time, passphrase Secret) (Generated, error) {
	return keys.Generate(dir, now, passphrase)
}

// Signs reports whether there is a signing key.
func (s *Store) Signs() bool { return s.keys.CanSign() }

// ContentIDs makes ids by a secret that is stored with them and by the signing key, which is not.
// *UsageError without one.
func (s *Store) ContentIDs(secret []byte) (*ContentIDs, error) {
	return s.keys.ContentIDs(s.ID(), s.Encrypted(), secret)
}

// HostIDs are ContentIDs that every host with the signing key makes alike, whatever its recipients
// are.
func (s *Store) HostIDs(secret []byte) (*ContentIDs, error) {
	return s.keys.ContentIDs(s.ID(), false, secret)
}
