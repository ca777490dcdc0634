// Package bench measures mgmtd and, in the same run, the time that the API server needs by itself.
// Ratios of the two hold for other machines, absolute times do not. It prints medians, and ratios
// to what the project promises.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
)

// Options of Run.
type Options struct {
	// Mgmtctl and Mgmtd are the paths of the programs.
	Mgmtctl, Mgmtd string
	// Baseline is the folder of an mgmtctl and an mgmtd of another version, which are measured in
	// turns with these ones. It may be empty.
	Baseline string
	// Out gets the figures, Progress a line whenever something happens.
	Out      io.Writer
	Progress func(string)
	// Objects is about how many objects each management cluster has.
	Objects []int
	// RestoreObjects is about how many objects are restored into an empty management cluster.
	RestoreObjects []int
	// Moves is how often a live fleet is moved with clusterctl and back with mgmtctl; 0 moves nothing.
	Moves int
	// Together is how many copies of each live workload cluster share a namespace. With one, the fleet
	// is there twice, in namespaces of its own.
	Together int
	// Record is the file that gets the figures of the moves; it may be empty.
	Record string
	// Repeat is how often each figure is measured.
	Repeat int
	// Idle is how long nothing is written before the first measurement. After more than five
	// minutes the API server has compacted its history, as on a management cluster without writes.
	Idle time.Duration
}

// objectsPerWorkload is about how many objects a bare workload cluster of machinesPerWorkload
// Machines has.
const (
	machinesPerWorkload = 8
	objectsPerWorkload  = 53
	source              = "mgmt-1"
	bucketName          = "bench"
)

// Run measures and prints. It cleans up in any case.
func Run(ctx context.Context, opts Options) (err error) {
	programs := []*string{&opts.Mgmtctl, &opts.Mgmtd}
	if opts.Baseline != "" {
		programs = append(programs, &opts.Baseline)
	}
	for _, program := range programs {
		if *program, err = filepath.Abs(*program); err == nil {
			_, err = os.Stat(*program)
		}
		if err != nil {
			return fmt.Errorf("find programs: run make build: %w", err)
		}
	}
	for _, n := range opts.Objects {
		if err := runSize(ctx, opts, n); err != nil {
			return err
		}
	}
	if err := restores(ctx, opts); err != nil {
		return err
	}
	return moves(ctx, opts)
}

// bench is one management cluster, a bucket, and what runs on them.
type bench struct {
	Options
	dir    string
	home   lab.Home
	lab    *lab.Lab
	s3     *lab.S3
	config *rest.Config
	client client.Client
	rand   *rand.Rand
	stores int
	// applied: the objects have server-side appliers, as on a live management cluster; it takes
	// longer to write them.
	applied bool
}

func runSize(ctx context.Context, opts Options, objects int) error {
	b := &bench{Options: opts, rand: rand.New(rand.NewPCG(1, 2))}
	return b.with(ctx, func(ctx context.Context) error { return b.start(ctx, objects) }, b.measure)
}

// with starts management clusters, calls fn and cleans up.
func (b *bench) with(ctx context.Context, start, fn func(ctx context.Context) error) (err error) {
	if b.dir, err = os.MkdirTemp("", "mgmtd-bench-"); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() {
		b.close()
		err = errors.Join(err, os.RemoveAll(b.dir))
	}()
	if err := start(ctx); err != nil {
		return err
	}
	return fn(ctx)
}

func (b *bench) close() {
	if b.s3 != nil {
		b.s3.Close()
	}
	if b.lab != nil {
		b.lab.Close()
	}
}

// startLab starts a lab and an S3 server, and makes keys.
func (b *bench) startLab(ctx context.Context, opts lab.Options) (err error) {
	opts.Dir = b.path("lab")
	if b.lab, err = lab.Start(ctx, opts); err != nil {
		return err
	}
	if b.home, err = lab.FindHome(); err != nil {
		return err
	}
	if b.s3, err = lab.StartS3(ctx, b.home, b.path("s3")); err != nil {
		return err
	}
	if err := b.s3.CreateBucket(bucketName); err != nil {
		return err
	}
	_, err = b.mgmtctl(ctx, "keygen", "--out", b.path("keys"))
	return err
}

// start starts a bare management cluster with so many objects.
func (b *bench) start(ctx context.Context, objects int) (err error) {
	if err := b.startLab(ctx, lab.Options{Mgmt: 1, Bare: true, Memory: "10GiB"}); err != nil {
		return err
	}
	if b.config, err = clientcmd.BuildConfigFromFlags("",
		b.lab.Mgmt(source).Kubeconfig()); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	b.config.QPS = -1
	b.config.WarningHandler = rest.NoWarnings{}
	if b.client, err = client.New(b.config, client.Options{}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	n, err := fleet.CreateBare(ctx, b.client, fleet.BareOptions{
		Workloads: max(1, objects/objectsPerWorkload), Machines: machinesPerWorkload, Fast: !b.applied,
		Seed: 1, KeyDir: b.home.Keys(), Progress: b.Progress,
	})
	if err != nil {
		return err
	}
	b.Progress(fmt.Sprintf("%d objects; wait for %s", n, b.Idle))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.Idle):
		return nil
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// measure takes all figures of one size.
func (b *bench) measure(ctx context.Context) error {
	r := &report{out: b.Out}
	kinds, err := b.kinds(ctx)
	if err != nil {
		return err
	}
	all, err := b.objects(ctx, kinds)
	if err != nil {
		return err
	}
	floor, err := b.repeat(func() (time.Duration, error) {
		begin := time.Now()
		err := b.listAll(ctx, kinds)
		return time.Since(begin), err
	})
	if err != nil {
		return err
	}
	r.title(len(all), floor)
	var peak int64
	var s *place
	first, err := b.repeat(func() (time.Duration, error) {
		s = b.newPlace(b.Mgmtctl)
		run, err := s.snapshot(ctx)
		peak = max(peak, run.peak)
		return run.took, err
	})
	if err != nil {
		return err
	}
	whole, err := s.written(nil)
	if err != nil {
		return err
	}
	r.line("first snapshot, standalone", first, "%.2f of the LIST (at most 2 at 50,000 objects)",
		float64(first)/float64(floor))
	r.line("  its peak memory", 0, "%d MiB (under 300)", peak>>20)
	r.line("  written", 0, "%d keys, %d KiB", whole.keys, whole.bytes>>10)
	if err := b.unchanged(ctx, r, s, first); err != nil {
		return err
	}
	units := byUnit(all)
	if err := b.changed(ctx, r, s, whole, "1 % of the units changed", 5,
		func() []object { return pickUnits(b.rand, units, max(1, len(units)/100)) }); err != nil {
		return err
	}
	if err := b.changed(ctx, r, s, whole, "1 % of the objects changed", 12,
		func() []object { return pickObjects(b.rand, units, max(1, len(all)/100)) }); err != nil {
		return err
	}
	if err := b.daemon(ctx, r, first); err != nil || b.Baseline == "" {
		return err
	}
	return b.baseline(ctx, r)
}

// unchanged takes snapshots between which nothing happens.
func (b *bench) unchanged(ctx context.Context, r *report, s *place, first time.Duration) error {
	before, err := s.files()
	if err != nil {
		return err
	}
	var peak int64
	again, err := b.repeat(func() (time.Duration, error) {
		run, err := s.snapshot(ctx)
		peak = max(peak, run.peak)
		return run.took, err
	})
	if err != nil {
		return err
	}
	wrote, err := s.written(before)
	if err != nil {
		return err
	}
	r.line("unchanged, standalone", again, "%.2f of the first (under 0.5)",
		float64(again)/float64(first))
	r.line("  its peak memory", 0, "%d MiB", peak>>20)
	r.line("  written each time", 0, "%.1f keys, %.1f KiB (at most 2 keys, 8 KiB)",
		float64(wrote.keys)/float64(b.Repeat), float64(wrote.bytes)/1024/float64(b.Repeat))
	return nil
}

// changed takes snapshots, each after some objects changed.
func (b *bench) changed(ctx context.Context, r *report, s *place, whole wrote, what string,
	most int, pick func() []object) error {
	var objects, keys, kib, parts []int // of each
	took, err := b.repeat(func() (time.Duration, error) {
		changed := pick()
		if err := b.touch(ctx, changed); err != nil {
			return 0, err
		}
		before, err := s.files()
		if err != nil {
			return 0, err
		}
		run, err := s.snapshot(ctx)
		if err != nil {
			return 0, err
		}
		w, err := s.written(before)
		objects, keys, kib, parts = append(objects, len(changed)), append(keys, w.keys),
			append(kib, int(w.bytes>>10)), append(parts, int(1000*w.bytes/whole.bytes))
		return run.took, err
	})
	if err != nil {
		return err
	}
	r.line(what, took, "%d objects: %d keys, %d KiB, %.1f %% of the first one's bytes (under %d)",
		median(objects), median(keys), median(kib), float64(median(parts))/10, most)
	return nil
}

// daemon takes snapshots through a daemon.
func (b *bench) daemon(ctx context.Context, r *report, first time.Duration) error {
	d, err := lab.StartDaemon(ctx, lab.DaemonOptions{
		Program: b.Mgmtd, Dir: b.path("daemon"), Keys: b.path("keys"),
		Mgmts: map[string]string{source: b.lab.Mgmt(source).Kubeconfig()}, S3: b.s3, Bucket: bucketName,
		Prefix: "daemon",
	})
	if err != nil {
		return err
	}
	defer d.Close()
	take := func() (time.Duration, error) {
		run, err := b.mgmtctl(ctx, "snapshot", "create", "--address", d.Address())
		if err != nil {
			return 0, fmt.Errorf("%w\n%s", err, d.Log())
		}
		return run.took, nil
	}
	own, err := take()
	if err != nil {
		return err
	}
	r.line("first snapshot, in the daemon", own, "once")
	again, err := b.repeat(take)
	if err != nil {
		return err
	}
	r.line("unchanged, in the daemon", again, "%.2f of the first (under 0.1 at 10,000 objects)",
		float64(again)/float64(first))
	renewed, err := b.repeat(func() (time.Duration, error) {
		if err := b.renew(ctx); err != nil {
			return 0, err
		}
		return take()
	})
	if err != nil {
		return err
	}
	r.line("  after a lease was renewed", renewed, "%.2f of the first; up to two seconds are the "+
		"API server's proof that no more was written", float64(renewed)/float64(first))
	peak, err := d.PeakMemory()
	if err != nil {
		return err
	}
	r.line("  peak memory of mgmtd", 0, "%d MiB", peak>>20)
	return nil
}
