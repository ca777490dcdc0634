package service

import "golang.org/x/sys/unix"

// restrictSocket sets the mode that bind gives to the file: that of the socket without the umask
// (Linux, net/unix/af_unix.c, unix_bind_bsd).
func restrictSocket(fd uintptr) error { return unix.Fchmod(int(fd), uint32(socketMode)) }

func restrictPath(string) error { return nil }
