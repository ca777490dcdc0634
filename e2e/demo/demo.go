// Package demo shows an outage from its beginning to its end, in a few minutes
// and on one machine: a management cluster is killed with kill -9, and
// mgmtctl brings its workload clusters under another one. It looks from the
// outside and believes nothing that mgmtctl says.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// Options of Run.
type Options struct {
	// Mgmtctl is the path of the program that is shown.
	Mgmtctl string
	// Out gets the story and the report.
	Out io.Writer
	// Observe is how long to look on after the restore.
	Observe time.Duration
	// Keep leaves the folder with data, logs, keys and store behind.
	Keep bool
}

// ErrNotSo says that the restore did not keep what it promises; the report says what.
var ErrNotSo = errors.New("something is not as it was: see NOT SO in the report")

// Names of files in the demo's folder, as they stand in the commands that it shows.
const (
	sourceFile = "source.kubeconfig"
	targetFile = "target.kubeconfig"
	storeDir   = "store"
	keysDir    = "keys"
)

// demo is one run.
type demo struct {
	Options
	dir            string
	lab            *lab.Lab
	source, target *lab.Mgmt
	began          time.Time
	step           int
	story          story
}

// story is what the report tells.
type story struct {
	workloads []types.NamespacedName
	before    observe.Objects // the source, at rest
	after     observe.Objects // the target, after everything
	stores    []int64         // bytes in the store after each snapshot
	begun     time.Time       // the start of the restore
	command   time.Duration   // what it took
	ready     time.Duration   // from its start until all control planes were Ready to stay so
	events    []observe.Event
	answers   []observe.Answers
	owners    int      // owner references
	dangling  []string // those without a live owner
	observed  time.Duration
	notSo     []string
}

// Run runs the demo and cleans up, whatever happens. It returns ErrNotSo after
// a report with something in it that is not as it must be.
func Run(ctx context.Context, opts Options) (err error) {
	d := &demo{Options: opts, began: time.Now()}
	if d.Mgmtctl, err = filepath.Abs(opts.Mgmtctl); err != nil {
		return fmt.Errorf("find mgmtctl: %w", err)
	}
	if _, err := os.Stat(d.Mgmtctl); err != nil {
		return fmt.Errorf("find mgmtctl: run make build: %w", err)
	}
	if d.dir, err = os.MkdirTemp("", "mgmtd-demo-"); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() {
		if d.lab != nil {
			d.lab.Close()
		}
		if d.Keep {
			d.printf("\nEverything is kept in %s.\n", d.dir)
			return
		}
		if removeErr := os.RemoveAll(d.dir); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("remove folder: %w", removeErr))
		}
	}()
	for _, act := range []func(context.Context) error{d.start, d.provision, d.snapshot, d.outage} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	d.report()
	if len(d.story.notSo) > 0 {
		return ErrNotSo
	}
	return nil
}

// start runs the two management clusters.
func (d *demo) start(ctx context.Context) error {
	d.title("Start two management clusters: the source, and the target that will take over")
	l, err := lab.Start(ctx, lab.Options{Dir: filepath.Join(d.dir, "lab"), Mgmt: 2})
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start lab: it is not built: run make lab: %w", err)
	}
	if err != nil {
		return fmt.Errorf("start lab: %w", err)
	}
	d.lab, d.source, d.target = l, l.Mgmt("mgmt-1"), l.Mgmt("mgmt-2")
	for name, m := range map[string]*lab.Mgmt{sourceFile: d.source, targetFile: d.target} {
		if err := os.Symlink(m.Kubeconfig(), filepath.Join(d.dir, name)); err != nil {
			return fmt.Errorf("name kubeconfig: %w", err)
		}
	}
	d.line("each is etcd, kube-apiserver, the garbage collector and Cluster API with its kubeadm providers, webhooks on")
	return nil
}

// provision has the source make a fleet.
func (d *demo) provision(ctx context.Context) error {
	d.title("The source provisions %d workload clusters of different shapes", len(fleet.Shapes()))
	config, err := d.source.RESTConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if d.story.workloads, err = fleet.Create(ctx, c, fleet.Options{Progress: d.line}); err != nil {
		return fmt.Errorf("provision fleet: %w", err)
	}
	// What is compared afterwards is the source at rest.
	if d.story.before, err = observe.Settled(ctx, d.source.Kubeconfig()); err != nil {
		return fmt.Errorf("look at the source: %w", err)
	}
	d.line(fmt.Sprintf("%d objects, %d Machines, %d Secrets", len(d.story.before), len(observe.Machines(d.story.before)), len(d.story.before.Of("", "Secret"))))
	return nil
}

// snapshot takes two snapshots: the second shows that only changes are written.
func (d *demo) snapshot(ctx context.Context) error {
	d.title("Make keys and take two snapshots")
	if err := d.mgmtctl(ctx, "keygen", "--out", keysDir); err != nil {
		return err
	}
	for range 2 {
		if err := d.mgmtctl(ctx, "--standalone", "snapshot", "create", "--store", storeDir, "--source-kubeconfig", sourceFile,
			"--recipient", "$(cat "+keysDir+"/recipient.txt)", "--signing-key", keysDir+"/signing.key"); err != nil {
			return err
		}
		size, err := sizeOf(filepath.Join(d.dir, storeDir))
		if err != nil {
			return err
		}
		d.story.stores = append(d.story.stores, size)
	}
	return nil
}

// outage kills the source and restores into the target, under the eyes of a
// probe of every workload API server, a watch on the target, and a look at the
// control planes.
func (d *demo) outage(ctx context.Context) error {
	probe, err := observe.StartProbe(ctx, d.source.Kubeconfig())
	if err != nil {
		return fmt.Errorf("start probe: %w", err)
	}
	defer probe.Stop() // each of the three may be stopped again
	watcher, err := observe.Watch(ctx, d.target.Kubeconfig())
	if err != nil {
		return fmt.Errorf("watch the target: %w", err)
	}
	defer func() { _ = watcher.Stop() }()
	readiness, err := observe.StartReadiness(ctx, d.target.Kubeconfig(), d.story.before)
	if err != nil {
		return fmt.Errorf("watch the control planes: %w", err)
	}
	defer func() { _, _ = readiness.Stop() }()

	d.title("Outage: kill -9 of the whole source")
	if err := d.source.KillAll(); err != nil {
		return fmt.Errorf("kill the source: %w", err)
	}
	d.line("kube-apiserver, etcd, garbage collector, Cluster API core, bootstrap, control plane and infrastructure provider: gone")

	if err := d.restore(ctx); ctx.Err() != nil {
		return err
	} else if err != nil {
		d.story.notSo = append(d.story.notSo, err.Error()) // what became of it is all the more interesting
	}
	d.title("Look on for %s: the target's controllers resync every 20s", d.Observe)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d.Observe):
	}
	d.story.observed = d.Observe
	d.story.answers = probe.Stop()
	if err := watcher.Stop(); err != nil {
		return fmt.Errorf("watch the target: %w", err)
	}
	d.story.events = watcher.Events()
	since, err := readiness.Stop()
	if err != nil {
		d.story.notSo = append(d.story.notSo, err.Error())
	}
	d.story.ready = since.Sub(d.story.begun)
	return d.check(ctx)
}

// restore runs mgmtctl. How long it takes is measured from its start, by those who look on.
func (d *demo) restore(ctx context.Context) error {
	d.title("Restore into the target")
	d.story.begun = time.Now()
	err := d.mgmtctl(ctx, "--standalone", "restore", "run", "--source-is-gone", "--yes", "--store", storeDir,
		"--identity", keysDir+"/identity.txt", "--trusted-key", keysDir+"/signing.pub", "--target-kubeconfig", targetFile)
	d.story.command = time.Since(d.story.begun)
	return err
}

// check compares the target with what the source was.
func (d *demo) check(ctx context.Context) error {
	s := &d.story
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// What is unhealthy at the end of the window gets a last chance: a
	// controller may be in the middle of something.
	after, err := observe.Await(ctx, d.target.Kubeconfig(), func(after observe.Objects) []string { return observe.Health(s.before, after) })
	if after == nil {
		return fmt.Errorf("look at the target: %w", err)
	}
	s.after = after
	for _, difference := range observe.Compare(s.before, after, observe.Options{WithoutStatus: true}) {
		s.notSo = append(s.notSo, difference.String())
	}
	s.notSo = append(s.notSo, observe.CheckPaused(s.before, after)...)
	s.notSo = append(s.notSo, observe.CompareMachines(s.before, after)...)
	s.notSo = append(s.notSo, observe.Health(s.before, after)...)
	s.notSo = append(s.notSo, observe.Anew(s.events, s.before)...)
	for _, a := range s.answers {
		if a.Failures > 0 || a.Good == 0 {
			s.notSo = append(s.notSo, fmt.Sprintf("%s: its API server failed %d times, the first: %s", a.Workload, a.Failures, a.First))
		}
	}
	references, problems, err := observe.CheckOwners(context.WithoutCancel(ctx), d.target.Kubeconfig())
	if err != nil {
		return fmt.Errorf("look at owners on the target: %w", err)
	}
	s.owners, s.dangling = references, problems
	s.notSo = append(s.notSo, problems...)
	return nil
}
