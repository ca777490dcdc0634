package document

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// File is a signed document as it is stored. The payload is text inside it, so that what was signed
// is the very bytes that jq prints.
type File struct {
	Payload   string `json:"payload"`
	Signature string `json:"signature"`
}

// Payload is what is signed of a document.
type Payload interface {
	// Place returns the store and the key that the document belongs to.
	Place() (storeID, key string)
	// Validate returns what breaks the format. It holds for what is written and for what is read.
	Validate() error
	// Claim returns what the document is for and about, which decides whether a key with limits
	// counts for it. It is called for a zero payload, too: the purpose is that of the type.
	Claim() keys.Claim
}

// Header is the beginning of a payload. The key in it is signed, so that nobody can move a document
// to another key.
type Header struct {
	Format  int    `json:"format"`
	StoreID string `json:"storeID"`
	Key     string `json:"key"`
}

// Place returns the store and the key that the document belongs to.
func (h Header) Place() (storeID, key string) { return h.StoreID, h.Key }

// Signer writes and reads the signed documents of one store.
type Signer struct {
	StoreID string
	// Origin is the id of another store whose documents are read as well; empty means none.
	Origin string
	Keys   *keys.Keys
}

// Header returns the header of the document under key.
func (s Signer) Header(key string) Header {
	return Header{Format: Format, StoreID: s.StoreID, Key: key}
}

// Encode returns the stored bytes of a payload, at most most of them; signed if there is a signing
// key. The same payload and key give the same bytes. *bucket.UsageError when readers would not
// trust them, since the signing key has limits.
func (s Signer) Encode(key string, payload Payload, most int) ([]byte, error) {
	if err := s.Keys.MaySign(payload.Claim()); err != nil {
		return nil, err
	}
	return s.encode(key, payload, most)
}

// encode is Encode whatever the limits of the signing key are.
func (s Signer) encode(key string, payload any, most int) ([]byte, error) {
	text, err := Encode(payload)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	signature, err := s.Keys.Sign(text, "mgmtd "+key)
	if err != nil {
		return nil, err
	}
	data, err := Encode(File{Payload: string(text), Signature: signature})
	if err == nil && len(data) > most {
		err = fmt.Errorf("it has %d bytes, more than the %d of the format", len(data), most)
	}
	return data, err
}

// Open reads the document that is stored under key: it checks the signature, then that the payload
// is what its key says and of this store. It requires no trust: that is for the caller. What a key
// with limits signed outside of them is keys.Limited. *bucket.CorruptError, *FormatError,
// bucket.ErrForeign.
func (s Signer) Open(key string, data []byte, p Payload) (keys.Signature, error) {
	claim := keys.Claim{Purpose: p.Claim().Purpose} // all that is known of an unknown format
	if k, err := layout.ParseEnvelopeKey(key); err == nil {
		claim.Sources = []string{k.Source}
	}
	text, signature, err := s.Verify(key, data)
	if err == nil {
		err = s.Decode(key, text, p)
	}
	if format, ok := errors.AsType[*FormatError](err); ok {
		format.Trusted = signature.For(claim).Trust == keys.Trusted
	}
	if err != nil {
		return keys.Signature{}, err
	}
	claim = p.Claim()
	claim.SHA256 = layout.SHA256Hex(data)
	return signature.For(claim), nil
}

// Verify is the first half of Open. It returns the payload before it is parsed, and a signature
// that does not yet count if its key has limits.
func (s Signer) Verify(key string, data []byte) (payload []byte, signature keys.Signature,
	err error) {
	var f File
	if err := Decode(data, &f, "payload", "signature"); err != nil {
		return nil, signature, &bucket.CorruptError{Key: key, Reason: err.Error()}
	}
	signature, err = s.Keys.Verify([]byte(f.Payload), f.Signature)
	if err != nil {
		return nil, signature, &bucket.CorruptError{Key: key, Reason: err.Error()}
	}
	return []byte(f.Payload), signature, nil
}

// Decode is the second half of Open. Names in the payload that it does not know are left to newer
// writers.
func (s Signer) Decode(key string, payload []byte, p Payload) error {
	corrupt := func(reason string) error { return &bucket.CorruptError{Key: key, Reason: reason} }
	if found, err := FormatOf(payload); err != nil {
		return corrupt("payload: " + err.Error())
	} else if found != Format {
		return &FormatError{Key: key, Format: found}
	}
	if err := Decode(payload, p); err != nil {
		return corrupt("payload: " + err.Error())
	}
	if err := p.Validate(); err != nil {
		return corrupt("payload: " + err.Error())
	}
	storeID, place := p.Place()
	if storeID != s.StoreID && (s.Origin == "" || storeID != s.Origin) {
		return &bucket.Error{Op: "get", Key: key, Class: bucket.ErrForeign,
			Err: fmt.Errorf("its store id is %.40q", storeID)}
	}
	if place != key {
		return corrupt(fmt.Sprintf("it is the document %.200s", place))
	}
	return nil
}
