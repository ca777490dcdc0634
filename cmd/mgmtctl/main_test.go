package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"mgmtctl": func() {
			os.Exit(Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout,
				os.Stderr))
		},
	})
}

// TestScripts runs the txtar files of testdata: what mgmtctl does where no server is reached.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", Cmds: map[string]func(*testscript.TestScript,
		bool, []string){"exits": exits}})
}

// exits runs mgmtctl inside the test and wants this exit code: "exits 2 snapshot". testscript
// itself reports only success from failure, and a process for each line takes its time. Files need
// their whole path.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: exits CODE [ARG ...]")
	}
	p := &program{
		stdin:  strings.NewReader(""),
		stdout: ts.Stdout(),
		stderr: &console{w: ts.Stderr()},
		getenv: ts.Getenv,
		now:    time.Now,
		serve:  serveStandalone,
	}
	if code := p.run(context.Background(), args[1:]); strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// commands gives every command of mgmtctl that is ours.
func commands(t *testing.T) []*cobra.Command {
	t.Helper()
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		all = append(all, cmd)
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot(&program{stderr: &console{}}))
	return all
}

// TestHelpNamesChangesExitCodesAndExamples compares the help of every command with a golden file,
// and asserts what each help must contain.
func TestHelpNamesChangesExitCodesAndExamples(t *testing.T) {
	for _, cmd := range commands(t) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		t.Run(name, func(t *testing.T) {
			words := strings.TrimPrefix(cmd.CommandPath(), "mgmtctl")
			r := runner{fake: newFake()}.run(t, words+" --help").want(t, 0)
			golden(t, filepath.Join("help", name), r.stdout)
			if r.stderr != "" {
				t.Errorf("stderr: %s", r.stderr)
			}
			for _, line := range strings.Split(r.stdout, "\n") {
				if len([]rune(line)) > 100 {
					t.Errorf("line of %d characters: %s", len(line), line)
				}
			}
			if cmd.HasSubCommands() {
				return
			}
			for _, part := range []string{"Changes: ", "Exit codes: ", "Examples:\n"} {
				if !strings.Contains(r.stdout, part) {
					t.Errorf("help does not have %q", part)
				}
			}
		})
	}
}

// TestFlagsAreAcceptedAnywhere puts the flags of every command before the command, in the middle
// and after it.
func TestFlagsAreAcceptedAnywhere(t *testing.T) {
	for _, line := range []string{
		"--standalone --store /s -o json snapshot list",
		"snapshot --standalone --store=/s -ojson list",
		"snapshot list --store /s --output json --standalone",
	} {
		f := newFake()
		r := runner{fake: f}.run(t, line).want(t, 0)
		want := "{\n  \"snapshots\": [],\n  \"nextPageToken\": \"\"\n}\n"
		if r.stdout != want {
			t.Errorf("%s: stdout %q, want %q", line, r.stdout, want)
		}
		if f.flags.store != "/s" || !f.flags.enabled {
			t.Errorf("%s: flags %+v", line, f.flags)
		}
	}
}

// listenShort listens where a daemon would, in a folder whose name is short enough for a socket.
func listenShort(t *testing.T) (string, net.Listener) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mgmtctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "mgmtd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return dir, listener
}

// TestDaemonHasItsOwnConfig refuses flags that a daemon would ignore.
func TestDaemonHasItsOwnConfig(t *testing.T) {
	dir, listener := listenShort(t)
	f := newFake()
	f.snapshots = testSnapshots()
	serveOn(t, f, listener)
	r := runner{fake: newFake(), getenv: map[string]string{"XDG_RUNTIME_DIR": dir}}

	r.run(t, "snapshot list --store /s").want(t, 2).stderrHas(t, "--store needs --standalone")
	got := r.run(t, "snapshot list").want(t, 0)
	golden(t, "snapshot_list", got.stdout)
}

// TestCatalogFileFollowsXDG follows the XDG rules.
func TestCatalogFileFollowsXDG(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		flag string
		want string
	}{
		{"state folder", map[string]string{"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "",
			"/state/mgmtd/catalog.db"},
		{"no state folder", map[string]string{"HOME": "/home/me"}, "",
			"/home/me/.local/state/mgmtd/catalog.db"},
		{"relative state folder is ignored", map[string]string{"XDG_STATE_HOME": "state",
			"HOME": "/home/me"}, "", "/home/me/.local/state/mgmtd/catalog.db"},
		{"flag", map[string]string{"HOME": "/home/me"}, "c.db", "c.db"},
		{"nothing", nil, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &program{getenv: func(name string) string { return tt.env[name] },
				standalone: standaloneFlags{catalog: tt.flag}}
			got, err := p.catalogFile()
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}
