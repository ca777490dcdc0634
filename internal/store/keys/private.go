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

// tipPrivate is what to do about a key file that others can write.
const tipPrivate = "take the right to write from others (chmod go-w), and see that it is still " +
	"your key"

// readPrivate reads a file with a private key. replaceable says who else can replace the key; empty
// when nobody can. At most most bytes are read, and one more.
func readPrivate(file string, most int64) (text []byte, replaceable string, err error) {
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
	return text, writable(info), nil
}

// Exposed says who can read or replace a file with a secret, besides its owner and, for reading,
// its group; empty when nobody can. A group may read it: that is how a service gets a file of
// root. What is no file, such as the pipe of a process substitution, is not exposed. Windows has
// no such modes.
//
// A key that everybody can read is a warning and not refused: the files of a Secret volume of
// Kubernetes have mode 0644 unless its defaultMode says otherwise, and in a Pod nobody else is
// there to read them.
func Exposed(info fs.FileInfo) string {
	if text := writable(info); text != "" || runtime.GOOS == "windows" || !info.Mode().IsRegular() {
		return text
	}
	if mode := info.Mode().Perm(); mode&0o004 != 0 {
		return fmt.Sprintf("everybody on this host can read it (mode %04o)", mode)
	}
	return ""
}

// writable says who can replace a file with a secret, besides its owner; empty when nobody can.
func writable(info fs.FileInfo) string {
	if runtime.GOOS == "windows" || !info.Mode().IsRegular() {
		return ""
	}
	switch mode := info.Mode().Perm(); {
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
