//go:build !linux

package service

import "os"

func restrictSocket(uintptr) error { return nil }

// restrictPath closes the socket after the fact: no other system lets us do it before.
func restrictPath(path string) error { return os.Chmod(path, socketMode) }
