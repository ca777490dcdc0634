package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"aead.dev/minisign"
)

// Trust is what is known of an envelope's signature.
type Trust string

// Levels of trust. A signature that does not fit is none of them but a *CorruptError.
const (
	Trusted Trust = "trusted" // signed by a trusted key
	// signed, by a key that is not among the trusted ones: the signature itself is not checked
	UnknownSigner Trust = "stranger"
	Unsigned      Trust = "unsigned"  // not signed
	Unchecked     Trust = "unchecked" // signed, but no trusted keys were given
)

// keyID formats a minisign key id as minisign does.
func keyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// Sign returns the text of a minisign signature of payload, or "" without a signing key. The same
// payload gives the same text.
func (k *Keys) Sign(payload []byte, comment string) (string, error) {
	if !k.CanSign() {
		return "", nil
	}
	// The pre-hashed form is the one that every version of minisign verifies without an option.
	r := minisign.NewReader(bytes.NewReader(payload))
	if _, err := io.Copy(io.Discard, r); err != nil {
		return "", err
	}
	return string(r.SignWithComments(*k.signing, comment, "signed by mgmtd with key "+
		keyID(k.signing.ID()))), nil
}

var errBadSignature = errors.New("the signature does not fit the payload")

// Verify returns the trust in a signature of payload, and the id of the key that signed. A
// signature that claims a trusted key's id and does not fit is an error, not UnknownSigner: either
// the payload or the signature was changed.
func (k *Keys) Verify(payload []byte, signature string) (Trust, string, error) {
	if signature == "" {
		return Unsigned, "", nil
	}
	var s minisign.Signature
	if err := s.UnmarshalText([]byte(signature)); err != nil {
		return "", "", errors.New("the signature is not a minisign signature")
	}
	id := keyID(s.KeyID)
	if !k.CanTrust() {
		return Unchecked, id, nil
	}
	known := false
	for _, key := range k.trusted {
		if key.ID() != s.KeyID {
			continue
		}
		if minisign.Verify(key, payload, []byte(signature)) {
			return Trusted, id, nil
		}
		known = true
	}
	if known {
		return "", "", errBadSignature
	}
	return UnknownSigner, id, nil
}
