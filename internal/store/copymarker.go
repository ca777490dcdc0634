package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// formatCopy is the format of the mgmtd.json of a copy. It is another one than that of a store, so
// that a version that does not know of copies writes nothing into one. All other documents of a
// copy have the format Format.
const formatCopy = 2

// copyMarker is mgmtd.json in a copy. It is signed: it names the store whose envelopes readers
// accept here.
type copyMarker struct {
	Format int `json:"format"`
	document.File
}

// copyClaim is the claim of the mgmtd.json of a copy.
var copyClaim = keys.Claim{Purpose: keys.ForStore}

// Origin returns the id of the store that this one is a copy of; "" when it is no copy.
func (s *Store) Origin() string { return s.marker.Origin }

// OriginID returns the id of the store that takes the snapshots: that of the origin in a copy, and
// otherwise the store's own. Epochs of ownership are counted there.
func (s *Store) OriginID() string {
	if s.marker.Origin != "" {
		return s.marker.Origin
	}
	return s.marker.StoreID
}

// AsOwnershipHome returns a copy in which ownership is recorded, for a restore whose operator
// answers for that: the origin is lost. Records in a copy have the id of the copy, so that nobody
// can put those of the origin there. A store that is no copy is returned as it is.
func (s *Store) AsOwnershipHome() *Store {
	home := *s
	home.home = true
	return &home
}

// parseCopyMarker decodes the mgmtd.json of a copy. With trusted keys one of them must have signed
// it. *CorruptError; *TrustError.
func parseCopyMarker(data []byte, k *Keys) (marker, error) {
	fail := func(reason string) (marker, error) {
		return marker{}, &CorruptError{Key: markerKey, Reason: reason}
	}
	var file copyMarker
	if err := document.Decode(data, &file, "format", "payload", "signature"); err != nil {
		return fail(err.Error())
	}
	signature, err := k.Verify([]byte(file.Payload), file.Signature)
	if err != nil {
		return fail(err.Error())
	}
	if k.CanTrust() {
		if err := signature.For(copyClaim).Require(markerKey); err != nil {
			return marker{}, err
		}
	}
	var m marker
	if err := document.Decode([]byte(file.Payload), &m); err != nil {
		return fail("payload: " + err.Error())
	}
	m.sha256 = layout.SHA256Hex(data)
	switch {
	case m.Format != formatCopy:
		return fail("payload: it is of another format")
	case !layout.IsHex(m.Origin, storeIDLength) || m.Origin == m.StoreID:
		return fail("payload: origin is not the id of another store")
	}
	return m, m.check()
}

// encode returns the stored bytes of the mgmtd.json of a copy.
func (m *marker) encode(k *Keys) ([]byte, error) {
	if err := k.MaySign(copyClaim); err != nil {
		return nil, err
	}
	payload, err := document.Encode(m)
	if err != nil {
		return nil, err
	}
	payload = bytes.TrimSuffix(payload, []byte("\n"))
	signature, err := k.Sign(payload, "mgmtd "+markerKey)
	if err != nil {
		return nil, err
	}
	return document.Encode(copyMarker{Format: formatCopy,
		File: document.File{Payload: string(payload), Signature: signature}})
}

// OpenCopy opens the copy of a store in a bucket, or makes it in an empty place. It needs no
// recipient, since a copy run encrypts nothing, and for an encrypted store the signing key. It may
// run twice. Errors: *UsageError when the bucket holds another store, or the copy of another one;
// those of Open.
func OpenCopy(ctx context.Context, o Options, origin *Store) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := (&Store{bucket: o.Bucket, readOnly: o.ReadOnly}).refuseReadOnly(); err != nil {
		return nil, err
	}
	m, err := findMarker(ctx, o)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrStoreMissing) {
		m, err = createCopy(ctx, o, origin)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case m.StoreID == origin.ID():
		return nil, &UsageError{Text: "copy store " + origin.String() + ": " + o.Bucket.String() +
			" is the same store"}
	case m.Origin == "":
		return nil, &UsageError{Text: "copy store " + origin.String() + ": " + o.Bucket.String() +
			" is a store of its own, not a copy", Tip: "name an empty place"}
	case m.Origin != origin.OriginID():
		return nil, &UsageError{Text: fmt.Sprintf("copy store %s: %s is a copy of store %s, not of %s",
			origin, o.Bucket, m.Origin, origin.OriginID()), Tip: "name an empty place"}
	}
	return newStore(o, m)
}

// createCopy writes the mgmtd.json of a copy.
func createCopy(ctx context.Context, o Options, origin *Store) (marker, error) {
	m := marker{Format: formatCopy, StoreID: newStoreID(),
		Created:    o.Now().UTC().Truncate(time.Second),
		Encryption: origin.marker.Encryption, Origin: origin.OriginID(),
		RecordsCopied: true}
	s := &Store{bucket: o.Bucket, keys: o.Keys, plain: o.Plain, marker: m}
	if err := s.mayRecord(); err != nil {
		return marker{}, err
	}
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
		// Another run may have made the copy meanwhile.
		m, err := findMarker(ctx, o)
		if !errors.Is(err, ErrNotFound) {
			return m, err
		}
		if err := orphaned(other); err != nil {
			return marker{}, err
		}
		return marker{}, &FormatError{Key: o.Bucket.String(), Reason: "it holds " + other}
	}
	data, err := m.encode(o.Keys)
	if err != nil {
		return marker{}, fmt.Errorf("encode %s: %w", markerKey, err)
	}
	err = o.Bucket.Put(ctx, markerKey, data)
	if errors.Is(err, bucket.ErrExists) {
		return findMarker(ctx, o)
	}
	m.sha256 = layout.SHA256Hex(data)
	return m, err
}
