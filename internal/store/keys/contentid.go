package keys

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// ContentID identifies content without revealing it: a bare hash of a Secret would confirm guesses
// at it.
type ContentID = [20]byte

// ContentIDs makes the ids of one writer, and seals what he alone is to read again.
type ContentIDs struct {
	key  []byte
	aead cipher.AEAD
}

// ContentIDs makes ids for the store of that id, by a secret that is stored with them and by the
// signing key, which is not: without one (a *bucket.UsageError) guesses could be confirmed. They
// differ for other recipients and another store, so that content that is found again can be read by
// those whom new content is encrypted to.
func (k *Keys) ContentIDs(storeID string, encrypted bool, secret []byte) (*ContentIDs, error) {
	if !k.CanSign() {
		return nil, &bucket.UsageError{Text: "make content ids: no signing key"}
	}
	h := sha256.New()
	write := func(text []byte) {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // never fails
		_, _ = h.Write(text)
	}
	write([]byte("mgmtd content ids 1"))
	write(secret)
	write([]byte(storeID))
	if encrypted {
		for _, r := range slices.Sorted(slices.Values(k.recipientTexts)) {
			write([]byte(r))
		}
	}
	// The signature of a text that nobody else signs or sees is as secret as the key, and the same
	// each time.
	signature, err := k.Sign(h.Sum(nil), "content ids")
	if err != nil {
		return nil, fmt.Errorf("make content ids: %w", err)
	}
	write([]byte(signature))
	ids := &ContentIDs{key: h.Sum(nil)}
	sealing := hmac.New(sha256.New, ids.key)
	_, _ = sealing.Write([]byte("mgmtd sealing 1")) // never fails
	if ids.aead, err = chacha20poly1305.NewX(sealing.Sum(nil)); err != nil {
		return nil, fmt.Errorf("make content ids: %w", err)
	}
	return ids, nil
}

// Seal encrypts a text so that nobody who has the catalog and not the signing key can read it: an
// index of Secrets holds their bare hashes. name is bound to it.
func (c *ContentIDs) Seal(name ContentID, text []byte) []byte {
	nonce := make([]byte, c.aead.NonceSize(), c.aead.NonceSize()+len(text)+c.aead.Overhead())
	rand.Read(nonce) // never fails
	return c.aead.Seal(nonce, nonce, text, name[:])
}

// Open gives the text of Seal; an error when it was sealed under another name, or by a writer with
// other keys or another secret.
func (c *ContentIDs) Open(name ContentID, sealed []byte) ([]byte, error) {
	if len(sealed) < c.aead.NonceSize() {
		return nil, errors.New("open sealed text: too short")
	}
	text, err := c.aead.Open(nil, sealed[:c.aead.NonceSize()], sealed[c.aead.NonceSize():], name[:])
	if err != nil {
		return nil, fmt.Errorf("open sealed text: %w", err)
	}
	return text, nil
}

// Of gives the id of content under a name.
func (c *ContentIDs) Of(name string, content []byte) ContentID {
	h := hmac.New(sha256.New, c.key)
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(name)))) // never fails
	_, _ = h.Write([]byte(name))
	_, _ = h.Write(content)
	return ContentID(h.Sum(nil)[:len(ContentID{})])
}
