//go:build unix

package directory

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lock takes the exclusive lock of an open file. It tries again and again instead of waiting in the
// kernel, so that ctx ends it.
func lock(ctx context.Context, f *os.File) error {
	const pause = 2 * time.Millisecond // a holder is done after three fsyncs
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
