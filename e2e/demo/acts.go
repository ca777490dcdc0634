package demo

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// patience is how long what is unhealthy may stay so: a controller may be in the middle of
// something.
const patience = time.Minute

// outage kills the first management cluster and restores into the second, under
// the eyes of a probe of every workload API server, a watch on the second, and a
// look at the control planes. The third one starts meanwhile.
func (d *demo) outage(ctx context.Context) error {
	s := &d.story
	target := d.lab.Mgmt(refuge).Kubeconfig()
	var err error
	// It goes on to the very end.
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

	d.title("The outage: kill -9 of all of %s", lost)
	if err := d.lab.Mgmt(lost).KillAll(); err != nil {
		return fmt.Errorf("kill %s: %w", lost, err)
	}
	d.line("kube-apiserver, etcd, garbage collector, Cluster API core, bootstrap, control plane " +
		"and infrastructure provider: gone")
	if err := d.mgmtctl(ctx, "schedule", "pause", schedule); err != nil {
		return err
	}
	times, err := d.snapshots()
	if err != nil {
		return err
	}

	d.title("Restore the newest snapshot into %s", refuge)
	d.line("(--force: the newest snapshot is younger than three intervals of its schedule, so it " +
		"might still be at work; we know better)")
	s.restore.begun = time.Now()
	s.age = s.restore.begun.Sub(times[len(times)-1])
	d.run(ctx, &s.restore, "restore", "run", "--source", lost, "--target", refuge, "--identity",
		identity, "--source-is-gone", "--force", "--yes")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	d.title("Look at %s, and start a third management cluster, %s", refuge, home)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if _, err := d.lab.AddMgmt(groupCtx, home); err != nil {
			return fmt.Errorf("start %s: %w", home, err)
		}
		return nil
	})
	group.Go(func() error { return s.restore.look(groupCtx, target) })
	if err := group.Wait(); err != nil {
		return err
	}
	s.move.before = s.restore.after
	if err := watcher.Stop(); err != nil {
		return fmt.Errorf("watch %s: %w", refuge, err)
	}
	s.restore.events = watcher.Events()
	s.restore.unexplained = observe.Anew(s.restore.events, s.restore.before)
	since, err := readiness.Stop()
	if err != nil {
		s.failures = append(s.failures, err.Error())
	}
	s.ready = since.Sub(s.restore.begun)
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
	hands, err := observe.WatchHands(ctx, map[string]string{refuge: source, home: target})
	if err != nil {
		return fmt.Errorf("watch Clusters: %w", err)
	}
	defer func() { _ = hands.Stop() }()

	d.title("Move everything from %s to %s, both alive", refuge, home)
	s.move.begun = time.Now()
	d.run(ctx, &s.move, "move", "run", "--source", refuge, "--target", home, "--yes")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.title("Look on for %s: the controllers of both resync every 20s", d.Observe)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d.Observe):
	}
	s.observed = d.Observe
	s.answers = d.probe.Stop()
	for name, stop := range map[string]func() error{refuge: leaving.Stop, home: coming.Stop,
		"Clusters": hands.Stop} {
		if err := stop(); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
	}
	s.pauses = hands.Pauses(refuge, home)
	s.move.events = coming.Events()
	s.move.unexplained = append(observe.Lives(s.move.events, s.move.before, 1, 0),
		observe.Lives(leaving.Events(), s.move.before, 0, 1)...)
	s.move.twice = hands.Twice()
	if err := s.move.look(ctx, target); err != nil {
		return err
	}
	left, err := observe.Inventory(ctx, source)
	if err != nil {
		return fmt.Errorf("look at %s: %w", refuge, err)
	}
	s.move.left = observe.Left(left)
	return nil
}

// run runs mgmtctl for a phase. How long it takes is measured from its start, by
// those who look on. When it fails, what became of it is all the more interesting.
func (d *demo) run(ctx context.Context, p *phase, args ...string) {
	if err := d.mgmtctl(ctx, args...); err != nil {
		d.story.failures = append(d.story.failures, err.Error())
	}
	p.command = time.Since(p.begun)
}
