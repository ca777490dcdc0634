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
	"github.com/mgmtd/mgmtd/internal/service/access"
)

// listenUnix makes the socket of the API. It removes the socket of a dead process, but neither a
// socket that answers nor a file that is no socket.
func listenUnix(ctx context.Context, path string, groups []access.Group) (net.Listener, error) {
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
	l, err := service.ListenSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := openSocketTo(path, groups); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// openSocketTo lets the members of groups connect to a socket. With one group it belongs to that
// group. A socket has no more than one, so that with several everybody may connect. Who may do what
// is decided by the groups of the process that connects, in any case.
func openSocketTo(path string, groups []access.Group) error {
	if len(groups) > 0 && !peersKnown {
		return &service.Error{Reason: service.ReasonUsage, Message: "spec.listen.groups needs Linux: " +
			"no other system says in which groups the process at the other end is",
			Hint: "remove it, or serve TCP with client certificates"}
	}
	switch len(groups) {
	case 0:
		return os.Chmod(path, 0o600)
	case 1:
		if err := os.Lchown(path, -1, int(groups[0].GID)); err != nil {
			return &service.Error{Reason: service.ReasonUsage, Message: fmt.Sprintf("give the socket to "+
				"group %s: %v", groups[0].Name, err), Hint: "make the user of mgmtd a member of the group, " +
				"with SupplementaryGroups= in its unit for example"}
		}
		return os.Chmod(path, 0o660) //nolint:gosec // for the group
	default:
		return os.Chmod(path, 0o666) //nolint:gosec // for several groups
	}
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
