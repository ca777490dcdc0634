package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/mgmtd/mgmtd/internal/service"
)

// listenUnix makes a socket that only our user can open. It removes the socket of a dead process,
// but neither a socket that answers nor a file that is no socket.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, &service.Error{Reason: service.ReasonUsage, Message: path +
			" is there and is no socket", Hint: "name another path in spec.listen.unix, or move it away"}
	default:
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
		if err == nil {
			_ = conn.Close()
			return nil, &service.Error{Reason: service.ReasonLocked, Message: "another process answers at " +
				path, Hint: "stop it, or name another path in spec.listen.unix"}
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket of a dead process: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// notify sends a state to systemd, in its protocol of one datagram. An error is ignored: the daemon
// runs without systemd as well.
func (m *Main) notify(state string) {
	if m.NotifySocket == "" {
		return
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unixgram", m.NotifySocket)
	if err == nil {
		_, err = conn.Write([]byte(state))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		m.Log.Warn("notify systemd", "state", state, "error", err)
	}
}
