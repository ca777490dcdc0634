package keys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"aead.dev/minisign"
	"filippo.io/age"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Names of the files that Generate writes.
const (
	IdentityFile   = "identity.txt"
	RecipientFile  = "recipient.txt"
	SigningFile    = "signing.key"
	SigningPubFile = "signing.pub"
)

// Generated is the public half of what Generate made.
type Generated struct {
	Recipient    string // age1…
	SigningKeyID string // as minisign prints it
}

// Generate makes a new age identity and a new signing key in dir, which is created when it is
// missing, and syncs them to disk. A passphrase that is not empty protects identity.txt, as of
// "age-keygen | age -p -a". It refuses to replace any of the four files and then writes none, so it
// does not run twice. Errors are *bucket.UsageError for a file that exists, else of the file
// system.
//
// The identity is X25519, not post-quantum: an old host's age tool must open a snapshot, too.
func Generate(dir string, now time.Time, passphrase Secret) (Generated, error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return Generated{}, fmt.Errorf("make identity: %w", err)
	}
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		return Generated{}, fmt.Errorf("make signing key: %w", err)
	}
	privateText, err := private.MarshalText()
	if err != nil {
		return Generated{}, fmt.Errorf("make signing key: %w", err)
	}
	publicText, err := public.MarshalText()
	if err != nil {
		return Generated{}, fmt.Errorf("make signing key: %w", err)
	}
	g := Generated{Recipient: identity.Recipient().String(), SigningKeyID: keyID(public.ID())}
	identityText := fmt.Sprintf("# created: %s\n# public key: %s\n%s\n", now.Format(time.RFC3339),
		g.Recipient, identity)
	if len(passphrase) > 0 {
		if identityText, err = protect(identityText, passphrase); err != nil {
			return Generated{}, err
		}
	}
	err = writeKeyFiles(dir, []keyFile{
		{IdentityFile, identityText, 0o600},
		{RecipientFile, g.Recipient + "\n", 0o644},
		{SigningFile, string(privateText) + "\n", 0o600},
		{SigningPubFile, string(publicText) + "\n", 0o644},
	})
	if err != nil {
		return Generated{}, err
	}
	return g, nil
}

type keyFile struct {
	name string
	text string
	mode fs.FileMode
}

// writeKeyFiles writes all or none.
func writeKeyFiles(dir string, files []keyFile) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err == nil {
		err = checkFolder(dir, info)
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := root.Lstat(f.name); err == nil {
			return keyExists(dir, f.name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make keys: %w", err)
		}
	}
	var written []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range written {
			err = errors.Join(err, root.Remove(name))
		}
	}()
	for _, f := range files {
		out, err := root.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
		if errors.Is(err, fs.ErrExist) {
			return keyExists(dir, f.name)
		}
		if err != nil {
			return fmt.Errorf("write key: %w", err)
		}
		written = append(written, f.name)
		_, err = out.WriteString(f.text)
		if err == nil {
			err = out.Sync()
		}
		if err := errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("write key %s: %w", f.name, err)
		}
	}
	entries, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	if err := errors.Join(entries.Sync(), entries.Close()); err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	return nil
}

func keyExists(dir, name string) error {
	return &bucket.UsageError{Text: "write " + filepath.Join(dir, name) +
		": the file exists, no key was written", Tip: "choose another folder",
		TipKey: object.HintKeyFolder}
}
