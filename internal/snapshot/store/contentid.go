package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// ContentID tells the same content again without saying what it is: a bare hash of a Secret would confirm guesses at it.
type ContentID = [20]byte

// ContentIDs makes the ids of one writer.
type ContentIDs struct{ key []byte }

// Signs tells whether there is a signing key.
func (s *Store) Signs() bool { return s.keys.CanSign() }

// ContentIDs makes ids by a secret that is kept with them and by the signing key, which is not: without one (a *UsageError) guesses could be confirmed. They differ
// for other recipients and another store, so that content which the ids find again can be read by those whom new content is encrypted to.
func (s *Store) ContentIDs(secret []byte) (*ContentIDs, error) {
	if !s.Signs() {
		return nil, &UsageError{Text: "make content ids: no signing key"}
	}
	h := sha256.New()
	write := func(text []byte) {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // never fails
		_, _ = h.Write(text)
	}
	write([]byte("mgmtd content ids 1"))
	write(secret)
	write([]byte(s.ID()))
	if s.Encrypted() {
		for _, r := range slices.Sorted(slices.Values(s.keys.recipientTexts)) {
			write([]byte(r))
		}
	}
	// The signature of a text that nobody else signs or sees is as secret as the key, and the same each time.
	signature, err := s.keys.sign(h.Sum(nil), "content ids")
	if err != nil {
		return nil, fmt.Errorf("make content ids: %w", err)
	}
	write([]byte(signature))
	return &ContentIDs{key: h.Sum(nil)}, nil
}

// Of gives the id of content under a name.
func (c *ContentIDs) Of(name string, content []byte) ContentID {
	h := hmac.New(sha256.New, c.key)
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(name)))) // never fails
	_, _ = h.Write([]byte(name))
	_, _ = h.Write(content)
	return ContentID(h.Sum(nil)[:len(ContentID{})])
}
