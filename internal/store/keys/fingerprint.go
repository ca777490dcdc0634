package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"filippo.io/age"
)

// FingerprintDigits is the length of a fingerprint. 64 bits tell the recipients of a store apart;
// nothing is trusted because of a fingerprint.
const FingerprintDigits = 16

// Fingerprint returns the fingerprint of a recipient: the beginning of the SHA-256 of its text
// ("age1…"). The files of age do not name the recipients that they are encrypted to.
func Fingerprint(recipient string) string {
	sum := sha256.Sum256([]byte(recipient))
	return hex.EncodeToString(sum[:])[:FingerprintDigits]
}

// RecipientFingerprints returns the fingerprints of the recipients, sorted.
func (k *Keys) RecipientFingerprints() []string {
	if k == nil {
		return nil
	}
	var list []string
	for i, r := range k.recipients {
		text := k.recipientTexts[i]
		if s, ok := r.(fmt.Stringer); ok {
			text = s.String() // what was given may have a comment
		}
		list = append(list, Fingerprint(text))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// IdentityFingerprints returns the fingerprints of the recipients that belong to the identities,
// sorted.
func (k *Keys) IdentityFingerprints() []string {
	if k == nil {
		return nil
	}
	var list []string
	for _, i := range k.identities {
		switch i := i.(type) {
		case *age.X25519Identity:
			list = append(list, Fingerprint(i.Recipient().String()))
		case *age.HybridIdentity:
			list = append(list, Fingerprint(i.Recipient().String()))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
