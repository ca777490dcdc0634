package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/config"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// setup writes a configuration that is whole and returns its folder. listen replaces what comes
// after "listen: ".
func setup(t *testing.T, listen string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mgmtd") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write(t, dir, "kubeconfig",
		`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]}`)
	write(t, dir, "mgmtd.yaml", `apiVersion: mgmtd.dev/v1alpha1
kind: Config
spec:
  managementClusters: [{name: prod, kubeconfigFile: kubeconfig}]
  catalog: catalog.db
  plain: true
  listen: `+listen+`
  metrics: 127.0.0.1:0
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: disk}
spec: {provider: mgmtd.dev/directory, config: {path: snapshots}}
---
apiVersion: velero.io/v1
kind: Schedule
metadata: {name: nightly}
spec: {schedule: "0 3 * * *", skipImmediately: true, template: {}}
`)
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// started is a daemon that serves.
type started struct {
	main         *Main
	tcp, metrics net.Addr
	stop         func() error
}

// start starts a daemon; also changes it before.
func start(t *testing.T, dir string, also ...func(*Main)) started {
	t.Helper()
	cfg, err := config.Load(filepath.Join(dir, "mgmtd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan started, 1), make(chan error, 1)
	m := &Main{Config: cfg, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Audit: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test"}
	m.Ready = func(tcp, metrics net.Addr) { ready <- started{main: m, tcp: tcp, metrics: metrics} }
	for _, change := range also {
		change(m)
	}
	go func() { done <- m.Run(ctx) }()
	select {
	case s := <-ready:
		stopped := false
		s.stop = func() error {
			if stopped {
				return nil
			}
			stopped = true
			cancel()
			return <-done
		}
		t.Cleanup(func() {
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		})
		return s
	case err := <-done:
		cancel()
		t.Fatal(err)
		return started{}
	}
}

func dial(t *testing.T, target string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(c), // a daemon may be starting
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute,
			Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, MaxDelay: 5 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestSocketOfADeadProcessIsReplaced(t *testing.T) {
	dir := setup(t, "{unix: s}")
	socket := filepath.Join(dir, "s")
	// A dead process left one.
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	s := start(t, dir)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	conn := dial(t, "unix:"+socket, insecure.NewCredentials())
	list, err := mgmtv1.NewScheduleServiceClient(conn).ListSchedules(t.Context(),
		&mgmtv1.ListSchedulesRequest{})
	if err != nil || len(list.GetSchedules()) != 1 || list.GetSchedules()[0].GetNextTime() == nil ||
		list.GetSchedules()[0].GetLastTime() != nil {
		t.Errorf("schedules: %v, %v", list, err)
	}
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", health, err)
	}
	paused, err := mgmtv1.NewScheduleServiceClient(conn).PauseSchedule(t.Context(),
		&mgmtv1.PauseScheduleRequest{Name: "nightly"})
	if err != nil || !paused.GetSchedule().GetPaused() {
		t.Errorf("pause: %v, %v", paused, err)
	}
	_, err = mgmtv1.NewScheduleServiceClient(conn).RunSchedule(t.Context(),
		&mgmtv1.RunScheduleRequest{Name: "nightly"})
	if e := service.FromStatus(err); e == nil || e.Reason != service.ReasonUnreachable {
		t.Errorf("run: %v", err)
	}
	text := get(t, s, "/metrics")
	for _, want := range []string{`mgmtd_build_info{version="test"} 1`,
		`mgmtd_backup_failure_total{schedule="nightly"} 1`,
		`mgmtd_backup_last_status{schedule="nightly"} 0`,
		`mgmtd_schedule_overdue_seconds{schedule="nightly"} 0`,
		`mgmtd_schedule_skipped_total{schedule="nightly"} 0`,
		`mgmtd_schedule_clock_went_back_total{schedule="nightly"} 0`,
		`mgmtd_operations_running{operation="move"} 0`, "mgmtd_restore_attempt_total 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if got := get(t, s, "/healthz"); got != "ok\n" {
		t.Errorf("healthz: %q", got)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	// The pause outlives the daemon.
	start(t, dir)
	list, err = mgmtv1.NewScheduleServiceClient(conn).ListSchedules(t.Context(),
		&mgmtv1.ListSchedulesRequest{}, grpc.WaitForReady(true))
	if err != nil || !list.GetSchedules()[0].GetPaused() ||
		list.GetSchedules()[0].GetLastError() == "" {
		t.Errorf("schedules after a restart: %v, %v", list, err)
	}
}

func get(t *testing.T, s started, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + s.metrics.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSecondDaemonNamesTheFirst: of two daemons with one catalog, or one socket, the second
// reports who has it.
func TestSecondDaemonNamesTheFirst(t *testing.T) {
	dir := setup(t, "{unix: s}")
	start(t, dir)
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"--config", filepath.Join(dir, "mgmtd.yaml")}, io.Discard,
		&stderr, nil); code != service.ExitHeld ||
		!strings.Contains(stderr.String(), fmt.Sprint(os.Getpid())) {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "mgmtd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "other.yaml", strings.Replace(string(text), "catalog.db", "other.db", 1))
	stderr.Reset()
	if code := run(t.Context(), []string{"--config", filepath.Join(dir, "other.yaml")}, io.Discard,
		&stderr, nil); code != service.ExitHeld ||
		!strings.Contains(stderr.String(), "another process answers") {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

func TestCommandLineErrorsSayWhatToDo(t *testing.T) {
	dir := setup(t, "{unix: s}")
	write(t, dir, "bad.yaml", "apiVersion: mgmtd.dev/v1alpha1\nkind: Config\nspec: {plain: maybe}\n")
	for _, test := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"--config " + dir + "/mgmtd.yaml --check", 0, "nothing is wrong: 1 management clusters, 1 " +
			"storage locations, 1 schedules", ""},
		{"--config " + dir + "/bad.yaml --check", 2, "", "bad.yaml: line 3: Config: spec.plain: got a " +
			"string, want true or false"},
		{"--config " + dir + "/none.yaml", 2, "", "none.yaml"},
		{"", 2, "", "--config is missing"},
		{"x", 2, "", `takes no argument, got "x"`},
		{"--nope", 2, "", "unknown flag"},
		{"--config x --log-level loud", 2, "", "--log-level"},
		{"--config x --log-format xml", 2, "", "--log-format"},
		{"--version", 0, "mgmtd ", ""},
		{"--help", 0, "Signals:", ""},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr, nil)
		if code != test.code || !strings.Contains(stdout.String(), test.stdout) ||
			!strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("mgmtd %s: exit code %d\n%s%s", test.args, code, &stdout, &stderr)
		}
	}
}

func TestNotifyReportsReadyToSystemd(t *testing.T) {
	dir := setup(t, "{unix: s}")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"),
		Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := &Main{Log: slog.New(slog.DiscardHandler), NotifySocket: filepath.Join(dir, "notify")}
	m.notify("READY=1")
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}
