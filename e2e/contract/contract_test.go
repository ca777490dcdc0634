// Package contract restores a management cluster of Cluster API 1.10, which stores v1beta1, into
// one of the current version, which stores v1beta2. Both run the managers, CRDs and webhooks of
// their version.
//
// The machines are in the process of the source's infrastructure provider and die with it. The
// provider of the target makes them again under their names when it gets their objects. So the
// test asserts objects of Cluster API: Machines, Nodes by name, CAs, owners, conditions. It does
// not assert that the workload API servers answer without a gap.
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

// outage is a source of Cluster API 1.10 and a target of the current version.
type outage struct {
	t                   *testing.T
	dir, mgmtctl, state string
	source, target      *lab.Mgmt
	workloads           []types.NamespacedName
}

// TestRestoreAcrossContracts loses the source and restores everything. With
// MGMTD_TEST_RECORD=FOLDER it also writes the recordings of Cluster API 1.10 for bare fleets.
func TestRestoreAcrossContracts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for ten minutes")
	}
	o := start(t)
	before := o.capture()
	watcher, err := observe.Watch(t.Context(), o.target.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.source.KillAll(); err != nil {
		t.Fatal(err)
	}
	p := o.plan()
	t.Logf("plan: %s", p.summary())
	out := o.run("restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently")
	t.Log(out)
	if text := p.summary() + out; !strings.Contains(text, "lost-in-conversion") ||
		strings.Contains(text, "conversion-data") {
		t.Error("want the warning lost-in-conversion, and no word of conversion-data")
	}
	o.assertRestored(before)
	o.assertAdopted()
	time.Sleep(time.Minute) // for what a resync or a requeue would do
	o.assertRestored(before)
	if err := watcher.Stop(); err != nil {
		t.Error(err)
	}
	for _, problem := range observe.UnexplainedByRestore(watcher.Events(namespace), before) {
		t.Error(problem)
	}
}

// start starts both management clusters and provisions the fleet on the source.
func start(t *testing.T) *outage {
	t.Helper()
	o := &outage{t: t, dir: t.TempDir(), state: t.TempDir()}
	if o.mgmtctl = os.Getenv("MGMTCTL"); o.mgmtctl == "" {
		o.mgmtctl = filepath.Join("..", "..", "bin", "mgmtctl")
	}
	path, err := exec.LookPath(o.mgmtctl)
	if err != nil {
		t.Fatalf("run make build: %v", err)
	}
	if o.mgmtctl, err = filepath.Abs(path); err != nil {
		t.Fatal(err)
	}
	// The limit only ends a start that hangs, with an error that says where.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{Dir: filepath.Join(o.dir, "lab"), Mgmt: -1,
		Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		o.target, err = l.AddMgmt(groupCtx, "new")
		return err
	})
	group.Go(func() (err error) {
		if o.source, err = l.AddOld(groupCtx, "old"); err != nil {
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
		c, err := clientOf(o.source)
		if err != nil {
			return err
		}
		if record := os.Getenv("MGMTD_TEST_RECORD"); record != "" {
			group.Go(func() error { return fleet.RecordOld(groupCtx, c, templates, record) })
		}
		o.workloads, err = fleet.CreateOld(groupCtx, c, templates, namespace)
		return err
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return o
}

func clientOf(m *lab.Mgmt) (client.Client, error) {
	config, err := m.RESTConfig()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{})
}

// capture takes a snapshot of the source and returns what it has.
func (o *outage) capture() observe.Objects {
	o.t.Helper()
	objects, err := observe.StableInventory(o.t.Context(), o.source.Kubeconfig(), namespace)
	if err != nil {
		o.t.Fatal(err)
	}
	o.command("keygen", "--out", o.keys(""))
	recipient, err := os.ReadFile(o.keys("recipient.txt"))
	if err != nil {
		o.t.Fatal(err)
	}
	o.command("snapshot", "create", "--standalone", "--store", o.store(), "--source-kubeconfig",
		o.source.Kubeconfig(), "--recipient", strings.TrimSpace(string(recipient)), "--signing-key",
		o.keys("signing.key"))
	return objects
}

func (o *outage) keys(name string) string { return filepath.Join(o.dir, "keys", name) }
func (o *outage) store() string           { return filepath.Join(o.dir, "store") }

// run runs a command of a restore, and ends the test unless all is done.
func (o *outage) run(args ...string) string {
	o.t.Helper()
	return o.command(slices.Concat(args, []string{"--standalone", "--store", o.store(), "--identity",
		o.keys("identity.txt"), "--trusted-key", o.keys("signing.pub"), "--signing-key",
		o.keys("signing.key"), "--target-kubeconfig", o.target.Kubeconfig()})...)
}

// command runs mgmtctl and returns what it prints: stdout alone with -o json.
func (o *outage) command(args ...string) string {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), o.mgmtctl, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+o.state)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		o.t.Fatalf("mgmtctl %s: %v\n%s\n%s", strings.Join(args, " "), err, stdout.String(),
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

func (o *outage) plan() plan {
	o.t.Helper()
	var p plan
	if err := json.Unmarshal([]byte(o.run("restore", "plan", "--source-is-gone", "--force",
		"source-seen-recently", "-o", "json")),
		&p); err != nil {
		o.t.Fatal(err)
	}
	return p
}

// assertRestored asserts that the target has all Machines, CAs and owners of the source, and that
// its controllers report all workload clusters Available and nothing paused.
func (o *outage) assertRestored(before observe.Objects) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 2*time.Minute)
	defer cancel()
	c, err := clientOf(o.target)
	if err != nil {
		o.t.Fatal(err)
	}
	if err := fleet.WaitAvailable(ctx, c, o.workloads...); err != nil {
		o.t.Error(err)
	}
	after, paused := o.released(ctx, before)
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
	_, dangling, err := observe.CheckOwners(o.t.Context(), o.target.Kubeconfig(), namespace)
	if err != nil {
		o.t.Error(err)
	}
	for _, problem := range append(problems, dangling...) {
		o.t.Error(problem)
	}
}

// released returns the objects of the target once nothing is paused that was not. A restore waits
// for the controllers of workload clusters, not for those of shared objects. When ctx ends, it
// returns what is still paused.
func (o *outage) released(ctx context.Context, before observe.Objects) (after observe.Objects,
	paused []string) {
	o.t.Helper()
	for {
		after, err := observe.Inventory(o.t.Context(), o.target.Kubeconfig(), namespace)
		if err != nil {
			o.t.Fatal(err)
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
func (o *outage) assertAdopted() {
	o.t.Helper()
	o.state = o.t.TempDir()
	p := o.plan()
	o.t.Logf("second plan: %+v\n%s", p.Summary, p.summary())
	if p.Summary.Create != 0 || p.Summary.Adopt == 0 {
		o.t.Error(errors.New("the second restore does not adopt the copies"))
	}
	o.t.Log(o.run("restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently"))
}
