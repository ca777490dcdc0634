//go:build !windows

package catalog

import (
	"os"
	"syscall"
)

// unlock releases the lock of a bbolt file. Closing the file does not release it while its memory
// map exists, and bbolt cannot remove the map after a panic.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
