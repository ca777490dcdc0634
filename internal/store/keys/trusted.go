package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"aead.dev/minisign"
	"sigs.k8s.io/yaml"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// TrustedKey is a minisign public key in a file, and for what it counts.
type TrustedKey struct {
	File string `json:"file"`
	Limits
}

// TrustDigest identifies the trusted keys with their limits: with the same digest the same
// documents are trusted.
func (k *Keys) TrustDigest() string {
	var list []TrustedKey
	if k.CanTrust() {
		for _, t := range k.trusted {
			list = append(list, TrustedKey{File: t.public.String(), Limits: t.limits})
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // text and numbers
	}
	return layout.SHA256Hex(text)
}

const tipLimits = "docs/keys.md has an example"

// trustedKey is a TrustedKey that was read.
type trustedKey struct {
	public minisign.PublicKey
	limits Limits
}

// trustedKeysFile is a file of keys with limits.
type trustedKeysFile struct {
	TrustedKeys []TrustedKey `json:"trustedKeys"`
}

// trustFile reads a file of --trusted-key: a public key, or a YAML document that names several with
// their limits. Files in it are relative to its folder.
func (k *Keys) trustFile(file string) error {
	text, err := readTrusted(file)
	if err != nil {
		return err
	}
	key, err := parseTrustedKey(file, text)
	if err == nil {
		return k.trust(file, trustedKey{public: key})
	}
	if !bytes.Contains(text, []byte("trustedKeys")) {
		return err
	}
	var list trustedKeysFile
	if err := errors.Join(yaml.UnmarshalStrict(text, &list), refuseNull(text)); err != nil {
		return &bucket.UsageError{Text: "read trusted keys of " + file, Err: err, Tip: tipLimits}
	}
	if len(list.TrustedKeys) == 0 {
		return &bucket.UsageError{Text: "read trusted keys of " + file + ": it names none",
			Tip: tipLimits}
	}
	for _, t := range list.TrustedKeys {
		if t.File != "" && !filepath.IsAbs(t.File) {
			t.File = filepath.Join(filepath.Dir(file), t.File)
		}
		if err := k.trustLimited(t); err != nil {
			return err
		}
	}
	return nil
}

// refuseNull returns an error when a field of a trusted key has no value. "lastTrusted:" with an
// empty line below means that nothing is trusted any more; as the null that YAML makes of it, it
// would be no limit at all.
func refuseNull(text []byte) error {
	var file struct {
		TrustedKeys []map[string]json.RawMessage `json:"trustedKeys"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil //nolint:nilerr // the strict parser has reported it
	}
	var empty []error
	for _, key := range file.TrustedKeys {
		for _, field := range slices.Sorted(maps.Keys(key)) {
			if string(key[field]) == "null" {
				empty = append(empty, fmt.Errorf("%s has no value: leave the field out for no limit, or "+
					"write lastTrusted: [] to trust nothing", field))
			}
		}
	}
	return errors.Join(empty...)
}

// trustLimited adds a key with limits.
func (k *Keys) trustLimited(t TrustedKey) error {
	if err := t.validate(); err != nil {
		return &bucket.UsageError{Text: "read limits of trusted key " + t.File, Err: err,
			Tip: tipLimits}
	}
	text, err := readTrusted(t.File)
	if err != nil {
		return err
	}
	key, err := parseTrustedKey(t.File, text)
	if err != nil {
		return err
	}
	return k.trust(t.File, trustedKey{public: key, limits: t.Limits})
}

func readTrusted(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, &Error{Object: "trusted key file", Reason: err.Error(),
			Tip: "give the path of signing.pub", TipKey: object.HintTrustedKey}
	}
	return text, nil
}

// trust adds a key. A key with limits is named once: a second entry without them would lift them.
func (k *Keys) trust(file string, t trustedKey) error {
	for _, other := range k.trusted {
		if other.public.Equal(t.public) && (other.limits.any() || t.limits.any()) {
			return &bucket.UsageError{Text: fmt.Sprintf("trusted key file %s: key %s has limits, and is "+
				"named more than once", file, keyID(t.public.ID())),
				Tip: "name it once, with its limits"}
		}
	}
	k.trusted = append(k.trusted, t)
	return nil
}

// trustSelf adds the public half of the signing key: who signs trusts himself, within the limits
// that were given for that key.
func (k *Keys) trustSelf() error {
	public, ok := k.signing.Public().(minisign.PublicKey)
	if !ok {
		return nil
	}
	for _, t := range k.trusted {
		if !t.public.Equal(public) {
			continue
		}
		if t.limits.LastTrusted != nil {
			return &bucket.UsageError{Text: "sign with key " + keyID(public.ID()) +
				": it has lastTrusted, so that nothing it signs is trusted",
				Tip: "make a new key and sign with that one"}
		}
		k.own = t.limits
		return nil
	}
	k.trusted = append(k.trusted, trustedKey{public: public})
	return nil
}

// MaySign returns a *bucket.UsageError when the signing key has limits because of which readers do
// not trust what it signs with a claim.
func (k *Keys) MaySign(c Claim) error {
	if !k.CanSign() {
		return nil
	}
	why, _ := k.own.refuse(c)
	if why == "" {
		return nil
	}
	return &bucket.UsageError{Text: fmt.Sprintf("sign %s: the signing key is %s, %s",
		c.Purpose.documents(), keyID(k.signing.ID()), why),
		Tip: "use another signing key, or change the limits of this one in the trusted keys of all " +
			"who read"}
}

// LastTrusted returns the snapshots that the limits of stolen keys name.
func (k *Keys) LastTrusted() (all []LastTrusted) {
	if k == nil {
		return nil
	}
	for _, t := range k.trusted {
		all = append(all, t.limits.LastTrusted...)
	}
	return all
}

// Signs reports whether there is a signing key that is trusted for the documents of a purpose, of
// some source at least.
func (k *Keys) Signs(p Purpose) bool {
	c := Claim{Purpose: p}
	if p.bySource() && k != nil {
		c.Sources = k.own.Sources
	}
	return k.CanSign() && k.MaySign(c) == nil
}

// SigningKeyID returns the id of the signing key as a Signature has it; empty without one.
func (k *Keys) SigningKeyID() string {
	if !k.CanSign() {
		return ""
	}
	return keyID(k.signing.ID())
}

// validate returns what is wrong with limits.
func (t *TrustedKey) validate() error {
	if t.File == "" {
		return errors.New("file is missing")
	}
	if t.Sources != nil && len(t.Sources) == 0 || t.Purposes != nil && len(t.Purposes) == 0 {
		return errors.New("an empty list of sources or purposes: leave it out for no limit")
	}
	for _, source := range t.Sources {
		if !layout.ValidSource(source) {
			return fmt.Errorf("source %.40q is not a UID", source)
		}
	}
	for _, p := range t.Purposes {
		if !slices.Contains(Purposes(), p) {
			return fmt.Errorf("purpose %.40q is none of %s", string(p), joinPurposes())
		}
		if len(t.Sources) > 0 && !p.bySource() {
			return fmt.Errorf("a key with sources is never trusted for %s: they are about other "+
				"management clusters, too", p.documents())
		}
	}
	for _, l := range t.LastTrusted {
		switch {
		case !layout.ValidSource(l.Source):
			return fmt.Errorf("lastTrusted: source %.40q is not a UID", l.Source)
		case len(t.Sources) > 0 && !slices.Contains(t.Sources, l.Source):
			return fmt.Errorf("lastTrusted: source %.128s is not among the sources of the key", l.Source)
		case l.Sequence < 1:
			return errors.New("lastTrusted: sequence is less than 1")
		case !layout.IsHex(l.Hash, 64):
			return errors.New("lastTrusted: hash is not 64 lower-case hex digits")
		}
	}
	return nil
}

func joinPurposes() string {
	var all []string
	for _, p := range Purposes() {
		all = append(all, string(p))
	}
	return strings.Join(all, ", ")
}
