package keys

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// tipPrivate is what to do about a key file that others can read.
const tipPrivate = "make it readable by its owner alone (chmod 600), or by a group at most; in a " +
	"Secret volume of Kubernetes set defaultMode: 0440; then make a new key if somebody may have " +
	"read it"

// readPrivate reads a file with a private key. exposed says who else can read or replace the key;
// empty when nobody can. At most most bytes are read, and one more.
func readPrivate(file string, most int64) (text []byte, exposed string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, most+1))
	}
	if err != nil {
		return nil, "", err
	}
	return text, Exposed(info), nil
}

// Exposed says who can read or replace a file with a secret, besides its owner and, for reading,
// its group; empty when nobody can. A group may read it: that is how a service gets a file of
// root. What is no file, such as the pipe of a process substitution, is not exposed. Windows has
// no such modes.
func Exposed(info fs.FileInfo) string {
	if runtime.GOOS == "windows" || !info.Mode().IsRegular() {
		return ""
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o004 != 0:
		return fmt.Sprintf("everybody on this host can read it (mode %04o)", mode)
	case mode&0o002 != 0:
		return fmt.Sprintf("everybody on this host can write it (mode %04o)", mode)
	case mode&0o020 != 0:
		return fmt.Sprintf("its group can write it (mode %04o)", mode)
	}
	return ""
}

// checkFolder returns an error for a folder in which others can replace the key files: whoever
// does so with signing.pub is trusted.
func checkFolder(dir string, info fs.FileInfo) error {
	const others = 0o022
	if runtime.GOOS == "windows" || info.Mode().Perm()&others == 0 ||
		info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	return &bucket.UsageError{Text: fmt.Sprintf("write keys into %s: others can replace files there "+
		"(mode %04o), no key was written", dir, info.Mode().Perm()),
		Tip:    "choose another folder, or take the right to write from others (chmod go-w)",
		TipKey: object.HintKeyFolder}
}
