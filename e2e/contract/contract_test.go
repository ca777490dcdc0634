// Package contract restores a management cluster of Cluster API 1.10, which stores v1beta1, into
// one of the current version, which stores v1beta2, and moves one there. Both run the managers,
// CRDs and webhooks of their version.
//
// The machines are in the process of the source's infrastructure provider. When the source is lost,
// they die with it, and the provider of the target makes them again under their names when it gets
// their objects. In a move they are handed over to the target's cloud. So the tests assert objects
// of Cluster API: Machines, Nodes by name, CAs, owners, conditions. They do not assert that the
// workload API servers answer without a gap.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

const namespace = "team-old"

// fixture is a source of Cluster API 1.10 and a target of the current version.
type fixture struct {
	t                   *testing.T
	dir, mgmtctl, state string
	source, target      *lab.Mgmt
	workloads           []types.NamespacedName
}

// TestRestoreAcrossContracts loses the source and restores everything. With
// MGMTD_TEST_RECORD=FOLDER it also writes the recordings of Cluster API 1.10 for bare fleets.
func TestRestoreAcrossContracts(t *testing.T) {
	f := start(t)
	before := f.capture()
	arrived := f.watch(f.target)
	if err := f.source.KillAll(); err != nil {
		t.Fatal(err)
	}
	p := f.plan()
	t.Logf("plan: %s", p.summary())
	out := f.run("restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently")
	assertConverted(t, p.summary()+out)
	f.assertRestored(before)
	f.assertAdopted()
	f.assertNothingChanges(before)
	assertNone(t, observe.UnexplainedByRestore(arrived.Events(namespace), before))
}

// watch records the Machines and CAs that come to a management cluster and go, until the test ends.
func (f *fixture) watch(m *lab.Mgmt) *observe.Watcher {
	f.t.Helper()
	w, err := observe.Watch(context.WithoutCancel(f.t.Context()), m.Kubeconfig())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			f.t.Error(err)
		}
	})
	return w
}

// assertConverted asserts what mgmtctl says of values that the conversion drops, and of the
// annotation in which it keeps others.
func assertConverted(t *testing.T, text string) {
	t.Helper()
	t.Log(text)
	if !strings.Contains(text, "lost-in-conversion") || strings.Contains(text, "conversion-data") {
		t.Error("want the warning lost-in-conversion, and no word of conversion-data")
	}
}

// assertNothingChanges asserts that the target is still as it must be after three resyncs of its
// controllers.
func (f *fixture) assertNothingChanges(before observe.Objects) {
	f.t.Helper()
	time.Sleep(time.Minute)
	f.assertRestored(before)
}

func assertNone(t *testing.T, problems []string) {
	t.Helper()
	for _, problem := range problems {
		t.Error(problem)
	}
}

// start starts both management clusters and provisions the fleet on the source.
func start(t *testing.T) *fixture {
	t.Helper()
	if testing.Short() {
		t.Skip("runs for ten minutes")
	}
	f := &fixture{t: t, dir: t.TempDir(), state: t.TempDir()}
	if f.mgmtctl = os.Getenv("MGMTCTL"); f.mgmtctl == "" {
		f.mgmtctl = filepath.Join("..", "..", "bin", "mgmtctl")
	}
	path, err := exec.LookPath(f.mgmtctl)
	if err != nil {
		t.Fatalf("run make build: %v", err)
	}
	if f.mgmtctl, err = filepath.Abs(path); err != nil {
		t.Fatal(err)
	}
	// The limit only ends a start that hangs, with an error that says where.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{Dir: filepath.Join(f.dir, "lab"), Mgmt: -1,
		Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		f.target, err = l.AddMgmt(groupCtx, "new")
		return err
	})
	group.Go(func() (err error) {
		if f.source, err = l.AddOld(groupCtx, "old"); err != nil {
			return err
		}
		home, err := lab.FindHome()
		if err != nil {
			return err
		}
		templates, err := lab.OldTemplates(groupCtx, home)
		if err != nil {
			return err
		}
		c, err := clientOf(f.source)
		if err != nil {
			return err
		}
		if record := os.Getenv("MGMTD_TEST_RECORD"); record != "" {
			group.Go(func() error { return fleet.RecordOld(groupCtx, c, templates, record) })
		}
		f.workloads, err = fleet.CreateOld(groupCtx, c, templates, namespace)
		return err
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return f
}

func clientOf(m *lab.Mgmt) (client.Client, error) {
	config, err := m.RESTConfig()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{})
}

// capture takes a snapshot of the source and returns what it has.
func (f *fixture) capture() observe.Objects {
	f.t.Helper()
	objects, err := observe.StableInventory(f.t.Context(), f.source.Kubeconfig(), namespace)
	if err != nil {
		f.t.Fatal(err)
	}
	f.command("keygen", "--out", f.keys(""))
	f.command("snapshot", "create", "--standalone", "--store", f.store(), "--source-kubeconfig",
		f.source.Kubeconfig(), "--recipient", f.recipient(), "--signing-key", f.keys("signing.key"))
	return objects
}

func (f *fixture) recipient() string {
	f.t.Helper()
	recipient, err := os.ReadFile(f.keys("recipient.txt"))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(recipient))
}

func (f *fixture) keys(name string) string { return filepath.Join(f.dir, "keys", name) }
func (f *fixture) store() string           { return filepath.Join(f.dir, "store") }

// run runs a command of a restore or a move, and ends the test unless all is done.
func (f *fixture) run(args ...string) string {
	f.t.Helper()
	return f.command(slices.Concat(args, []string{"--standalone", "--store", f.store(), "--identity",
		f.keys("identity.txt"), "--trusted-key", f.keys("signing.pub"), "--signing-key",
		f.keys("signing.key"), "--target-kubeconfig", f.target.Kubeconfig()})...)
}

// command runs mgmtctl and returns what it prints: stdout alone with -o json.
func (f *fixture) command(args ...string) string {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), f.mgmtctl, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+f.state)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		f.t.Fatalf("mgmtctl %s: %v\n%s\n%s", strings.Join(args, " "), err, stdout.String(),
			stderr.String())
	}
	if slices.Contains(args, "json") {
		return stdout.String()
	}
	return stdout.String() + stderr.String()
}

// plan is the output of restore plan.
type plan struct {
	Findings []struct {
		Severity, Code, Unit, Message string
	} `json:"findings"`
	Summary struct {
		Create int64 `json:"create,string"`
		Adopt  int64 `json:"adopt,string"`
	} `json:"summary"`
}

func (p plan) summary() string {
	var text strings.Builder
	for _, f := range p.Findings {
		text.WriteString(f.Severity + " " + f.Code + " [" + f.Unit + "] " + f.Message + "\n")
	}
	return text.String()
}

func (f *fixture) plan() plan {
	f.t.Helper()
	var p plan
	if err := json.Unmarshal([]byte(f.run("restore", "plan", "--source-is-gone", "--force",
		"source-seen-recently", "-o", "json")),
		&p); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// assertRestored asserts that the target has all Machines, CAs and owners of the source, and that
// its controllers report all workload clusters Available and nothing paused.
func (f *fixture) assertRestored(before observe.Objects) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	c, err := clientOf(f.target)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := fleet.WaitAvailable(ctx, c, f.workloads...); err != nil {
		f.t.Error(err)
	}
	after, paused := f.released(ctx, before)
	problems := slices.Concat(observe.CompareMachines(before, after), paused)
	for ref, hash := range observe.Authorities(before) {
		if observe.Authorities(after)[ref] != hash {
			problems = append(problems, ref.String()+" has another CA or key")
		}
	}
	for _, ref := range before.Refs() {
		if after[ref] == nil {
			problems = append(problems, ref.String()+" is gone")
		}
	}
	for _, ref := range after.Refs() {
		if before[ref] == nil {
			problems = append(problems, ref.String()+" is new")
		}
	}
	_, dangling, err := observe.CheckOwners(f.t.Context(), f.target.Kubeconfig(), namespace)
	if err != nil {
		f.t.Error(err)
	}
	assertNone(f.t, append(problems, dangling...))
}

// released returns the objects of the target once nothing is paused that was not. A restore waits
// for the controllers of workload clusters, not for those of shared objects. When ctx ends, it
// returns what is still paused.
func (f *fixture) released(ctx context.Context, before observe.Objects) (after observe.Objects,
	paused []string) {
	f.t.Helper()
	for {
		after, err := observe.Inventory(f.t.Context(), f.target.Kubeconfig(), namespace)
		if err != nil {
			f.t.Fatal(err)
		}
		paused := observe.CheckPaused(before, after)
		if len(paused) == 0 {
			return after, nil
		}
		select {
		case <-ctx.Done():
			return after, paused
		case <-time.After(time.Second):
		}
	}
}

// assertAdopted restores everything again: it must adopt all copies and write nothing.
func (f *fixture) assertAdopted() {
	f.t.Helper()
	f.state = f.t.TempDir()
	p := f.plan()
	f.t.Logf("second plan: %+v\n%s", p.Summary, p.summary())
	if p.Summary.Create != 0 || p.Summary.Adopt == 0 {
		f.t.Error(errors.New("the second restore does not adopt the copies"))
	}
	f.t.Log(f.run("restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently"))
}
