package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// reloading returns the state that says that a reload begins. systemd compares its time with that
// of the request for the reload (sd_notify(3)).
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond))
}
