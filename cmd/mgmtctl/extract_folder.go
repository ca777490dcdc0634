package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	// clusterFolder has the cluster-scoped objects. No namespace has a name that begins so.
	clusterFolder = "_cluster"
	// maxFileName is the longest name of a file or a folder. File systems take 255 bytes, an object
	// has a name of up to 253, and what is escaped is longer.
	maxFileName = 200
)

// folder writes objects to files. Their names come from a snapshot, which is untrusted input
// (invariant I8): none leaves the folder, and no two objects share a file, also where the file
// system takes upper and lower case for the same.
type folder struct {
	extractFlags
	root  *os.Root          // nil until there is something to write
	taken map[string]string // by path in lower case, the object that has it
}

// newFolder checks that a folder is missing, or empty unless files may be overwritten. It makes
// nothing.
func newFolder(to extractFlags) (*folder, error) {
	f := &folder{extractFlags: to, taken: map[string]string{}}
	dir, err := os.Open(to.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, &service.Error{Reason: service.ReasonUsage, Message: "open --out: " + err.Error()}
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	switch {
	case errors.Is(err, io.EOF):
		return f, nil
	case err != nil:
		return nil, &service.Error{Reason: service.ReasonUsage, Message: "read --out: " + err.Error()}
	case !to.overwrite:
		return nil, &service.Error{Reason: service.ReasonUsage, Message: fmt.Sprintf("the folder %s is "+
			"not empty", to.dir), Hint: "name another one, or give --overwrite"}
	}
	return f, nil
}

func (f *folder) close() error {
	if f.root == nil {
		return nil
	}
	return f.root.Close()
}

func (f *folder) put(o *mgmtv1.ExtractedObject) error {
	text, err := extractedText(o, f.as)
	if err != nil {
		return err
	}
	if err := f.open(); err != nil {
		return fmt.Errorf("write %s: %w", refText(o.GetRef()), err)
	}
	name, err := f.place(o.GetRef())
	if err != nil {
		return err
	}
	if err := f.write(name, text); err != nil {
		return fmt.Errorf("write %s: %w", refText(o.GetRef()), err)
	}
	return nil
}

// open makes the folder, if it is missing.
func (f *folder) open() (err error) {
	if f.root != nil {
		return nil
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	f.root, err = os.OpenRoot(f.dir)
	return err
}

// place returns the path of an object's file, which no other object has.
func (f *folder) place(r *mgmtv1.Ref) (string, error) {
	if r.GetKind() == "" || r.GetName() == "" {
		return "", fmt.Errorf("write object: the answer does not name it")
	}
	namespace := clusterFolder
	if r.GetNamespace() != "" {
		namespace = fileName(r.GetNamespace())
	}
	stem := path.Join(namespace, fileName(kindText(r)), fileName(r.GetName()))
	suffix := "." + string(f.as)
	for _, name := range []string{stem + suffix, stem + mark(refText(r)) + suffix} {
		switch folded := strings.ToLower(name); f.taken[folded] {
		case "":
			f.taken[folded] = refText(r)
			return name, nil
		case refText(r):
			return "", fmt.Errorf("write %s: the answer has it twice", refText(r))
		}
	}
	return "", fmt.Errorf("write %s: two other objects have the name of its file", refText(r))
}

// mark distinguishes names that would be the same otherwise.
func mark(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "~" + hex.EncodeToString(sum[:6])
}

// deviceName fits the names that Windows keeps for devices, with any suffix.
var deviceName = regexp.MustCompile(`^(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)

// fileName returns a name for a file or a folder. Letters, digits, dots, "-" and "_" stay; the
// first character is a letter or a digit, and not that of a device.
func fileName(name string) string {
	var out strings.Builder
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if i == 0 && letter && !deviceName.MatchString(name) ||
			i > 0 && (letter || c == '.' || c == '-' || c == '_') {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	if out.Len() <= maxFileName {
		return out.String()
	}
	cut := mark(name)
	return out.String()[:maxFileName-len(cut)] + cut
}

// write writes a file that only its owner may read. One that is there goes first: written over, it
// would keep its mode, and its bytes in the places that links name.
func (f *folder) write(name string, text []byte) (err error) {
	if err := f.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	if f.overwrite {
		if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, f.root.Remove(name)) // half of an object is none
	}
	return nil
}
