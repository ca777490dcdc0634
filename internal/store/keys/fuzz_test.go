package keys

import (
	"aead.dev/minisign"
	"crypto/rand"
	"errors"
	"filippo.io/age"
	"strings"
	"testing"
)

var errAsked = errors.New("asked for a passphrase")

// FuzzIdentities reads identity files up to where a passphrase would be tried, which takes a second
// by design. What is in them must not be in an error.
func FuzzIdentities(f *testing.F) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	scrypt, err := age.NewScryptRecipient("correct horse")
	if err != nil {
		f.Fatal(err)
	}
	scrypt.SetWorkFactor(1)
	for _, armored := range []bool{false, true} {
		f.Add([]byte(protectWith(f, armored, id.String(), scrypt)))
		f.Add([]byte(protectWith(f, armored, id.String(), id.Recipient())))
	}
	f.Add([]byte("# created: now\n" + id.String() + "\n"))
	f.Add([]byte(strings.ToLower(id.String())))
	f.Add([]byte(id.String()[:40]))
	f.Fuzz(func(t *testing.T, text []byte) {
		if protected(text) {
			plain, err := unprotect("file", text, func(string) (Secret, error) { return nil, errAsked })
			if _, isKey := errors.AsType[*Error](err); plain != nil || !isKey &&
				!errors.Is(err, errAsked) {
				t.Errorf("%q, %v", plain, err)
			}
			return
		}
		k := &Keys{}
		err := k.addIdentities("file", text)
		if (err == nil) != (len(k.identities) > 0) {
			t.Errorf("%d identities, %v", len(k.identities), err)
		}
		if err != nil && err.Error() != "open file: not an age identity file" {
			t.Errorf("error %q", err)
		}
	})
}

// FuzzSigningKeys reads keys of minisign, and what a key signs is what its own public half
// believes.
func FuzzSigningKeys(f *testing.F) {
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, k := range []interface{ MarshalText() ([]byte, error) }{public, private} {
		text, err := k.MarshalText()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("untrusted comment: minisign encrypted secret key\nRWRTY0Iy" +
		strings.Repeat("A", 204) + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := parseTrustedKey("file", text); err == nil {
			again, err := key.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			if second, err := parseTrustedKey("file", again); err != nil || !second.Equal(key) {
				t.Errorf("%q became %q, %v", text, again, err)
			}
		}
		key, err := parseSigningKey("file", text)
		if err != nil {
			return
		}
		// A file whose halves do not belong together signs what nobody believes; it must not seem
		// to be signed.
		k := &Keys{signing: key}
		if own, ok := key.Public().(minisign.PublicKey); ok {
			k.trusted = []trustedKey{{public: own}}
		}
		signature, err := k.Sign([]byte("payload"), "comment")
		if err != nil {
			t.Fatal(err)
		}
		if s, err := k.Verify([]byte("payload"), signature); err == nil && s.Trust != Trusted {
			t.Errorf("its own signature is %s", s.Trust)
		}
	})
}
