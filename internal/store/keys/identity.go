package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// maxIdentityFile is more than any file of identities has; what is larger is something else.
const maxIdentityFile = 1 << 20

const tipIdentity = "give the identity.txt that was made with the recipient, or another age " +
	"identity file of a recipient of the snapshots"

const ageIntro = "age-encryption.org/"

// ReadIdentities reads identity files and gives their text as one, which LoadKeys takes as one of
// its Identities. A file that is protected by a passphrase (as "age -p" makes it) is opened with
// what ask gives for it; the text is no longer protected then, and never written anywhere. Nothing
// is asked for a file that is not. exposed, unless it is nil, is called for each file without a
// passphrase that everybody can read (Exposed). Errors are *KeyError, or those of ask; none holds
// secret text.
func ReadIdentities(files []string, ask func(file string) (Secret, error),
	exposed func(file, who string)) (Secret, error) {
	var all Secret
	for _, file := range files {
		text, replaceable, err := readIdentityFile(file)
		if err != nil {
			return nil, err
		}
		isProtected := protected(text)
		if isProtected {
			replaceable = "" // the passphrase is what protects it
			if text, err = unprotect(file, text, ask); err != nil {
				return nil, err
			}
		}
		if err := (&Keys{}).addIdentities(file, text); err != nil {
			return nil, err
		}
		if replaceable != "" {
			return nil, &Error{Object: file, Reason: replaceable, Tip: tipPrivate}
		}
		if info, err := os.Stat(file); err == nil && !isProtected && exposed != nil &&
			Exposed(info) != "" {
			exposed(file, Exposed(info))
		}
		all = append(append(all, text...), '\n')
	}
	return all, nil
}

// readIdentityFile reads a file, and says who can replace it that should not (readPrivate).
func readIdentityFile(file string) (text []byte, replaceable string, err error) {
	text, replaceable, err = readPrivate(file, maxIdentityFile)
	switch {
	case err != nil:
		return nil, "", &Error{Object: "identity file", Reason: err.Error(), Tip: tipIdentity,
			TipKey: object.HintIdentity}
	case len(text) > maxIdentityFile:
		return nil, "", &Error{Object: file, Reason: "not an age identity file: it is too large"}
	}
	return text, replaceable, nil
}

// protected reports whether a file is encrypted, in either form of age.
func protected(text []byte) bool {
	text = bytes.TrimSpace(text)
	return bytes.HasPrefix(text, []byte(ageIntro)) || bytes.HasPrefix(text, []byte(armor.Header))
}

// unprotect decrypts an identity file. The work of trying a passphrase is bounded by age (scrypt
// with 2^22, some seconds and 4 GiB): a hostile file is refused.
func unprotect(file string, text []byte, ask func(file string) (Secret, error)) ([]byte, error) {
	bad := func(reason string) ([]byte, error) { return nil, &Error{Object: file, Reason: reason} }
	var sealed io.Reader = bytes.NewReader(text)
	if trimmed := bytes.TrimSpace(text); bytes.HasPrefix(trimmed, []byte(armor.Header)) {
		plain, err := io.ReadAll(armor.NewReader(bytes.NewReader(trimmed)))
		if err != nil {
			return bad("not an age identity file: " + err.Error())
		}
		sealed, text = bytes.NewReader(plain), plain
	}
	header, err := age.ExtractHeader(bytes.NewReader(text))
	if err != nil {
		return bad("not an age identity file: " + err.Error())
	}
	if !bytes.Contains(header, []byte("\n-> scrypt ")) {
		return bad("it is encrypted to keys, not protected by a passphrase; decrypt it with age first")
	}
	passphrase, err := ask(file)
	if err != nil {
		return nil, err
	}
	key, err := age.NewScryptIdentity(string(passphrase))
	if err != nil {
		return bad("the passphrase is empty")
	}
	plain, err := age.Decrypt(sealed, key)
	if errors.Is(err, age.ErrIncorrectIdentity) {
		return nil, &Error{Object: file, Reason: "the passphrase is wrong",
			Tip: "give the passphrase that this identity file was protected with"}
	}
	if err != nil {
		return bad("damaged: " + err.Error())
	}
	identities, err := io.ReadAll(io.LimitReader(plain, maxIdentityFile))
	if err != nil {
		return bad("damaged: " + err.Error())
	}
	return identities, nil
}

// protect encrypts the text of an identity file as "age -p -a" does.
func protect(text string, passphrase Secret) (string, error) {
	recipient, err := age.NewScryptRecipient(string(passphrase))
	if err != nil {
		return "", &bucket.UsageError{Text: "protect identity: the passphrase is empty"}
	}
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	w, err := age.Encrypt(armored, recipient)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = armored.Close()
	}
	if err != nil {
		return "", fmt.Errorf("protect identity: %w", err)
	}
	return out.String(), nil
}
