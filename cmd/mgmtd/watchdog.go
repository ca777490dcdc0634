package main

import (
	"context"
	"os"
	"strconv"
	"time"
)

// watchdogInterval returns how often systemd expects to hear of this process; 0 for never. The
// unit sets it with WatchdogSec= (sd_watchdog_enabled(3)).
func watchdogInterval(getenv func(string) string) time.Duration {
	usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0 // it is for another process, which passed its environment on
	}
	return time.Duration(usec) * time.Microsecond
}

// watchdog tells systemd twice in each interval that the daemon works, until ctx ends. It asks
// alive before. When that does not return, because of a lock that nobody unlocks or a catalog that
// does not answer, systemd hears nothing, ends the process and starts it again.
func (m *Main) watchdog(ctx context.Context, alive func(context.Context) error) {
	if m.Watchdog <= 0 {
		return
	}
	tick := time.NewTicker(m.Watchdog / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := alive(ctx); err == nil {
			m.notify("WATCHDOG=1")
		} else if ctx.Err() == nil {
			m.Log.Error("the daemon does not work: systemd is not told that it does", "error", err)
		}
	}
}
