package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
)

// mostMemory is how many bytes mgmtctl may use at most, whatever is in the store.
const mostMemory = 600 << 20

// damageRow is one damaged store. What is wrong with a key is found at every level and without an
// identity; damage inside is found by the levels that open the packs.
type damageRow struct {
	name   string
	damage func(d *damaged)
	runs   []run
}

// run is one command on a damaged store, and its result.
type run struct {
	command string
	exit    int
	text    string // regular expression on what it prints
}

// damageCommands are the commands of the table. All have the store and a catalog of their own;
// those that can also have the identity and the trusted key.
var damageCommands = map[string][]string{
	"list":      {"snapshot", "list"},
	"show":      {"snapshot", "show", "LAST", "IDENTITY"},
	"structure": {"snapshot", "verify", "LAST"},
	"sample":    {"snapshot", "verify", "LAST", "--level", "sample", "IDENTITY"},
	"full":      {"snapshot", "verify", "LAST", "--level", "full", "IDENTITY"},
	"diff":      {"snapshot", "diff", "FIRST", "LAST", "IDENTITY"},
	"plan":      {"restore", "plan", "--snapshot", "LAST", "--source-is-gone", "IDENTITY", "TARGET"},
	"rebuild":   {"catalog", "rebuild"},
	"prune":     {"prune", "plan", "--keep-last", "1"},
	"watch":     {"operation", "watch", "latest"}, // of the command before, with what is info only

	"show as another identity": {"snapshot", "show", "LAST", "OTHER"},
	"full as another identity": {"snapshot", "verify", "LAST", "--level", "full", "OTHER"},
	"show as nobody":           {"snapshot", "show", "LAST"},
	"full as nobody":           {"snapshot", "verify", "LAST", "--level", "full"},
}

const (
	hashText = `its bytes do not fit the hash in its name`
	// The target of the table does not exist: a command that reaches it found no damage.
	targetText = `reach management cluster|connection refused`
)

// adviceText is how mgmtctl says what to do: of an operation that failed, behind its message.
var adviceText = regexp.MustCompile(`hint: |(?m)^message: .*\(.+\)$`)

// TestDamagedStores makes damaged stores from a good one and says for each what mgmtctl answers.
// Whatever it is: no command panics, takes much memory, changes the store, or prints a Secret; one
// that fails says what to do.
func TestDamagedStores(t *testing.T) {
	good := newGoodStore(t)
	for _, tt := range slices.Concat(damagedKeys, damagedEnvelopes, damagedContent) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := good.copy(t)
			tt.damage(d)
			before := d.files()
			for _, r := range tt.runs {
				d.check(r)
			}
			if after := d.files(); !maps.Equal(before, after) {
				t.Errorf("the store was changed: %v, was %v", after, before)
			}
		})
	}
}

// newestID returns the id in the name of the envelope whose name is the newest. By "latest", a
// damaged one is passed over.
func (d *damaged) newestID() string {
	d.t.Helper()
	names, err := filepath.Glob(filepath.Join(d.root, "snapshots", "*", "*.json"))
	if err != nil || len(names) == 0 {
		d.t.Fatalf("envelopes %v, %v", names, err)
	}
	name := strings.TrimSuffix(filepath.Base(slices.Max(names)), ".json")
	return name[strings.LastIndex(name, "-")+1:]
}

func (d *damaged) check(r run) {
	d.t.Helper()
	var args []string
	for _, a := range damageCommands[r.command] {
		switch a {
		case "IDENTITY":
			args = append(args, "--identity", d.file("keys/identity.txt"))
		case "OTHER":
			args = append(args, "--identity", d.file("other/identity.txt"))
		case "FIRST":
			args = append(args, string(d.signed[0].ID))
		case "LAST":
			args = append(args, d.newestID())
		case "TARGET":
			args = append(args, "--target-kubeconfig", d.file("target.kubeconfig"))
		default:
			args = append(args, a)
		}
	}
	if len(args) == 0 {
		d.t.Fatalf("no command %q", r.command)
	}
	args = append(args, "--standalone", "--store", d.root, "--catalog",
		filepath.Join(filepath.Dir(d.root), "catalog.db"), "--trusted-key", d.file("keys/signing.pub"))
	cmd := exec.CommandContext(d.t.Context(), d.mgmtctl, args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(d.root))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended, took := make(chan struct{}), make(chan int64, 1)
	go func() { took <- watchMemory(cmd.Process.Pid, ended) }()
	_ = cmd.Wait() // the exit code is checked below
	close(ended)
	text := out.String()
	fail := func(format string, a ...any) {
		d.t.Helper()
		d.t.Errorf(r.command+": "+format+"\n%s", append(a, text[:min(len(text), 4000)])...)
	}
	if code := cmd.ProcessState.ExitCode(); code != r.exit {
		fail("exit code %d, want %d", code, r.exit)
	}
	if !regexp.MustCompile(r.text).MatchString(text) {
		fail("want %q in", r.text)
	}
	if r.exit != 0 && !adviceText.MatchString(text) {
		fail("it does not say what to do")
	}
	if strings.Contains(text, "goroutine ") || strings.Contains(text, snapshottest.SecretText) {
		fail("it panics, or prints a Secret")
	}
	if took := <-took; took > mostMemory {
		fail("it took %d MiB", took>>20)
	}
}
