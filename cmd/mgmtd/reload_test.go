package main

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mgmtd/mgmtd/internal/service/access"
)

// edit replaces text in the configuration; pairs are old and new.
func edit(t *testing.T, dir string, pairs ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "mgmtd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(text), pairs[i]) {
			t.Fatalf("the configuration lacks %s", pairs[i])
		}
	}
	write(t, dir, "mgmtd.yaml", strings.NewReplacer(pairs...).Replace(string(text)))
}

// lines is a log that tests read while a daemon writes it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // holds one after a line
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the log contains a text.
func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.more:
		case <-t.Context().Done():
			t.Fatalf("the log lacks %q:\n%s", text, l)
		}
	}
}

// reloadable prepares a daemon for reload, with a log.
func reloadable(dir string, log *lines) func(*Main) {
	return func(m *Main) {
		m.File, m.Log = filepath.Join(dir, "mgmtd.yaml"), slog.New(slog.NewTextHandler(log, nil))
	}
}

// watch opens a stream that lasts as long as its connection, which it returns.
func watch(t *testing.T, m *Main, conn *grpc.ClientConn, name string) (
	grpc.ServerStreamingClient[healthv1.HealthCheckResponse], *session) {
	t.Helper()
	stream, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	for s := range m.sessions.open {
		if s.caller.String() == "cn:"+name {
			return stream, s
		}
	}
	t.Fatalf("no connection of %s", name)
	return nil, nil
}

func TestAReloadTakesRolesAwayAtOnce(t *testing.T) {
	o := serveTCP(t, `[{name: "cn:gone", role: admin}, {name: "cn:less", role: admin}, `+
		`{name: "cn:same", role: view}, {name: "cn:more", role: view}]`)
	o.main.File = filepath.Join(filepath.Dir(o.main.Config.Listen.Unix), "mgmtd.yaml")
	type client struct {
		conn    *grpc.ClientConn
		stream  grpc.ServerStreamingClient[healthv1.HealthCheckResponse]
		session *session
	}
	clients := map[string]client{}
	for _, name := range []string{"gone", "less", "same", "more"} {
		conn := o.as(name)
		stream, session := watch(t, o.main, conn, name)
		clients[name] = client{conn, stream, session}
	}
	edit(t, filepath.Dir(o.main.File), `{name: "cn:gone", role: admin}, {name: "cn:less", role: admin}`,
		`{name: "cn:less", role: view}`, `{name: "cn:more", role: view}`,
		`{name: "cn:more", role: operate}`)
	o.main.reload()
	for name, ends := range map[string]bool{"gone": true, "less": true, "same": false, "more": false} {
		ended := clients[name].session.valid()
		if (ended != nil) != ends {
			t.Errorf("connection of %s: %v", name, ended)
		}
		if ends && ended != nil {
			_, err := clients[name].stream.Recv()
			if status.Code(err) != codes.Unavailable {
				t.Errorf("stream of %s: %v", name, err)
			}
		}
		conn := clients[name].conn
		if e := deniedAs(listOperations(t.Context(), conn)); (e != nil) != (name == "gone") {
			t.Errorf("%s lists: %v", name, e)
		}
		if e := deniedAs(pauseSchedule(t.Context(), conn)); (e != nil) != (name != "more") {
			t.Errorf("%s pauses: %v", name, e)
		}
	}
}

// TestARoleThatAGroupLosesEndsItsConnections: the groups of a connection are those of its start.
func TestARoleThatAGroupLosesEndsItsConnections(t *testing.T) {
	group := func(role access.Role) *access.Rules {
		return &access.Rules{UID: 990, Groups: []access.Group{{Name: "sre", GID: 20, Role: role}}}
	}
	m := &Main{sessions: newSessions(), guard: access.NewGuard(group(access.Restore),
		slog.New(slog.DiscardHandler))}
	open := func(u access.User) *session {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = near.Close() })
		return m.sessions.add(far, far, access.Caller{User: &u}, nil)
	}
	member, own := open(access.User{UID: 1000, Groups: []uint32{20}}), open(access.User{UID: 990})
	for _, step := range []struct {
		role access.Role
		want int
	}{{access.Restore, 0}, {access.Admin, 0}, {access.View, 1}} {
		if ended := m.setRules(group(step.role)); ended != step.want {
			t.Errorf("%s: %d connections ended", step.role, ended)
		}
	}
	if member.valid() == nil || own.valid() != nil {
		t.Errorf("member: %v, user of mgmtd: %v", member.valid(), own.valid())
	}
}

func TestAReloadOpensAndClosesTheSocket(t *testing.T) {
	own := os.Getegid()
	dir := setup(t, "{unix: s, groups: []}")
	s := start(t, dir, reloadable(dir, newLines()))
	before := "groups: []"
	for _, step := range []struct {
		groups string
		mode   os.FileMode
	}{
		{fmt.Sprintf(`groups: [{name: "%d", role: view}]`, own), 0o660},
		{fmt.Sprintf(`groups: [{name: "%d", role: view}, {name: "%d", role: view}]`, own, own+1), 0o666},
		{"groups: []", 0o600},
	} {
		edit(t, dir, before, step.groups)
		before = step.groups
		s.main.reload()
		info, err := os.Stat(filepath.Join(dir, "s"))
		if err != nil || info.Mode().Perm() != step.mode {
			t.Errorf("%s: %v, %v", step.groups, info.Mode(), err)
		}
	}
}

func TestAnInvalidFileChangesNothing(t *testing.T) {
	log := newLines()
	o := serveTCP(t, `[{name: "cn:ops", role: operate}]`, func(m *Main) {
		m.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	dir := filepath.Dir(o.main.Config.Listen.Unix)
	o.main.File = filepath.Join(dir, "mgmtd.yaml")
	conn := o.as("ops")
	_, session := watch(t, o.main, conn, "ops")
	success := func() string {
		return regexp.MustCompile(`(?m)^mgmtd_config_last_reload_success_timestamp_seconds (.*)$`).
			FindString(get(t, o.started, "/metrics"))
	}
	began := success()
	edit(t, dir, `{name: "cn:ops", role: operate}`, "", "plain: true", "plain: maybe")
	o.main.reload()
	if err := errors.Join(session.valid(), pauseSchedule(t.Context(), conn)); err != nil {
		t.Error(err)
	}
	var stderr bytes.Buffer
	run(t.Context(), []string{"--config", o.main.File, "--check"}, io.Discard, &stderr, nil)
	problem := "line 6: Config: spec.plain: got a string, want true or false"
	if !strings.Contains(stderr.String(), problem) || !strings.Contains(log.String(), problem) ||
		strings.Count(log.String(), "level=ERROR") != 1 || strings.Contains(log.String(), "reloaded\"") {
		t.Errorf("--check:\n%s\nlog:\n%s", &stderr, log)
	}
	if text := get(t, o.started, "/metrics"); began == "" || success() != began ||
		!strings.Contains(text, "\nmgmtd_config_last_reload_successful 0\n") {
		t.Errorf("metrics after an invalid file: %q, %q", began, success())
	}
	edit(t, dir, "plain: maybe", "plain: true")
	o.main.reload()
	if text := get(t, o.started, "/metrics"); success() == began ||
		!strings.Contains(text, "\nmgmtd_config_last_reload_successful 1\n") {
		t.Errorf("metrics after a valid file: %q, %q", began, success())
	}
	if deniedAs(pauseSchedule(t.Context(), conn)) == nil {
		t.Error("a valid file is not applied")
	}
}

// TestWhatCannotBeAppliedDoesNotKeepARole: the audit log is on a full disk, for example.
func TestWhatCannotBeAppliedDoesNotKeepARole(t *testing.T) {
	o := serveTCP(t, "[{name: \"cn:ops\", role: operate}]}\n  auditLog: audit.log #", func(m *Main) {
		m.ReopenAudit = func(string) error { return errors.New("no space") }
	})
	dir := filepath.Dir(o.main.Config.Listen.Unix)
	o.main.File = filepath.Join(dir, "mgmtd.yaml")
	_, session := watch(t, o.main, o.as("ops"), "ops")
	edit(t, dir, `{name: "cn:ops", role: operate}`, "")
	o.main.reload()
	if session.valid() == nil {
		t.Error("the connection goes on")
	}
	if text := get(t, o.started, "/metrics"); !strings.Contains(text,
		"\nmgmtd_config_last_reload_successful 0\n") {
		t.Error("the reload counts as successful")
	}
}

func TestAReloadReadsOtherCertificateFiles(t *testing.T) {
	o := serveTCP(t, `[{name: "cn:ops", role: view}]`)
	dir := filepath.Dir(o.main.Config.Listen.Unix)
	o.main.File = filepath.Join(dir, "mgmtd.yaml")
	_, session := watch(t, o.main, o.as("ops"), "ops")
	other := newAuthority(t)
	other.files(t, dir, "other")
	write(t, dir, "other-ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: other.cert.Raw})))
	edit(t, dir, "server.crt", "other.crt", "server.key", "other.key", "ca.crt", "other-ca.crt")
	o.main.reload()
	if session.valid() == nil {
		t.Error("a connection of the authority before goes on")
	}
	conn := dial(t, "passthrough:///"+o.tcp.String(), credentials.NewTLS(&tls.Config{
		RootCAs: other.pool(), ServerName: "localhost", Certificates: other.client(t, "ops")}))
	if err := listOperations(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

// TestAReloadReadsCertificatesThatSeemUnchanged: a copy may have the time of the file before.
func TestAReloadReadsCertificatesThatSeemUnchanged(t *testing.T) {
	o := serveTCP(t, `[{name: "cn:ops", role: view}]`)
	dir := filepath.Dir(o.main.Config.Listen.Unix)
	o.main.File = filepath.Join(dir, "mgmtd.yaml")
	_, session := watch(t, o.main, o.as("ops"), "ops")
	info, err := os.Stat(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	writeCA(t, dir, newAuthority(t))
	if err := os.Chtimes(filepath.Join(dir, "ca.crt"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	o.main.reload()
	if session.valid() == nil {
		t.Error("a connection of the authority before goes on")
	}
}

func TestAReloadNamesTheFieldsThatNeedARestart(t *testing.T) {
	dir, log := setup(t, "{unix: s, groups: []}"), newLines()
	s := start(t, dir, reloadable(dir, log))
	edit(t, dir, "groups: []", `groups: [{name: "20", role: view}, {name: "21", role: view}]`,
		"  metrics", "  retention: {keepLast: 3}\n  auditLog: audit.log\n  metrics", "0 3 * * *",
		"0 4 * * *")
	for range 2 { // until the restart
		s.main.reload()
	}
	for _, field := range []string{"Config: spec.auditLog", "Config: spec.retention.keepLast",
		`Schedule \"nightly\": spec.schedule`} {
		if strings.Count(log.String(),
			`level=WARN msg="changed field needs a restart of mgmtd" field="`+field+`"`) != 2 {
			t.Errorf("the log does not name %s twice:\n%s", field, log)
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 6 {
		t.Errorf("%d warnings:\n%s", n, log)
	}
}

func TestHangupReloadsAndTermEndsTheDaemon(t *testing.T) {
	dir, log := setup(t, "{unix: s}\n  auditLog: audit.log"), newLines()
	signals := make(chan os.Signal, 3)
	done := make(chan int, 1)
	go func() {
		done <- run(t.Context(), []string{"--config", filepath.Join(dir, "mgmtd.yaml")}, io.Discard,
			log, signals)
	}()
	conn := dial(t, "unix:"+filepath.Join(dir, "s"), insecure.NewCredentials())
	audit := filepath.Join(dir, "audit.log")
	// A rotation moves the file away. It goes on in a new one, also when the configuration is invalid,
	// and then in one of another name.
	for i, step := range []struct{ old, text, file, says string }{
		{"plain: true", "plain: true", "audit.log", "configuration reloaded"},
		{"plain: true", "plain: maybe", "audit.log", "nothing has changed"},
		{"plain: maybe", "plain: true #", "audit.log", "configuration reloaded"},
		{"auditLog: audit.log", "auditLog: other.log", "other.log", "configuration reloaded"},
	} {
		pauseWhenReady(t)(conn)
		if err := os.Rename(audit, fmt.Sprint(audit, i)); err != nil {
			t.Fatal(err)
		}
		edit(t, dir, step.old, step.text)
		log.mu.Lock()
		log.text.Reset()
		log.mu.Unlock()
		signals <- syscall.SIGHUP
		log.await(t, step.says)
		pauseWhenReady(t)(conn)
		text, err := os.ReadFile(filepath.Join(dir, step.file))
		if err != nil || strings.Count(string(text), "PauseSchedule") != 1 {
			t.Errorf("step %d: audit log, %v:\n%s", i, err, text)
		}
	}
	if text := log.String(); strings.Contains(text, "restart") {
		t.Errorf("log:\n%s", text)
	}
	signals <- syscall.SIGTERM
	if code := <-done; code != 0 {
		t.Errorf("exit code %d: %s", code, log)
	}
}

func TestAReloadTellsSystemd(t *testing.T) {
	dir := setup(t, "{unix: s}")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"),
		Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := start(t, dir, reloadable(dir, newLines()), func(m *Main) {
		m.NotifySocket = filepath.Join(dir, "notify")
	})
	buf := make([]byte, 128)
	expect := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			n, err := conn.Read(buf)
			if err != nil || !regexp.MustCompile("^"+want+"$").Match(buf[:n]) {
				t.Errorf("%q, %v, want %s", buf[:n], err, want)
			}
		}
	}
	expect("READY=1")
	s.main.reload()
	expect(`RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*`, "READY=1")
	write(t, dir, "mgmtd.yaml", "invalid")
	s.main.reload()
	expect(`RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*`, "READY=1")
}
