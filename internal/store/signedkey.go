package store

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
)

// placed is what the payload of every signed document has that is found by its key: the key is
// signed, so that none can be moved to another place.
type placed struct {
	Format  int    `json:"format"`
	StoreID string `json:"storeID"`
	Key     string `json:"key"`
}

func (p placed) place() placed { return p }

// mayRecord checks what the write of a signed document needs: a *UsageError tells what is missing.
func (s *Store) mayRecord() error {
	if s.Encrypted() && !s.keys.CanSign() {
		return &UsageError{Text: "write to store " + s.String() + ": no key to sign with",
			Tip: "give the signing key (--signing-key)"}
	}
	if !s.Encrypted() {
		return s.mayWrite()
	}
	return nil
}

// vouched tells whether a document may be relied upon: a trusted key signed it, or it is of a plain
// store that was opened as such and without trusted keys.
func (s *Store) vouched(trust Trust) bool {
	return trust == Trusted || s.plain &&
		!s.keys.CanTrust()
}

// putSigned stores a payload, signed, under a key that is written once. ErrExists when the key is
// there.
func (s *Store) putSigned(ctx context.Context, key string, payload any, most int) error {
	if err := s.mayRecord(); err != nil {
		return err
	}
	data, err := s.encodeSigned(key, payload)
	if err == nil && len(data) > most {
		err = fmt.Errorf("it has %d bytes, more than the %d of the format", len(data), most)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return s.bucket.Put(ctx, key, data)
}

// getSigned reads a document that putSigned wrote into payload, a pointer. Errors: ErrNotFound,
// *CorruptError, *FormatError, ErrForeign.
func (s *Store) getSigned(ctx context.Context, key string, payload interface{ place() placed },
	most int64) (Trust, error) {
	data, err := bucket.ReadAll(ctx, s.bucket, key, most)
	if err != nil {
		return "", err
	}
	trust, _, err := s.openPlaced(key, data, payload)
	return trust, err
}

// openPlaced is getSigned of bytes that were read. It also tells the id of the key that signed.
func (s *Store) openPlaced(key string, data []byte, payload interface{ place() placed }) (
	trust Trust, by string, err error) {
	text, trust, by, err := s.openSigned(key, data)
	if err != nil {
		return "", "", err
	}
	if err := document.Decode(text, payload); err != nil {
		return "", "", &CorruptError{Key: key, Reason: "payload: " + err.Error()}
	}
	at := payload.place()
	if at.StoreID != s.ID() {
		return "", "", &BucketError{Op: "get", Key: key, Class: ErrForeign,
			Err: fmt.Errorf("its store id is %.40q", at.StoreID)}
	}
	if at.Key != key {
		return "", "", &CorruptError{Key: key, Reason: fmt.Sprintf("it is the document %.200q", at.Key)}
	}
	return trust, by, nil
}
