package keys

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"aead.dev/minisign"
	"filippo.io/age"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// redacted is what a secret prints as.
const redacted = "[redacted]"

// Secret is bytes that print as "[redacted]", in logs, with every verb of fmt, and as JSON.
type Secret []byte

// String hides the secret in messages.
func (Secret) String() string { return redacted }

// Format hides the secret from every verb; %x and %#v do not call String.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue hides the secret in logs.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret in JSON and YAML.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Options says where keys are. All are optional: what a Store can do follows from what it is
// given.
type Options struct {
	// Recipients ("age1…") are whom packs and shards are encrypted to; writing to an encrypted
	// store needs one.
	Recipients []string
	// IdentityFiles are age identity files, as age-keygen writes them; reading content needs one
	// that fits.
	IdentityFiles []string
	// Identities are the texts of further identity files, for those that came over the network.
	Identities []Secret
	// SigningKeyFile is a minisign secret key without password ("minisign -G -W"); without it
	// envelopes are not signed.
	SigningKeyFile string
	// TrustedKeyFiles are minisign public keys, or YAML documents with a list of TrustedKeys; without
	// trusted keys signatures are not checked.
	TrustedKeyFiles []string
	// TrustedKeys are minisign public keys with limits.
	TrustedKeys []TrustedKey
}

// Keys are keys ready for use. They print as counts and public parts only. The nil *Keys has none.
type Keys struct {
	recipients []age.Recipient
	// recipientTexts are the recipients as they were given; not all kinds can be asked for their
	// text.
	recipientTexts []string
	identities     []age.Identity
	signing        *minisign.PrivateKey
	trusted        []trustedKey
	own            Limits // of the signing key
}

// Load reads and checks all keys at once, so that a wrong one is found before the work and not
// after it. It returns a *KeyError for an identity that is none, a *UsageError for all else; no
// message holds secret text.
func Load(o Options) (*Keys, error) {
	k := &Keys{}
	if err := k.addRecipients(o.Recipients); err != nil {
		return nil, err
	}
	for _, file := range o.IdentityFiles {
		text, replaceable, err := readPrivate(file, maxIdentityFile)
		if err != nil {
			return nil, &bucket.UsageError{Text: "read identity file", Err: err}
		}
		if err := k.addIdentities(file, text); err != nil {
			return nil, err
		}
		if replaceable != "" {
			return nil, &Error{Object: file, Reason: replaceable, Tip: tipPrivate}
		}
	}
	for _, text := range o.Identities {
		if err := k.addIdentities("given identity", text); err != nil {
			return nil, err
		}
	}
	if o.SigningKeyFile != "" {
		key, err := readSigningKey(o.SigningKeyFile)
		if err != nil {
			return nil, err
		}
		k.signing = key
	}
	for _, file := range o.TrustedKeyFiles {
		if err := k.trustFile(file); err != nil {
			return nil, err
		}
	}
	for _, t := range o.TrustedKeys {
		if err := k.trustLimited(t); err != nil {
			return nil, err
		}
	}
	if k.signing != nil {
		if err := k.trustSelf(); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *Keys) addRecipients(texts []string) error {
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") {
			return &bucket.UsageError{Text: "parse recipient: this is a secret key",
				Tip: "a recipient begins with age1; it is in recipient.txt"}
		}
		parsed, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil || len(parsed) != 1 {
			return &bucket.UsageError{Text: fmt.Sprintf("parse recipient %.80q: not an age recipient", text),
				Tip: "a recipient begins with age1"}
		}
		k.recipients, k.recipientTexts = append(k.recipients, parsed...), append(k.recipientTexts, text)
	}
	if len(k.recipients) == 0 {
		return nil
	}
	// age refuses some mixtures (post-quantum with classic), but only once it encrypts.
	if _, err := age.Encrypt(io.Discard, k.recipients...); err != nil {
		return &bucket.UsageError{Text: "use recipients together", Err: err}
	}
	return nil
}

func (k *Keys) addIdentities(what string, text []byte) error {
	if protected(text) {
		return &Error{Object: what, Reason: "identity file is protected by a passphrase, and " +
			"there is nobody to ask for it",
			Tip:    "decrypt it with age -d, or give it to a command, which asks for the passphrase",
			TipKey: object.HintIdentity}
	}
	// The parser's error is not passed on: it can quote characters of the key.
	identities, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return &Error{Object: what, Reason: "not an age identity file"}
	}
	k.identities = append(k.identities, identities...)
	return nil
}

func readSigningKey(file string) (*minisign.PrivateKey, error) {
	text, replaceable, err := readPrivate(file, maxIdentityFile)
	if err != nil {
		return nil, &bucket.UsageError{Text: "read signing key file", Err: err}
	}
	key, err := parseSigningKey(file, text)
	if err == nil && replaceable != "" {
		return nil, &bucket.UsageError{Text: "read signing key file " + file + ": " + replaceable,
			Tip: tipPrivate}
	}
	return key, err
}

func parseTrustedKey(file string, text []byte) (minisign.PublicKey, error) {
	var key minisign.PublicKey
	if err := key.UnmarshalText(bytes.TrimSpace(text)); err != nil {
		return key, &Error{Object: "trusted key file " + file, Reason: "not a minisign public key",
			Tip: "give signing.pub, not signing.key"}
	}
	return key, nil
}

func parseSigningKey(file string, text []byte) (*minisign.PrivateKey, error) {
	text = bytes.TrimSpace(text)
	if minisign.IsEncrypted(text) {
		return nil, &bucket.UsageError{Text: "read signing key file " + file + ": the key has a password",
			Tip: "use a key without one (minisign -G -W) and guard the file"}
	}
	var key minisign.PrivateKey
	if err := key.UnmarshalText(text); err != nil {
		return nil, &bucket.UsageError{Text: "read signing key file " + file +
			": not a minisign secret key",
			Tip: "give signing.key, not signing.pub"}
	}
	return &key, nil
}

// CanRead reports whether there is an identity; it need not fit.
func (k *Keys) CanRead() bool { return k != nil && len(k.identities) > 0 }

// CanEncrypt reports whether there is a recipient.
func (k *Keys) CanEncrypt() bool { return k != nil && len(k.recipients) > 0 }

// CanSign reports whether there is a signing key.
func (k *Keys) CanSign() bool { return k != nil && k.signing != nil }

// CanTrust reports whether there are trusted keys to check signatures with.
func (k *Keys) CanTrust() bool { return k != nil && len(k.trusted) > 0 }

// String returns how many keys there are and the id of the signing key.
func (k *Keys) String() string {
	if k == nil {
		return "no keys"
	}
	s := fmt.Sprintf("%d recipients, %d identities, %d trusted keys", len(k.recipients),
		len(k.identities), len(k.trusted))
	if k.signing != nil {
		s += ", signing key " + keyID(k.signing.ID())
	}
	return s
}

// Format answers every verb like String: %+v and %#v would print the fields.
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// LogValue logs like String.
func (k *Keys) LogValue() slog.Value { return slog.StringValue(k.String()) }
