//go:build !windows

package catalog

import (
	"os"
	"syscall"
)

// unlock gives the lock of a bbolt file up. Closing the file is not enough as long as its memory
// map is there, which bbolt cannot be asked to remove after it panicked.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
