package live

import (
	"context"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// Namespaces of TestLongLivedIn: of the workload clusters that it moves, and of those that it only
// restores. Those with "-ha" have three control plane Machines.
const (
	livedMovedNS, livedMovedHANS       = "lived-moved", "lived-moved-ha"
	livedRestoredNS, livedRestoredHANS = "lived-restored", "lived-restored-ha"
)

// livedFleet is the fixture of TestLongLivedIn.
type livedFleet struct {
	*fixture
	opts fleet.Options
	// living are the shapes of the workload clusters that go through a life, reborn those that are
	// deleted and created again under their names.
	living, reborn []fleet.Shape
}

// TestLongLivedIn moves and restores workload clusters of Cluster API's own classes and templates
// that were lived in: scaled up and down, upgraded by a minor version, rolled out, relabelled,
// remediated by a MachineHealthCheck, paused and unpaused, or deleted and created again. Those that
// are moved are scaled on the target, and moved back. Then the source is killed, and everything is
// restored and scaled once more.
func TestLongLivedIn(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	l := &livedFleet{fixture: &fixture{dir: t.TempDir()}}
	t.Cleanup(l.close)
	l.build(t)
	t.Run("Moved", l.testMoved)
	if t.Failed() {
		t.Fatal("the moves failed: the source is not in the expected state")
	}
	t.Run("Restored", l.testRestored)
}

// build starts the lab, provisions the fleet and lets it live.
func (l *livedFleet) build(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	if err := l.start(ctx, lab.Options{}); err != nil {
		t.Fatal(err)
	}
	home, err := lab.FindHome()
	if err != nil {
		t.Fatal(err)
	}
	templates, err := lab.Templates(ctx, home)
	if err != nil {
		t.Fatal(err)
	}
	shape := func(namespace, name string, controlPlanes, workers int) fleet.Shape {
		return fleet.Shape{Name: name, Namespace: namespace, ClassNamespace: namespace,
			ControlPlanes: controlPlanes, Pools: []int{workers}, Templates: templates}
	}
	for _, ns := range []string{livedMovedNS, livedRestoredNS} {
		l.living = append(l.living, shape(ns, "lived", 1, 1), shape(ns+"-ha", "lived", 3, 2))
		l.reborn = append(l.reborn, shape(ns, "reborn", 1, 1))
	}
	l.opts = fleet.Options{Shapes: slices.Concat(l.living, l.reborn), Progress: printProgress}
	c := l.clients[l.source]
	if _, err := fleet.Create(ctx, c, l.opts); err != nil {
		t.Fatal(err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, s := range l.living {
		group.Go(func() error { return fleet.Live(groupCtx, c, l.opts, s) })
	}
	for _, s := range l.reborn {
		group.Go(func() error { return fleet.Rebirth(groupCtx, c, l.opts, s) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if l.beforeMoves, err = observe.StableInventory(ctx, l.source.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := l.readSecrets(ctx); err != nil {
		t.Fatal(err)
	}
}

// testMoved moves two namespaces, scales their workload clusters on the target, and moves them
// back.
func (l *livedFleet) testMoved(t *testing.T) {
	o := &operator{fixture: l.fixture, t: t, state: t.TempDir()}
	namespaces := []string{livedMovedNS, livedMovedHANS}
	reconcilers, err := observe.WatchReconcilers(t.Context(), map[string]string{
		l.source.Name(): l.source.Kubeconfig(), l.target.Name(): l.target.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer reconcilers.Stop()
	arrived, err := observe.Watch(t.Context(), l.target.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	defer arrived.Stop()
	before := l.beforeMoves.In(namespaces...)
	o.moveStandalone(l.source, l.target, namespaces...)
	o.assertMoved(t, l.source, l.target, before, namespaces...)
	assertNone(t, "arrivals", observe.UnexplainedByMoves(arrived.Events(namespaces...), before, 1, 0))

	l.scale(t, l.target, namespaces...)
	before, err = observe.StableInventory(t.Context(), l.target.Kubeconfig(), namespaces...)
	if err != nil {
		t.Fatal(err)
	}
	o.moveStandalone(l.target, l.source, namespaces...)
	o.assertMoved(t, l.target, l.source, before, namespaces...)
	if err := reconcilers.Stop(); err != nil {
		t.Errorf("watch Clusters: %v", err)
	}
	assertNone(t, "reconciled twice", reconcilers.Conflicts())
}

// moveStandalone moves namespaces without a daemon.
func (o *operator) moveStandalone(from, to *lab.Mgmt, namespaces ...string) {
	o.t.Helper()
	o.run(codeDone, append(o.moveArgs("run", from, to, namespaces...), "--yes")...)
}

// moveArgs are the arguments of a plan or a run of a move without a daemon.
func (o *operator) moveArgs(verb string, from, to *lab.Mgmt, namespaces ...string) []string {
	o.t.Helper()
	args := append([]string{"move", verb}, o.moveFlags(from, to)...)
	for _, ns := range namespaces {
		args = append(args, "--namespace", ns)
	}
	return args
}

// moveFlags are the flags of commands without a daemon for a move.
func (o *operator) moveFlags(from, to *lab.Mgmt) []string {
	o.t.Helper()
	recipient, err := o.recipient()
	if err != nil {
		o.t.Fatal(err)
	}
	return []string{"--standalone", "--store", o.store(), "--recipient", recipient, "--signing-key",
		o.keys("signing.key"), "--trusted-key", o.keys("signing.pub"), "--source-kubeconfig",
		from.Kubeconfig(), "--target-kubeconfig", to.Kubeconfig()}
}

// scale scales each workload cluster of the namespaces that was lived in up and down again.
func (l *livedFleet) scale(t *testing.T, m *lab.Mgmt, namespaces ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range l.opts.Shapes {
		if !slices.Contains(namespaces, s.Namespace) {
			continue
		}
		group.Go(func() error {
			for _, workers := range []int{s.Pools[0] + 1, s.Pools[0]} {
				if err := fleet.Scale(ctx, l.clients[m], l.opts, s, workers); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// testRestored kills the source, restores everything, and scales all workload clusters on the
// target.
func (l *livedFleet) testRestored(t *testing.T) {
	o := &operator{fixture: l.fixture, t: t, state: t.TempDir()}
	if err := l.captureAndKill(t.Context()); err != nil {
		t.Fatal(err)
	}
	namespaces := []string{livedMovedNS, livedMovedHANS, livedRestoredNS, livedRestoredHANS}
	// The store has snapshots of both: each was the source of a move.
	o.restore(codeDone, "--source", l.source.Name(), "--source-is-gone", "--force",
		"source-seen-recently", "--signing-key",
		o.keys("signing.key"))
	o.assertRestored(t, l.before, nil, namespaces...)
	time.Sleep(window)
	o.assertRestored(t, l.before, nil, namespaces...)
	assertNone(t, "created again or deleted", observe.UnexplainedByRestore(l.watcher.Events(),
		l.before))
	l.scale(t, l.target, namespaces...)
}
