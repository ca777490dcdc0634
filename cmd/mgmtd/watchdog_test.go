package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestWatchdogIsNotToldWhenTheDaemonHangs: while alive does not return, systemd hears nothing.
func TestWatchdogIsNotToldWhenTheDaemonHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := &Main{Log: slog.New(slog.DiscardHandler), NotifySocket: path, Watchdog: 2 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	hangs, done := make(chan struct{}), make(chan struct{})
	asked := 0
	go func() {
		defer close(done)
		m.watchdog(ctx, func(ctx context.Context) error {
			if asked++; asked == 3 {
				close(hangs)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
	}()
	<-hangs
	cancel()
	<-done
	m.notify("END")
	data := make([]byte, 64)
	for i, want := range []string{"WATCHDOG=1", "WATCHDOG=1", "END"} {
		n, err := conn.Read(data)
		if err != nil || string(data[:n]) != want {
			t.Errorf("message %d: %q, %v, want %s", i, data[:n], err, want)
		}
	}
}

func TestWatchdogIntervalIsForThisProcessOnly(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		usec, pid string
		want      time.Duration
	}{{"", "", 0}, {"60000000", "", time.Minute}, {"60000000", self, time.Minute},
		{"60000000", "1", 0}, {"x", self, 0}, {"-1", self, 0}} {
		env := map[string]string{"WATCHDOG_USEC": tt.usec, "WATCHDOG_PID": tt.pid}
		if got := watchdogInterval(func(key string) string { return env[key] }); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
