// Package demo shows in a few minutes on one machine what mgmtd does. A daemon takes snapshots of a
// management cluster into S3. The management cluster is killed with kill -9 and restored into a
// second one. Then all workload clusters are moved to a third one. Package observe checks the
// results from outside: the report relies on no output of mgmtctl.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/measured"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// Options of Run.
type Options struct {
	// Mgmtctl and Mgmtd are the paths of the programs.
	Mgmtctl, Mgmtd string
	// Out receives the progress and the report.
	Out io.Writer
	// Observe is how long to observe after the move.
	Observe time.Duration
	// LeaveFolder does not remove the folder with data, logs, keys and buckets at the end.
	LeaveFolder bool
}

// ErrFailed reports that a check of the report failed.
var ErrFailed = errors.New("a check failed: see FAIL in the report")

// Names in the commands that the demo prints. The management clusters are: lost, which is killed;
// refuge, into which it is restored; home, to which everything is moved.
const (
	lost, refuge, home = "mgmt-1", "mgmt-2", "mgmt-3"
	keysDir            = "keys"
	identity           = keysDir + "/identity.txt"
	bucket             = "snapshots"
	schedule           = "often"
	every              = 15 * time.Second
)

// demo is one run.
type demo struct {
	Options
	dir    string
	lab    *lab.Lab
	s3     *lab.S3
	daemon *lab.Daemon
	probe  *observe.Probe
	began  time.Time
	step   int
	story  story
}

// story is the content of the report.
type story struct {
	workloads []types.NamespacedName
	stores    []int64 // bytes in the bucket after each snapshot
	age       time.Duration
	// ready is the time from the start of the restore until all control planes were Ready for good.
	ready         time.Duration
	restore, move phase
	pauses        map[string]time.Duration
	answers       []observe.Answers
	observed      time.Duration
	failures      []string // of the programs
	peer          measured.Moves
}

// Run runs the demo and cleans up in any case. It returns ErrFailed when the report has a failed
// check.
func Run(ctx context.Context, opts Options) (err error) {
	d := &demo{Options: opts, began: time.Now()}
	if d.story.peer, err = measured.Recorded(); err != nil {
		return err
	}
	for _, program := range []*string{&d.Mgmtctl, &d.Mgmtd} {
		if *program, err = filepath.Abs(*program); err == nil {
			_, err = os.Stat(*program)
		}
		if err != nil {
			return fmt.Errorf("find programs: run make build: %w", err)
		}
	}
	if d.dir, err = os.MkdirTemp("", "mgmtd-demo-"); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() {
		d.close()
		if d.LeaveFolder {
			d.printf("\nAll data is in %s.\n", d.dir)
			return
		}
		if removeErr := os.RemoveAll(d.dir); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("remove folder: %w", removeErr))
		}
	}()
	for _, act := range []func(context.Context) error{d.start, d.provision, d.schedule, d.outage,
		d.onward} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	if problems := d.report(); problems > 0 {
		return ErrFailed
	}
	return nil
}

func (d *demo) close() {
	if d.probe != nil {
		d.probe.Stop()
	}
	if d.daemon != nil {
		d.daemon.Close()
	}
	if d.s3 != nil {
		d.s3.Close()
	}
	if d.lab != nil {
		d.lab.Close()
	}
}

// start runs two management clusters and an S3 server.
func (d *demo) start(ctx context.Context) error {
	d.title("Start two management clusters, %s and %s, and an S3 server", lost, refuge)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		d.lab, err = lab.Start(groupCtx, lab.Options{Dir: filepath.Join(d.dir, "lab"), Mgmt: 2})
		return err
	})
	group.Go(func() error {
		dir, err := lab.FindHome()
		if err == nil {
			d.s3, err = lab.StartS3(groupCtx, dir, filepath.Join(d.dir, "s3"))
		}
		return err
	})
	if err := group.Wait(); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start lab: it is not built: run make lab: %w", err)
	} else if err != nil {
		return fmt.Errorf("start lab: %w", err)
	}
	if _, err := d.lab.Prepare(home); err != nil {
		return fmt.Errorf("make kubeconfig: %w", err)
	}
	d.line("each is etcd, kube-apiserver, the garbage collector and Cluster API with its kubeadm " +
		"providers, webhooks on")
	return nil
}

// provision creates a fleet on the first management cluster.
func (d *demo) provision(ctx context.Context) error {
	d.title("%s provisions %d workload clusters of different shapes", lost, len(fleet.Shapes()))
	config, err := d.lab.Mgmt(lost).RESTConfig()
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
	return nil
}

// schedule starts the daemon and waits for snapshots. The last one is of a stable first management
// cluster.
func (d *demo) schedule(ctx context.Context) error {
	d.title("mgmtd takes a snapshot every %s, encrypted and signed", every)
	if err := d.mgmtctl(ctx, "keygen", "--out", keysDir); err != nil {
		return err
	}
	mgmts := map[string]string{}
	for _, name := range []string{lost, refuge, home} {
		mgmts[name] = d.lab.Mgmt(name).Kubeconfig()
	}
	var err error
	if d.daemon, err = lab.StartDaemon(ctx, lab.DaemonOptions{
		Program: d.Mgmtd, Dir: filepath.Join(d.dir, "mgmtd"), Keys: filepath.Join(d.dir, keysDir),
		Mgmts: mgmts, S3: d.s3, Bucket: bucket,
		Schedules: []lab.Schedule{{Name: schedule, Cron: "@every " + every.String(), Source: lost}},
	}); err != nil {
		return fmt.Errorf("start mgmtd: %w", err)
	}
	d.line("$ mgmtd --config mgmtd.yaml &")
	d.line("$ export MGMTCTL_ADDRESS=" + d.daemon.Address())
	if d.story.restore.before, err = observe.StableInventory(ctx,
		d.lab.Mgmt(lost).Kubeconfig()); err != nil {
		return fmt.Errorf("inventory of %s: %w", lost, err)
	}
	before := d.story.restore.before
	d.line(fmt.Sprintf("%s is stable: %d objects, %d Machines, %d Secrets", lost, len(before),
		len(observe.Machines(before)), len(before.Of("", "Secret"))))
	if err := d.awaitSnapshots(ctx, time.Now()); err != nil {
		return err
	}
	if err := d.mgmtctl(ctx, "snapshot", "list"); err != nil {
		return err
	}
	return d.mgmtctl(ctx, "schedule", "list")
}
