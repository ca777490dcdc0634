package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

func TestGenerateWritesWhatAgeAndMinisignRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "keys")
	g, err := Generate(dir, testTime, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{IdentityFile: 0o600, SigningFile: 0o600,
		RecipientFile: 0o644, SigningPubFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode()&^0o044 != mode&^0o044 || info.Mode()&0o077&^mode != 0 {
			t.Errorf("%s: %v, %v, want %v", name, info, err, mode)
		}
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	identity := read(IdentityFile)
	if !strings.HasPrefix(identity, "# created: 2026-01-02T03:04:05Z\n# public key: "+g.Recipient+
		"\nAGE-SECRET-KEY-1") {
		t.Error("identity.txt is not as age-keygen writes it")
	}
	ids, err := age.ParseIdentities(strings.NewReader(identity))
	if err != nil || len(ids) != 1 ||
		ids[0].(*age.X25519Identity).Recipient().String() != g.Recipient {
		t.Errorf("age reads identity.txt as %d identities, %v", len(ids), err)
	}
	if read(RecipientFile) != g.Recipient+"\n" {
		t.Error("recipient.txt is not the recipient")
	}
	private, err := os.ReadFile(filepath.Join(dir, SigningFile))
	if err != nil {
		t.Fatal(err)
	}
	var key minisign.PrivateKey
	if err := key.UnmarshalText(bytes.TrimSpace(private)); err != nil {
		t.Fatal(err)
	}
	public, err := minisign.PublicKeyFromFile(filepath.Join(dir, SigningPubFile))
	if err != nil {
		t.Fatal(err)
	}
	if !minisign.Verify(public, []byte("m"), minisign.Sign(key, []byte("m"))) ||
		keyID(public.ID()) != g.SigningKeyID {
		t.Error("signing.key and signing.pub do not belong together")
	}
}

func TestGenerateNeverReplacesAFile(t *testing.T) {
	for _, name := range []string{IdentityFile, RecipientFile, SigningFile, SigningPubFile} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Generate(dir, testTime, nil)
			if u, ok := errors.AsType[*bucket.UsageError](err); !ok || !strings.Contains(u.Error(), name) {
				t.Errorf("error %v, want *UsageError that names the file", err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 {
				t.Errorf("files after a refusal: %v, %v", entries, err)
			}
			if data, _ := os.ReadFile(filepath.Join(dir, name)); string(data) != "mine" {
				t.Error("the file was replaced")
			}
		})
	}
}

func TestLoadRefusesWrongKeysWithoutQuotingThem(t *testing.T) {
	good := testKeys(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	identity, err := os.ReadFile(good.IdentityFiles[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.ToLower(identity[:len(identity)-3])
	encryptedKey := "untrusted comment: minisign encrypted secret key\nRWRTY0Iy" +
		strings.Repeat("A", 204) + "\n"
	type class int
	const (
		usage class = iota
		key
	)
	tests := []struct {
		name string
		o    Options
		want class
		text string
	}{
		{"recipient is junk", Options{Recipients: []string{"me@example.com"}}, usage,
			"not an age recipient"},
		{"recipient is empty", Options{Recipients: []string{""}}, usage, "not an age recipient"},
		{"recipient is an identity", Options{Recipients: []string{hybrid.String()}}, usage,
			"secret key"},
		{"recipients that do not go together", Options{Recipients: []string{good.Recipients[0],
			hybrid.Recipient().String()}}, usage, "together"},
		{"identity file missing", Options{IdentityFiles: []string{filepath.Join(dir, "none")}}, usage,
			"no such file"},
		{"identity file is a recipient",
			Options{IdentityFiles: []string{write("r", good.Recipients[0])}}, key, "not an age identity"},
		{"identity file is damaged", Options{IdentityFiles: []string{write("d", string(damaged))}},
			key, "not an age identity"},
		{"identity file has a passphrase",
			Options{IdentityFiles: []string{write("p", "age-encryption.org/v1\n-> scrypt")}}, key,
			"passphrase"},
		{"identity file has a passphrase, armored",
			Options{IdentityFiles: []string{write("pa", "-----BEGIN AGE ENCRYPTED FILE-----\n")}}, key,
			"passphrase"},
		{"given identity is empty", Options{Identities: []Secret{nil}}, key, "given identity"},
		{"signing key missing", Options{SigningKeyFile: filepath.Join(dir, "none")}, usage,
			"no such file"},
		{"signing key has a password", Options{SigningKeyFile: write("s", encryptedKey)}, usage,
			"password"},
		{"signing key is the public one", Options{SigningKeyFile: good.TrustedKeyFiles[0]}, usage,
			"not a minisign secret key"},
		{"trusted key is the secret one", Options{TrustedKeyFiles: []string{good.SigningKeyFile}}, key,
			"not a minisign public key"},
		{"trusted key missing", Options{TrustedKeyFiles: []string{filepath.Join(dir, "none")}}, key,
			"no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(tt.o)
			_, isKey := errors.AsType[*Error](err)
			_, isUsage := errors.AsType[*bucket.UsageError](err)
			if tt.want == key && !isKey || tt.want == usage && !isUsage ||
				!strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
			if strings.Contains(strings.ToUpper(fmt.Sprint(err)), "AGE-SECRET-KEY-") {
				t.Errorf("the error holds secret text: %v", err)
			}
		})
	}
}

func TestEncryptsToEveryKindOfIdentity(t *testing.T) {
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	classic, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string][2]string{"X25519": {classic.Recipient().String(),
		classic.String()}, "post-quantum": {hybrid.Recipient().String(), hybrid.String()}} {
		t.Run(name, func(t *testing.T) {
			keys := mustLoad(t, Options{Recipients: []string{id[0]},
				Identities: []Secret{Secret("# comment\n" + id[1] + "\n")}})
			var stored bytes.Buffer
			w, err := keys.Encrypt(&stored)
			if err == nil {
				_, err = w.Write([]byte("{}"))
			}
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			r, err := keys.Decrypt("shards/x", &stored)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != "{}" {
				t.Errorf("decrypted: %q, %v", got, err)
			}
		})
	}
}

// protectWith makes a file that is encrypted to recipients, as age does.
func protectWith(t testing.TB, armored bool, text string, recipients ...age.Recipient) string {
	t.Helper()
	var out bytes.Buffer
	var to io.WriteCloser = nopCloser{&out}
	if armored {
		to = armor.NewWriter(&out)
	}
	w, err := age.Encrypt(to, recipients...)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err := errors.Join(err, w.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// TestReadIdentitiesAsksForNoMorePassphrasesThanItNeeds: it reads identity files of all kinds,
// several at once.
func TestReadIdentitiesAsksForNoMorePassphrasesThanItNeeds(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var identities []*age.X25519Identity
	for range 3 {
		id, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		identities = append(identities, id)
	}
	const passphrase = "correct horse"
	scrypt, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		t.Fatal(err)
	}
	scrypt.SetWorkFactor(4)
	tooMuch := strings.Replace(protectWith(t, false, "x", scrypt), " 4\n", " 23\n", 1)
	both := fmt.Sprintf("# mine\n%s\n\n# and another\n%s\n", identities[0], identities[1])
	open, single := write("both", both), write("single", identities[2].String())
	binary, armored := write("binary", protectWith(t, false, both, scrypt)),
		write("armored", "\n"+protectWith(t, true, both, scrypt))
	tests := []struct {
		name  string
		files []string
		asked int
		want  int // identities; 0 for an error
		text  string
	}{
		{"none", nil, 0, 0, ""},
		{"one file", []string{single}, 0, 1, ""},
		{"two files without a newline at the end", []string{single, open}, 0, 3, ""},
		{"protected", []string{binary}, 1, 2, ""},
		{"protected and armored", []string{armored, single}, 1, 3, ""},
		{"missing", []string{filepath.Join(dir, "none")}, 0, 0, "no such file"},
		{"empty", []string{write("empty", "")}, 0, 0, "not an age identity file"},
		{"a signing key", []string{testKeys(t).SigningKeyFile}, 0, 0, "not an age identity file"},
		{"too large", []string{write("large", strings.Repeat("#", maxIdentityFile+1))}, 0, 0,
			"too large"},
		{"encrypted to a key", []string{write("key", protectWith(t, false, both,
			identities[2].Recipient()))}, 0, 0, "encrypted to keys"},
		{"more work than is reasonable", []string{write("work", tooMuch)}, 1, 0, "work factor too large"},
		{"no identity inside", []string{write("inside", protectWith(t, false, "hello", scrypt))}, 1, 0,
			"not an age identity file"},
		{"header only", []string{write("header", "age-encryption.org/v1\n-> scrypt")}, 0, 0,
			"not an age identity file"},
		{"armor only", []string{write("armor", "-----BEGIN AGE ENCRYPTED FILE-----\n")}, 0, 0,
			"not an age identity file"},
		{"cut", []string{write("cut", protectWith(t, false, both, scrypt)[:200])}, 1, 0, "damaged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			text, err := ReadIdentities(tt.files, func(string) (Secret, error) {
				asked++
				return Secret(passphrase), nil
			}, nil)
			if asked != tt.asked {
				t.Errorf("asked %d times, want %d", asked, tt.asked)
			}
			if tt.text != "" {
				if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), tt.text) ||
					strings.Contains(err.Error(), "AGE-SECRET") {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == 0 {
				if text != nil {
					t.Errorf("%d bytes of nothing", len(text))
				}
				return
			}
			if got := len(mustLoad(t, Options{Identities: []Secret{text}}).identities); got != tt.want {
				t.Errorf("%d identities, want %d", got, tt.want)
			}
		})
	}
	wrong := func(string) (Secret, error) { return Secret("tr0ub4dor"), nil }
	if _, err := ReadIdentities([]string{armored}, wrong, nil); err == nil ||
		!strings.Contains(err.Error(), "the passphrase is wrong") ||
		strings.Contains(err.Error(), "tr0ub4dor") {
		t.Errorf("wrong passphrase: %v", err)
	}
}

// TestProtectedIdentityNeedsItsPassphrase: a protected identity is refused without its passphrase,
// and works like any other with it.
func TestProtectedIdentityNeedsItsPassphrase(t *testing.T) {
	dir := t.TempDir()
	g, err := Generate(dir, testTime, Secret("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, IdentityFile)
	text, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(text, []byte(armor.Header)) ||
		bytes.Contains(text, []byte("AGE-SECRET")) {
		t.Errorf("identity.txt: %.100s, %v", text, err)
	}
	if _, err := Load(Options{IdentityFiles: []string{file}}); err == nil ||
		!strings.Contains(err.Error(), "protected by a passphrase") {
		t.Errorf("loaded without a passphrase: %v", err)
	}
	opened, err := ReadIdentities([]string{file},
		func(string) (Secret, error) { return Secret("correct horse"), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := age.ParseIdentities(bytes.NewReader(opened))
	if err != nil || len(ids) != 1 ||
		ids[0].(*age.X25519Identity).Recipient().String() != g.Recipient {
		t.Errorf("%d identities, %v", len(ids), err)
	}
}
