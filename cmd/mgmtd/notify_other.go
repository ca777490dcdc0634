//go:build !linux

package main

// reloading returns the state that says that a reload begins. Only Linux has systemd.
func reloading() string { return "RELOADING=1" }
