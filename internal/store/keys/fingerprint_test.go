package keys

import (
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
)

// TestFingerprintIsTheBeginningOfTheHashOfARecipient, as "printf %s age1test | sha256sum" prints
// it.
func TestFingerprintIsTheBeginningOfTheHashOfARecipient(t *testing.T) {
	const want = "e26e05244910d7ee"
	if got := Fingerprint("age1test"); got != want {
		t.Errorf("fingerprint %s, want %s", got, want)
	}
}

func TestIdentityHasTheFingerprintOfItsRecipient(t *testing.T) {
	classic, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]string{
		"X25519":       {classic.Recipient().String(), classic.String()},
		"of a file":    {"# ours\n" + classic.Recipient().String() + "\n", classic.String()},
		"post-quantum": {hybrid.Recipient().String(), hybrid.String()},
	} {
		k, err := Load(Options{Recipients: []string{pair[0], pair[0]},
			Identities: []Secret{Secret(pair[1] + "\n")}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines := strings.Split(strings.TrimSpace(pair[0]), "\n")
		want := []string{Fingerprint(lines[len(lines)-1])}
		if got := k.RecipientFingerprints(); !slices.Equal(got, want) {
			t.Errorf("%s: recipients %v, want %v", name, got, want)
		}
		if got := k.IdentityFingerprints(); !slices.Equal(got, want) {
			t.Errorf("%s: identities %v, want %v", name, got, want)
		}
	}
	var none *Keys
	if none.RecipientFingerprints() != nil || none.IdentityFingerprints() != nil {
		t.Error("no keys have fingerprints")
	}
}
