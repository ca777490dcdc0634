package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Format is the version of the format that this package writes, and the only one it reads.
const Format = document.Format

const (
	markerKey  = layout.MarkerKey
	maxMarker  = 64 << 10
	encryptAge = "age"
	encryptNo  = "none"

	storeIDLength = 32
)

// Store is an opened store. It holds no connection, no lock and no cache; opening another one on
// the same bucket, say with an identity, costs one read. All methods may be called concurrently.
type Store struct {
	bucket bucket.Bucket
	keys   *Keys
	plain  bool // the caller asked for it
	marker marker
	limits limits
	epochs EpochMemory // may be nil

	ancestry *ancestry
	made     bool // by Open
	// readOnly refuses every write; the bucket refuses them, too.
	readOnly bool
	// home: the operator lets a copy hold ownership records; see AsOwnershipHome.
	home bool
}

// Options of Open. Only Bucket is needed to list snapshots and to verify their structure.
type Options struct {
	Bucket bucket.Bucket
	// Keys may be nil.
	Keys *Keys
	// Plain asks for a store that is not encrypted, in so many words: without it nothing is written
	// to a plain store.
	Plain bool
	// Create makes the store when there is none, for the first snapshot.
	Create bool
	// ReadOnly opens the store for reading: nothing is written, created or removed.
	ReadOnly bool
	// Epochs remembers the epochs of ownership records; nil remembers none.
	Epochs EpochMemory
	// Now is the clock, for the time of creation; nil means time.Now.
	Now func() time.Time
}

// Open opens the store in a bucket or, with Create, makes it. It may run twice, and from several
// hosts at once: one makes the store, all open it. Errors: ErrStoreMissing without Create;
// *FormatError when the store is too new, or when Create finds a bucket that holds something else;
// *CorruptError when mgmtd.json is damaged, or gone while snapshots are there; *UsageError when
// Plain or Recipients do not fit the store.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Plain && o.Keys.CanEncrypt() {
		return nil, &UsageError{Text: "open store: plain and recipients exclude each other"}
	}
	if o.ReadOnly {
		o.Bucket, o.Create = bucket.ReadOnly(o.Bucket), false
	}
	if o.Create && !o.Plain && !o.Keys.CanEncrypt() {
		return nil, errNoRecipient()
	}
	m, err := findMarker(ctx, o)
	missing := errors.Is(err, ErrNotFound) || o.Create && errors.Is(err, ErrStoreMissing)
	if missing {
		if !o.Create {
			if other, err := firstKey(ctx, o.Bucket); err != nil {
				return nil, err
			} else if err := orphaned(other); err != nil {
				return nil, err
			}
			return nil, &BucketError{Op: "open", Key: o.Bucket.String(), Class: ErrStoreMissing,
				Err: errors.New("it holds no " + markerKey)}
		}
		m, err = create(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	s, err := newStore(o, m)
	if err == nil {
		s.made = missing
	}
	return s, err
}

// newStore returns the store of a marker, if the options fit it.
func newStore(o Options, m marker) (*Store, error) {
	s := &Store{bucket: o.Bucket, keys: o.Keys, plain: o.Plain, marker: m, limits: formatLimits(),
		epochs: o.Epochs, readOnly: o.ReadOnly, ancestry: &ancestry{}}
	if o.Plain && s.Encrypted() {
		return nil, &UsageError{Text: "open store " + o.Bucket.String() + ": it is encrypted, not plain",
			Tip:    "open it as encrypted: give recipients to write, an identity to read",
			TipKey: object.HintNotPlain}
	}
	if o.Keys.CanEncrypt() && !s.Encrypted() {
		return nil, &UsageError{Text: "open store " + o.Bucket.String() +
			": it is plain, recipients would not be used", Tip: "use another store, or open this " +
			"one as plain",
			TipKey: object.HintPlain}
	}
	return s, nil
}

func errNoRecipient() error {
	return &UsageError{Text: "write to store: no recipient to encrypt to",
		Tip:    "give a recipient, or ask for a plain store, in which Secrets are not encrypted",
		TipKey: object.HintRecipient}
}

// create writes mgmtd.json. Of several at once one wins, the others read what it wrote.
func create(ctx context.Context, o Options) (marker, error) {
	if b, ok := o.Bucket.(interface{ Init(context.Context) error }); ok {
		if err := b.Init(ctx); err != nil {
			return marker{}, err
		}
	}
	other, err := firstKey(ctx, o.Bucket)
	if err != nil {
		return marker{}, err
	}
	if other != "" {
		// Somebody else may have made the store meanwhile.
		m, err := findMarker(ctx, o)
		if !errors.Is(err, ErrNotFound) {
			return m, err
		}
		if err := orphaned(other); err != nil {
			return marker{}, err
		}
		return marker{}, &FormatError{Key: o.Bucket.String(), Reason: "it holds " + other}
	}
	m := marker{Format: Format, StoreID: newStoreID(), Created: o.Now().UTC().Truncate(time.Second),
		Encryption: encryptAge}
	if o.Plain {
		m.Encryption = encryptNo
	}
	data, err := document.Encode(m)
	if err != nil {
		return marker{}, fmt.Errorf("encode %s: %w", markerKey, err)
	}
	err = o.Bucket.Put(ctx, markerKey, data)
	if errors.Is(err, ErrExists) {
		return findMarker(ctx, o)
	}
	if err != nil {
		return m, err
	}
	m.sha256 = layout.SHA256Hex(data)
	// Without conditional writes another one may have written over it. What cannot be read now is
	// compared before each envelope (checkStoreID).
	if there, err := findMarker(ctx, o); err == nil {
		m = there
	}
	return m, nil
}

// orphaned returns an error for a key that belongs to a store, in a place without one.
func orphaned(key string) error {
	_, err := ParseEnvelopeKey(key)
	ofStore := err == nil || Key(key).Kind() != ""
	for _, f := range recordFolders {
		ofStore = ofStore || strings.HasPrefix(key, f.folder)
	}
	if ofStore {
		return &CorruptError{Key: markerKey, Reason: "it is gone, but " + key + " is there"}
	}
	return nil
}

func newStoreID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails: crypto/rand ends the process when there is no randomness
	return hex.EncodeToString(id[:])
}

var errStop = errors.New("stop")

func firstKey(ctx context.Context, b bucket.Bucket) (string, error) {
	var key string
	err := b.List(ctx, "", func(i bucket.Info) error {
		key = i.Key
		return errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return key, err
}

// ID returns the store's id, 32 hex digits.
func (s *Store) ID() string { return s.marker.StoreID }

// Encrypted reports whether packs and shards are encrypted.
func (s *Store) Encrypted() bool { return s.marker.Encryption == encryptAge }

// Created returns when the store was made.
func (s *Store) Created() time.Time { return s.marker.Created }

// Made reports whether Open has made the store, since there was none.
func (s *Store) Made() bool { return s.made }

// Recipients returns the fingerprints of those whom new content is encrypted to; none in a plain
// store.
func (s *Store) Recipients() []string {
	if !s.Encrypted() {
		return nil
	}
	return s.keys.RecipientFingerprints()
}

// Identities returns the fingerprints of the recipients whose identities the store was opened with.
func (s *Store) Identities() []string { return s.keys.IdentityFingerprints() }

// String returns where the store is.
func (s *Store) String() string { return s.bucket.String() }

// mayWrite checks the conditions for writing before any work is done. A *UsageError says what is
// missing.
func (s *Store) mayWrite() error {
	if err := s.AcceptsSnapshots(); err != nil {
		return err
	}
	return s.mayEncrypt()
}

// AcceptsSnapshots returns a *UsageError for a store that takes no snapshots: a copy, and one that
// was opened for reading.
func (s *Store) AcceptsSnapshots() error {
	if s.Origin() != "" {
		return s.errCopy()
	}
	return s.refuseReadOnly()
}

// mayWriteOperation is mayWrite for the records of operations. A copy has those of restores that
// record ownership there.
func (s *Store) mayWriteOperation() error {
	if s.Origin() != "" && !s.home {
		return s.errCopy()
	}
	return s.mayEncrypt()
}

func (s *Store) errCopy() error {
	return &UsageError{Text: "write to store " + s.String() + ": it is a copy of store " + s.Origin(),
		Tip: "write to that store; a copy gets what a copy run brings, and nothing else"}
}

// mayEncrypt is mayWrite without regard to whether the store is a copy.
func (s *Store) mayEncrypt() error {
	if err := s.refuseReadOnly(); err != nil {
		return err
	}
	if s.Encrypted() && !s.keys.CanEncrypt() {
		return errNoRecipient()
	}
	return s.mayWritePlain()
}

// mayWritePlain refuses a plain store that was not opened as one.
func (s *Store) mayWritePlain() error {
	if !s.Encrypted() && !s.plain {
		return &UsageError{Text: "write to store " + s.String() + ": it is plain",
			Tip: "open it as plain, or use another store", TipKey: object.HintPlain}
	}
	return nil
}

// refuseReadOnly returns a *UsageError when the store was opened for reading.
func (s *Store) refuseReadOnly() error {
	if !s.readOnly {
		return nil
	}
	return &UsageError{Text: "write to store " + s.String() + ": its location is read-only",
		Tip: "use another location, or set accessMode: ReadWrite"}
}
