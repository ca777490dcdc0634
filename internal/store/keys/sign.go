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
	// signed by a trusted key that has limits, for something outside of them
	Limited Trust = "limited"
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

// Verify returns who signed payload. Of a key with limits it is Limited until Signature.For says
// what the payload is. A signature that claims a trusted key's id and does not fit is an error, not
// UnknownSigner: either the payload or the signature was changed.
func (k *Keys) Verify(payload []byte, signature string) (Signature, error) {
	if signature == "" {
		return Signature{Trust: Unsigned}, nil
	}
	var s minisign.Signature
	if err := s.UnmarshalText([]byte(signature)); err != nil {
		return Signature{}, errors.New("the signature is not a minisign signature")
	}
	id := keyID(s.KeyID)
	if !k.CanTrust() {
		return Signature{Trust: Unchecked, KeyID: id}, nil
	}
	known := false
	for i := range k.trusted {
		key := &k.trusted[i]
		if key.public.ID() != s.KeyID {
			continue
		}
		if minisign.Verify(key.public, payload, []byte(signature)) {
			signed := Signature{Trust: Trusted, KeyID: id, by: key}
			return signed.For(Claim{}), nil
		}
		known = true
	}
	if known {
		return Signature{}, errBadSignature
	}
	return Signature{Trust: UnknownSigner, KeyID: id}, nil
}
