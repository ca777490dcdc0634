package service

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// ListenSocket makes a unix socket at a path where nothing is. From its first moment only our user
// can open it, whatever the umask is: there is no time in which somebody else could connect.
func ListenSocket(ctx context.Context, path string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if controlErr := c.Control(func(fd uintptr) { err = restrictSocket(fd) }); controlErr != nil {
			return controlErr
		}
		return err
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := restrictPath(path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// socketMode is the mode of a new socket.
const socketMode os.FileMode = 0o600
