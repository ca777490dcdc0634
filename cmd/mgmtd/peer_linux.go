package main

import (
	"errors"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mgmtd/mgmtd/internal/service/access"
)

// peersKnown: this system says in which groups the process at the other end of a socket is.
const peersKnown = true

// peerOf returns the process that has connected to a socket, as it was then. The kernel knows its
// groups, so that neither a directory service nor /etc/group is asked, and a process that has given
// up a group does not have its role.
func peerOf(conn *net.UnixConn) (access.User, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return access.User{}, err
	}
	var u access.User
	var peerErr error
	if err := raw.Control(func(fd uintptr) { u, peerErr = peerOfSocket(int(fd)) }); err != nil {
		return access.User{}, err
	}
	return u, peerErr
}

func peerOfSocket(fd int) (access.User, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return access.User{}, err
	}
	groups, err := peerGroups(fd)
	return access.User{UID: cred.Uid, PID: cred.Pid, Groups: append(groups, cred.Gid)}, err
}

// maxGroups is how many groups a process may have (NGROUPS_MAX of Linux).
const maxGroups = 65536

// peerGroups reads SO_PEERGROUPS (Linux 4.13), for which golang.org/x/sys has no function. The
// kernel says how many there are when there is too little room.
func peerGroups(fd int) ([]uint32, error) {
	for room := 64; room <= maxGroups; {
		groups := make([]uint32, room)
		size := uint32(room * 4)
		//nolint:gosec // the kernel writes size bytes at most, and groups has room for them
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET,
			unix.SO_PEERGROUPS, uintptr(unsafe.Pointer(&groups[0])),
			uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno != unix.ERANGE || int(size/4) <= room:
			return nil, errno
		}
		room = int(size / 4)
	}
	return nil, errors.New("the process is in too many groups")
}
