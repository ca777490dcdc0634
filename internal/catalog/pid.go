package catalog

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// pidPath is where the holder of a catalog's lock leaves its process id. The lock itself cannot be
// asked who holds it.
func pidPath(path string) string { return path + ".pid" }

// writePID leaves the id of this process for others to name; call it with the lock held. The file
// is for messages only: where it cannot be written (a full disk, from which the operator may want
// to read the catalog right now), the old one is removed, for a wrong name is worse than none.
func writePID(path string) {
	temporary := pidPath(path) + ".new"
	err := os.WriteFile(temporary, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	if err == nil {
		// Renamed, so that nobody reads half a number.
		err = os.Rename(temporary, pidPath(path))
	}
	if err != nil {
		_ = os.Remove(temporary)
		removePID(path)
	}
}

func removePID(path string) { _ = os.Remove(pidPath(path)) }

// holder returns the id of the process that left it beside the catalog, 0 when there is none or
// that process is gone.
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

// alive reports whether a process exists; another user's does too, though it may not be signalled.
func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = process.Release() }()
	err = process.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}
