package demo

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// healthTimeout is how long the controllers may take to report everything healthy.
const healthTimeout = time.Minute

// outage kills the first management cluster and restores its newest snapshot into the second. A
// probe of every workload API server, a watch on the second management cluster and polls of its
// control planes run all the time.
func (d *demo) outage(ctx context.Context) error {
	s := &d.story
	target := d.lab.Mgmt(refuge).Kubeconfig()
	var err error
	// The move ends the probe.
	if d.probe, err = observe.StartProbe(ctx, d.lab.Mgmt(lost).Kubeconfig()); err != nil {
		return fmt.Errorf("start probe: %w", err)
	}
	watcher, err := observe.Watch(ctx, target)
	if err != nil {
		return fmt.Errorf("watch %s: %w", refuge, err)
	}
	defer func() { _ = watcher.Stop() }()
	readiness, err := observe.StartReadiness(ctx, target, s.restore.before)
	if err != nil {
		return fmt.Errorf("watch the control planes: %w", err)
	}
	defer func() { _, _ = readiness.Stop() }()

	if err := d.kill(ctx); err != nil {
		return err
	}
	if err := d.restoreNewest(ctx); err != nil {
		return err
	}
	if err := d.inspectRefuge(ctx); err != nil {
		return err
	}
	if err := watcher.Stop(); err != nil {
		return fmt.Errorf("watch %s: %w", refuge, err)
	}
	s.restore.events = watcher.Events()
	s.restore.unexplained = observe.UnexplainedByRestore(s.restore.events, s.restore.before)
	since, err := readiness.Stop()
	if err != nil {
		s.failures = append(s.failures, err.Error())
	}
	s.ready = since.Sub(s.restore.begun)
	return nil
}

// kill ends the first management cluster and pauses its schedule.
func (d *demo) kill(ctx context.Context) error {
	d.title("The outage: kill -9 of all processes of %s", lost)
	if err := d.lab.Mgmt(lost).KillAll(); err != nil {
		return fmt.Errorf("kill %s: %w", lost, err)
	}
	d.line("kube-apiserver, etcd, garbage collector, Cluster API core, bootstrap, control plane " +
		"and infrastructure provider: gone")
	return d.mgmtctl(ctx, "schedule", "pause", schedule)
}

// restoreNewest restores the newest snapshot into the second management cluster.
func (d *demo) restoreNewest(ctx context.Context) error {
	s := &d.story
	times, err := d.snapshots()
	if err != nil {
		return err
	}
	d.title("Restore the newest snapshot into %s", refuge)
	d.line("(--force source-seen-recently: the newest snapshot is younger than three intervals of " +
		"its schedule, so mgmtd " +
		"cannot know that " + lost + " is dead)")
	s.restore.begun = time.Now()
	s.age = s.restore.begun.Sub(times[len(times)-1])
	d.run(ctx, &s.restore, "restore", "run", "--source", lost, "--target", refuge, "--identity",
		identity, "--source-is-gone", "--force", "source-seen-recently", "--yes")
	return context.Cause(ctx)
}

// inspectRefuge reads the second management cluster, and starts the third meanwhile.
func (d *demo) inspectRefuge(ctx context.Context) error {
	s := &d.story
	d.title("Inspect %s, and start a third management cluster, %s", refuge, home)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if _, err := d.lab.AddMgmt(groupCtx, home); err != nil {
			return fmt.Errorf("start %s: %w", home, err)
		}
		return nil
	})
	group.Go(func() error { return s.restore.inspect(groupCtx, d.lab.Mgmt(refuge).Kubeconfig()) })
	if err := group.Wait(); err != nil {
		return err
	}
	s.move.before = s.restore.after
	return nil
}

// onward moves everything from the second management cluster to the third.
func (d *demo) onward(ctx context.Context) error {
	s := &d.story
	source, target := d.lab.Mgmt(refuge).Kubeconfig(), d.lab.Mgmt(home).Kubeconfig()
	leaving, err := observe.Watch(ctx, source)
	if err != nil {
		return fmt.Errorf("watch %s: %w", refuge, err)
	}
	defer func() { _ = leaving.Stop() }()
	coming, err := observe.Watch(ctx, target)
	if err != nil {
		return fmt.Errorf("watch %s: %w", home, err)
	}
	defer func() { _ = coming.Stop() }()
	reconcilers, err := observe.WatchReconcilers(ctx, map[string]string{refuge: source, home: target})
	if err != nil {
		return fmt.Errorf("watch Clusters: %w", err)
	}
	defer func() { _ = reconcilers.Stop() }()

	d.title("Move everything from %s to %s, both live", refuge, home)
	s.move.begun = time.Now()
	d.run(ctx, &s.move, "move", "run", "--source", refuge, "--target", home, "--yes")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.title("Observe for %s: the controllers of both resync every 20s", d.Observe)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d.Observe):
	}
	s.observed = d.Observe
	s.answers = d.probe.Stop()
	for name, stop := range map[string]func() error{refuge: leaving.Stop, home: coming.Stop,
		"Clusters": reconcilers.Stop} {
		if err := stop(); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
	}
	s.pauses = reconcilers.Pauses(refuge, home)
	s.move.events = coming.Events()
	s.move.unexplained = append(observe.UnexplainedByMoves(s.move.events, s.move.before, 1, 0),
		observe.UnexplainedByMoves(leaving.Events(), s.move.before, 0, 1)...)
	s.move.conflicts = reconcilers.Conflicts()
	if err := s.move.inspect(ctx, target); err != nil {
		return err
	}
	left, err := observe.Inventory(ctx, source)
	if err != nil {
		return fmt.Errorf("inventory of %s: %w", refuge, err)
	}
	s.move.left = observe.Left(left)
	return nil
}

// run runs mgmtctl for a phase and measures the time of the command. When it fails, the demo goes
// on: the report shows what became of the workload clusters.
func (d *demo) run(ctx context.Context, p *phase, args ...string) {
	if err := d.mgmtctl(ctx, args...); err != nil {
		d.story.failures = append(d.story.failures, err.Error())
	}
	p.command = time.Since(p.begun)
}
