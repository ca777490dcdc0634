package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// other is the second management cluster of moves.
const other = "mgmt-2"

// fleets are the prefixes of equal fleets that are moved together.
var fleets = []string{"one-", "two-"}

// settleTimeout is how long the controllers may take to report a moved fleet as healthy as before.
const settleTimeout = 5 * time.Minute

// liveMoves moves one live fleet to and fro, with clusterctl and with mgmtctl.
type liveMoves struct {
	*bench
	clients map[string]client.Client // by name of the management cluster
	// namespaces are those of the workload clusters, everywhere are those of ClusterClasses as well.
	namespaces, everywhere []string
	before                 observe.Objects
}

// moved are the figures of moves with one program.
type moved struct {
	commands []time.Duration
	// pauses of workload clusters; acknowledged is how much of each the controllers of the source
	// took to acknowledge it, and own is the rest.
	pauses, acknowledged, own []time.Duration
}

// moves measures moves of a live fleet by clusterctl and by mgmtctl.
func moves(ctx context.Context, opts Options) error {
	if opts.Moves == 0 {
		return nil
	}
	m := &liveMoves{bench: &bench{Options: opts}, clients: map[string]client.Client{}}
	return m.with(ctx, m.start, m.measure)
}

// start starts two management clusters and provisions a fleet on the first. None of its workload
// clusters is paused, since clusterctl refuses to move such a one.
func (m *liveMoves) start(ctx context.Context) error {
	// The controllers resync as they do when nobody says otherwise.
	if err := m.startLab(ctx, lab.Options{Mgmt: 2, SyncPeriod: 10 * time.Minute}); err != nil {
		return err
	}
	for _, name := range []string{source, other} {
		config, err := m.lab.Mgmt(name).RESTConfig()
		if err != nil {
			return err
		}
		if m.clients[name], err = client.New(config, client.Options{}); err != nil {
			return fmt.Errorf("make client: %w", err)
		}
	}
	shapes := together(fleet.Named("classy", "classy-ha", "plain", "plain-ha", "cross"), m.Together)
	fleets := fleets
	if m.Together > 1 {
		fleets = fleets[:1]
	}
	for _, shape := range shapes {
		for _, prefix := range fleets {
			m.namespaces = append(m.namespaces, prefix+shape.Namespace)
			m.everywhere = append(m.everywhere, prefix+shape.Namespace)
			if shape.ClassNamespace != "" {
				m.everywhere = append(m.everywhere, prefix+shape.ClassNamespace)
			}
		}
	}
	for _, list := range []*[]string{&m.namespaces, &m.everywhere} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, prefix := range fleets {
		if _, err := fleet.Create(ctx, m.clients[source], fleet.Options{Prefix: prefix, Shapes: shapes,
			Progress: m.Progress}); err != nil {
			return fmt.Errorf("provision fleet: %w", err)
		}
	}
	var err error
	m.before, err = observe.StableInventory(ctx, m.lab.Mgmt(source).Kubeconfig(), m.everywhere...)
	return err
}

// together returns several copies of each shape, in the same namespace.
func together(shapes []fleet.Shape, copies int) []fleet.Shape {
	all := slices.Clone(shapes)
	for i := 2; i <= copies; i++ {
		for _, shape := range shapes {
			shape.Name += fmt.Sprint("-", i)
			all = append(all, shape)
		}
	}
	return all
}

// measure moves the fleet there with clusterctl and back with mgmtctl, several times, and at last
// with mgmtctl one workload cluster after the other.
func (m *liveMoves) measure(ctx context.Context) error {
	var peer, batches, single moved
	for range m.Moves {
		if err := m.move(ctx, source, other, m.clusterctl, &peer); err != nil {
			return fmt.Errorf("move with clusterctl: %w", err)
		}
		if err := m.move(ctx, other, source, m.moveRun(), &batches); err != nil {
			return fmt.Errorf("move with mgmtctl: %w", err)
		}
	}
	if err := m.move(ctx, source, other, m.moveRun("--concurrency", "1"), &single); err != nil {
		return fmt.Errorf("move with mgmtctl, one after the other: %w", err)
	}
	m.report(peer, batches, single)
	return m.record(peer, batches)
}

// mover moves the namespaces of workload clusters between two management clusters.
type mover func(ctx context.Context, from, to *lab.Mgmt) error

// clusterctl moves one namespace with each command: it knows no selection.
func (m *liveMoves) clusterctl(ctx context.Context, from, to *lab.Mgmt) error {
	for _, namespace := range m.namespaces {
		cmd, err := m.home.Clusterctl(ctx, m.path("clusterctl"), "move", "--kubeconfig",
			from.Kubeconfig(), "--to-kubeconfig", to.Kubeconfig(), "--namespace", namespace)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("run clusterctl move of %s: %w\n%s", namespace, err, out.String())
		}
	}
	return nil
}

// moveRun returns a move by mgmtctl without a daemon. Each has a store of its own: the ownership
// records of the last one do not know of the moves by clusterctl.
func (m *liveMoves) moveRun(flags ...string) mover {
	return func(ctx context.Context, from, to *lab.Mgmt) error {
		signing, err := m.signing()
		if err != nil {
			return err
		}
		p := m.newPlace(m.Mgmtctl)
		args := slices.Concat([]string{"move", "run", "--standalone", "--store",
			m.s3.URL(bucketName, p.name), "--catalog", p.catalog, "--trusted-key",
			m.path("keys/signing.pub"), "--source-kubeconfig", from.Kubeconfig(), "--target-kubeconfig",
			to.Kubeconfig(), "--observe", "0", "--yes"}, signing, flags)
		for _, namespace := range m.namespaces {
			args = append(args, "--namespace", namespace)
		}
		_, err = m.mgmtctl(ctx, args...)
		return err
	}
}

// move moves the fleet, adds the figures to those of the program, waits until the fleet is as
// healthy as before, and completes the move by hand. It fails when a Machine is another one than
// before.
func (m *liveMoves) move(ctx context.Context, from, to string, run mover, figures *moved) error {
	leaves, comes := m.lab.Mgmt(from), m.lab.Mgmt(to)
	reconcilers, err := observe.WatchReconcilers(ctx, map[string]string{from: leaves.Kubeconfig(),
		to: comes.Kubeconfig()})
	if err != nil {
		return fmt.Errorf("watch Clusters: %w", err)
	}
	defer func() { _ = reconcilers.Stop() }()
	acknowledgements, err := observe.WatchAcknowledgements(ctx, leaves.Kubeconfig())
	if err != nil {
		return fmt.Errorf("watch acknowledgements: %w", err)
	}
	defer func() { _ = acknowledgements.Stop() }()
	m.Progress(fmt.Sprintf("move from %s to %s", from, to))
	begun := time.Now()
	if err := run(ctx, leaves, comes); err != nil {
		return err
	}
	figures.commands = append(figures.commands, time.Since(begun))
	if err := errors.Join(reconcilers.Stop(), acknowledgements.Stop()); err != nil {
		return fmt.Errorf("watch %s and %s: %w", from, to, err)
	}
	if conflicts := reconcilers.Conflicts(); len(conflicts) > 0 {
		return errors.New(conflicts[0])
	}
	pauses := reconcilers.PauseTimes(from, to)
	if want := len(m.before.Of("cluster.x-k8s.io", "Cluster")); len(pauses) != want {
		return fmt.Errorf("%d workload clusters were paused and released, not %d", len(pauses), want)
	}
	acknowledged := acknowledgements.In(pauses)
	for workload, pause := range pauses {
		figures.pauses = append(figures.pauses, pause.Length())
		figures.acknowledged = append(figures.acknowledged, acknowledged[workload])
		figures.own = append(figures.own, pause.Length()-acknowledged[workload])
	}
	return m.settle(ctx, from, to)
}

// settle waits until a moved fleet is as healthy as before, completes its move by hand, and waits
// until nothing changes.
func (m *liveMoves) settle(ctx context.Context, from, to string) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	target := m.lab.Mgmt(to).Kubeconfig()
	if _, err := observe.Await(ctx, target, func(after observe.Objects) []string {
		return observe.Health(m.before, after)
	}, m.everywhere...); err != nil {
		return fmt.Errorf("wait until %s is healthy: %w", to, err)
	}
	if err := m.complete(ctx, from, to); err != nil {
		return fmt.Errorf("complete the move by hand: %w", err)
	}
	after, err := observe.StableInventory(ctx, target, m.everywhere...)
	if err != nil {
		return err
	}
	if problems := observe.CompareMachines(m.before, after); len(problems) > 0 {
		return fmt.Errorf("%d Machines are not what they were, the first: %s", len(problems), problems[0])
	}
	return nil
}
