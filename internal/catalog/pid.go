package catalog

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// pidPath is the file to which the holder of a catalog's lock writes its process id. The lock
// itself does not name its holder.
func pidPath(path string) string { return path + ".pid" }

// writePID writes the id of this process; call it with the lock held. Other processes read it for
// messages only. When it cannot be written (a full disk, from which the operator may want to read
// the catalog right now), writePID removes the old file: a wrong id is worse than none.
func writePID(path string) {
	temporary := pidPath(path) + ".new"
	err := os.WriteFile(temporary, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	if err == nil {
		// The rename is atomic: a reader never sees half a number.
		err = os.Rename(temporary, pidPath(path))
	}
	if err != nil {
		_ = os.Remove(temporary)
		removePID(path)
	}
}

func removePID(path string) { _ = os.Remove(pidPath(path)) }

// holder returns the id of the process that holds the catalog, 0 when it is unknown or that process
// has ended.
func holder(path string) int {
	text, err := os.ReadFile(pidPath(path))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 || !alive(pid) {
		return 0
	}
	return pid
}

// alive reports whether a process exists. A process of another user exists too, although it must
// not be signalled.
func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = process.Release() }()
	err = process.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}
