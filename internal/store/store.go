package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
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
}

// marker is mgmtd.json.
type marker struct {
	Format     int       `json:"format"`
	StoreID    string    `json:"storeID"`
	Created    time.Time `json:"created"`
	Encryption string    `json:"encryption"`
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
	if o.Create && !o.Plain && !o.Keys.CanEncrypt() {
		return nil, errNoRecipient()
	}
	m, err := findMarker(ctx, o)
	if errors.Is(err, ErrNotFound) || o.Create && errors.Is(err, ErrStoreMissing) {
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
	s := &Store{bucket: o.Bucket, keys: o.Keys, plain: o.Plain, marker: m, limits: formatLimits(),
		epochs: o.Epochs}
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
		m, err := readMarker(ctx, o.Bucket)
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
		return readMarker(ctx, o.Bucket)
	}
	return m, err
}

// orphaned returns an error for a key that belongs to a store, in a place without one.
func orphaned(key string) error {
	if _, err := ParseEnvelopeKey(key); err == nil || Key(key).Kind() != "" {
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

// findMarker reads mgmtd.json, or the older version of it that is that of the store.
func findMarker(ctx context.Context, o Options) (marker, error) {
	m, err := readMarker(ctx, o.Bucket)
	if previous, found, searchErr := previousMarker(ctx, o, err); found || searchErr != nil {
		return previous, searchErr
	}
	return m, err
}

func readMarker(ctx context.Context, b bucket.Bucket) (marker, error) {
	data, err := bucket.ReadAll(ctx, b, markerKey, maxMarker)
	if err != nil {
		return marker{}, err
	}
	return parseMarker(data)
}

// parseMarker decodes mgmtd.json. *FormatError; *CorruptError.
func parseMarker(data []byte) (marker, error) {
	if found, err := document.FormatOf(data); err != nil {
		return marker{}, &FormatError{Key: markerKey, Reason: err.Error()}
	} else if found != Format {
		return marker{}, &FormatError{Key: markerKey, Format: found}
	}
	var m marker
	if err := document.Decode(data, &m); err != nil {
		return marker{}, &CorruptError{Key: markerKey, Reason: err.Error()}
	}
	switch {
	case !layout.IsHex(m.StoreID, 32):
		return marker{}, &CorruptError{Key: markerKey, Reason: "storeID is not 32 lower-case hex digits"}
	case m.Encryption != encryptAge && m.Encryption != encryptNo:
		return marker{}, &CorruptError{Key: markerKey, Reason: "encryption is neither \"age\" " +
			"nor \"none\""}
	}
	return m, nil
}

// ID returns the store's id, 32 hex digits.
func (s *Store) ID() string { return s.marker.StoreID }

// Encrypted reports whether packs and shards are encrypted.
func (s *Store) Encrypted() bool { return s.marker.Encryption == encryptAge }

// Created returns when the store was made.
func (s *Store) Created() time.Time { return s.marker.Created }

// String returns where the store is.
func (s *Store) String() string { return s.bucket.String() }

// mayWrite checks the conditions for writing before any work is done. A *UsageError says what is
// missing.
func (s *Store) mayWrite() error {
	switch {
	case s.Encrypted() && !s.keys.CanEncrypt():
		return errNoRecipient()
	case !s.Encrypted() && !s.plain:
		return &UsageError{Text: "write to store " + s.String() + ": it is plain",
			Tip: "open it as plain, or use another store", TipKey: object.HintPlain}
	}
	return nil
}

// checkStoreID reads mgmtd.json again and compares its id with that of the store that was opened.
// Signed documents name the store, so nobody could read one with a wrong id. The id may have been
// read with a wrong bit in it, or another store may have replaced this one. ErrForeign,
// ErrStoreMissing, and the errors of Open.
func (s *Store) checkStoreID(ctx context.Context) error {
	m, err := findMarker(ctx, Options{Bucket: s.bucket, Keys: s.keys, Plain: s.plain})
	if errors.Is(err, ErrNotFound) {
		return &BucketError{Op: "open", Key: s.String(), Class: ErrStoreMissing,
			Err: errors.New("it holds no " + markerKey + " any more")}
	}
	if err == nil && m.StoreID != s.ID() {
		return &BucketError{Op: "open", Key: s.String(), Class: ErrForeign,
			Err: fmt.Errorf("it was opened as store %s, now it is %s", s.ID(), m.StoreID)}
	}
	return err
}
