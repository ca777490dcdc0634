package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// runDaemon runs the program until use returns, and returns what it wrote to stderr.
func runDaemon(t *testing.T, dir string, use func(*grpc.ClientConn), args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	signals := make(chan os.Signal, 1)
	done := make(chan int, 1)
	go func() {
		done <- run(t.Context(), append([]string{"--config", filepath.Join(dir, "mgmtd.yaml")}, args...),
			io.Discard, &stderr, signals)
	}()
	use(dial(t, "unix:"+filepath.Join(dir, "s"), insecure.NewCredentials()))
	signals <- syscall.SIGTERM
	if code := <-done; code != 0 {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
	return stderr.String()
}

// pauseWhenReady waits for the daemon, and sends a request that is audited.
func pauseWhenReady(t *testing.T) func(*grpc.ClientConn) {
	return func(conn *grpc.ClientConn) {
		_, err := mgmtv1.NewScheduleServiceClient(conn).PauseSchedule(t.Context(),
			&mgmtv1.PauseScheduleRequest{Name: "nightly"}, grpc.WaitForReady(true))
		if err != nil {
			t.Error(err)
		}
	}
}

// TestADaemonThatIsStoppedWhileItBeginsEndsWell: it answers before it has begun everything.
func TestADaemonThatIsStoppedWhileItBeginsEndsWell(t *testing.T) {
	dir := setup(t, "{unix: s}")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	if code := run(ctx, []string{"--config", filepath.Join(dir, "mgmtd.yaml")}, io.Discard, &stderr,
		make(chan os.Signal)); code != 0 {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

func TestTheAuditLogDoesNotDependOnTheLevelOfTheLog(t *testing.T) {
	text := runDaemon(t, setup(t, "{unix: s}"), pauseWhenReady(t), "--log-level", "error")
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=INFO msg=audit "+
		"method=PauseSchedule decision=allowed caller=") ||
		!strings.Contains(text, "request.name=nightly outcome=OK") {
		t.Errorf("log:\n%s", text)
	}
}

func TestTheAuditLogHasAFileOfItsOwn(t *testing.T) {
	dir := setup(t, "{unix: s}\n  auditLog: audit.log")
	for range 2 { // a restart appends
		if text := runDaemon(t, dir, pauseWhenReady(t)); strings.Contains(text, "audit") {
			t.Errorf("log:\n%s", text)
		}
	}
	path := filepath.Join(dir, "audit.log")
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), `"msg":"audit","method":"PauseSchedule"`) != 2 ||
		strings.Count(string(text), "\n") != 2 {
		t.Errorf("audit log, %v:\n%s", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestAnAuditLogThatCannotBeOpenedEndsTheDaemon(t *testing.T) {
	dir := setup(t, "{unix: s}\n  auditLog: none/audit.log")
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"--config", filepath.Join(dir, "mgmtd.yaml")}, io.Discard, &stderr,
		nil); code != 2 || !strings.Contains(stderr.String(), "open spec.auditLog: ") {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

// TestALineThatTheAuditLogDoesNotTakeIsInTheLog: a full disk must neither end a restore nor hide
// who began it.
func TestALineThatTheAuditLogDoesNotTakeIsInTheLog(t *testing.T) {
	var stderr bytes.Buffer
	l, err := newLogs(flags{logLevel: "error", logFormat: "text"}, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.openAudit(filepath.Join(t.TempDir(), "audit.log")); err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l.audit.Info("audit", slog.String("caller", "cn:dr"))
	if text := stderr.String(); !strings.Contains(text, `msg="write audit log"`) ||
		!strings.Contains(text, "cn:dr") {
		t.Errorf("log:\n%s", text)
	}
}

// TestRequestsBesideTheCatalogAreAudited: the socket beside the catalog is for a second mgmtctl of
// the same user, and changes operations as the other one does.
func TestRequestsBesideTheCatalogAreAudited(t *testing.T) {
	dir := setup(t, "{unix: s}")
	var lines bytes.Buffer
	var catalogFile string
	daemon := start(t, dir, func(m *Main) {
		m.Audit = slog.New(slog.NewTextHandler(&lines, nil))
		catalogFile = m.Config.Service.CatalogFile
	})
	conn := dial(t, "unix:"+catalogFile+".sock", insecure.NewCredentials())
	_, err := mgmtv1.NewOperationServiceClient(conn).StopOperation(t.Context(),
		&mgmtv1.StopOperationRequest{Id: "01kzz"})
	if err == nil {
		t.Error("an operation that is not there was stopped")
	}
	if err := daemon.stop(); err != nil {
		t.Fatal(err)
	}
	if text := lines.String(); !strings.Contains(text, "method=StopOperation decision=allowed") ||
		!strings.Contains(text, "uid="+strconv.Itoa(os.Getuid())) {
		t.Errorf("audit log: %s", text)
	}
}
