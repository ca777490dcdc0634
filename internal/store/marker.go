package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// marker is mgmtd.json. It is written once, and never changed.
type marker struct {
	Format     int       `json:"format"`
	StoreID    string    `json:"storeID"`
	Created    time.Time `json:"created"`
	Encryption string    `json:"encryption"`
	// Origin is the id of the store that this one is a copy of; empty when it is no copy.
	Origin string `json:"origin,omitempty"`
	// RecordsCopied says that a copy has had a record of each snapshot since it was made.
	RecordsCopied bool `json:"recordsCopied,omitempty"`

	sha256 string // of the bytes that were read or written
	// overwritten is why the current version of mgmtd.json does not count; nil when it does.
	overwritten error
}

// findMarker returns the mgmtd.json of the store in a bucket. Only that of a copy is signed. An
// attacker who writes over another one could name another store, or disguise a copy as its origin.
// A version is proven when a trusted key signed it, or signed an envelope that names its id. Of
// several proven versions the oldest counts, since mgmtd.json is written once. Without trusted keys
// the current version counts. The errors of Open; *CorruptError also when the current version names
// another store than envelopes that were there before it.
func findMarker(ctx context.Context, o Options) (marker, error) {
	current, problem := readMarker(ctx, o)
	if !o.Keys.CanTrust() || !mayBeOverwritten(problem) {
		return current, problem
	}
	versions, err := markerVersions(ctx, o)
	if err != nil {
		return marker{}, err
	}
	if problem == nil && !slices.ContainsFunc(versions, current.same) {
		versions = append(versions, current)
	}
	p := &proof{options: o}
	m, proven, err := p.oldestProven(ctx, versions)
	switch {
	case err != nil:
		return marker{}, err
	case !proven && problem == nil:
		return current, p.contradicts(ctx, current)
	case !proven:
		return current, problem
	case problem != nil:
		m.overwritten = problem
	case !m.same(current):
		m.overwritten = &CorruptError{Key: markerKey, Reason: fmt.Sprintf("somebody wrote over it: it "+
			"names store %s, and an older version is that of this store, %s", current.StoreID,
			m.StoreID)}
	}
	return m, nil
}

// mayBeOverwritten reports whether an error of readMarker, or none, leaves it open which mgmtd.json
// is that of the store. It is not known who wrote that of a later format either.
func mayBeOverwritten(problem error) bool {
	_, isFormat := errors.AsType[*FormatError](problem)
	_, untrusted := errors.AsType[*TrustError](problem) // that of a copy
	return problem == nil || isFormat || untrusted || IsCorrupt(problem) ||
		errors.Is(problem, ErrNotFound)
}

func (m *marker) same(other marker) bool { return m.sha256 == other.sha256 }

// markerVersions returns the older versions of mgmtd.json that can be read, the oldest first, each
// once.
func markerVersions(ctx context.Context, o Options) (versions []marker, err error) {
	err = previousDocuments(ctx, o.Bucket, markerKey, maxMarker, func(data []byte) (bool, error) {
		m, err := parseMarker(data, o.Keys)
		if err == nil && !slices.ContainsFunc(versions, m.same) {
			versions = append(versions, m)
		}
		return false, nil
	})
	return versions, err
}

func readMarker(ctx context.Context, o Options) (marker, error) {
	data, err := bucket.ReadAll(ctx, o.Bucket, markerKey, maxMarker)
	if err != nil {
		return marker{}, err
	}
	return parseMarker(data, o.Keys)
}

// parseMarker decodes mgmtd.json. *FormatError; *CorruptError; *TrustError for that of a copy.
func parseMarker(data []byte, keys *Keys) (marker, error) {
	found, err := document.FormatOf(data)
	switch {
	case err != nil:
		return marker{}, &FormatError{Key: markerKey, Reason: err.Error()}
	case found == formatCopy:
		return parseCopyMarker(data, keys)
	case found != Format:
		return marker{}, &FormatError{Key: markerKey, Format: found}
	}
	var m marker
	if err := document.Decode(data, &m); err != nil {
		return marker{}, &CorruptError{Key: markerKey, Reason: err.Error()}
	}
	m.sha256 = layout.SHA256Hex(data)
	m.Origin, m.RecordsCopied = "", false // of format 1 nothing but the other four fields counts
	return m, m.check()
}

// check returns a *CorruptError for what breaks the format.
func (m *marker) check() error {
	switch {
	case !layout.IsHex(m.StoreID, storeIDLength):
		return &CorruptError{Key: markerKey, Reason: "storeID is not 32 lower-case hex digits"}
	case m.Encryption != encryptAge && m.Encryption != encryptNo:
		return &CorruptError{Key: markerKey, Reason: "encryption is neither \"age\" nor \"none\""}
	}
	return nil
}

// MarkerOverwritten returns why the current version of mgmtd.json does not count, when the store
// was opened by an older version; nil otherwise.
func (s *Store) MarkerOverwritten() error { return s.marker.overwritten }

// checkStoreID reads mgmtd.json again and compares it with that of the store that was opened.
// Signed documents name the store, so nobody could read one with a wrong id. The id may have been
// read with a wrong bit in it, or another store may have replaced this one. ErrForeign,
// ErrStoreMissing, and the errors of Open.
func (s *Store) checkStoreID(ctx context.Context) error {
	m, err := readMarker(ctx, Options{Bucket: s.bucket, Keys: s.keys})
	if err == nil && m.same(s.marker) {
		return nil
	}
	m, err = findMarker(ctx, Options{Bucket: s.bucket, Keys: s.keys, Plain: s.plain})
	if errors.Is(err, ErrNotFound) {
		return &BucketError{Op: "open", Key: s.String(), Class: ErrStoreMissing,
			Err: errors.New("it holds no " + markerKey + " any more")}
	}
	if err == nil && (m.StoreID != s.ID() || m.Origin != s.Origin()) {
		return &BucketError{Op: "open", Key: s.String(), Class: ErrForeign,
			Err: fmt.Errorf("it was opened as store %s, now it is %s", s.ID(), m.StoreID)}
	}
	return err
}
