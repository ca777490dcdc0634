package live

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// codeHeld is the exit code of a host that is fenced out.
const codeHeld = 11

// Namespaces of TestLongHostLost. Each has one workload cluster.
const (
	moveGoesOnNS    = "move-goes-on"
	moveUndoneNS    = "move-undone"
	restoreGoesOnNS = "restore-goes-on"
	restoreUndoneNS = "restore-undone"
)

// hostLost is the fixture of TestLongHostLost.
type hostLost struct {
	*fixture
	namespaces        []string
	leaving, arriving *observe.Watcher // of the source and of the target
	reconcilers       *observe.ReconcilerWatch
}

// TestLongHostLost loses the host of a restore and of a move in the middle, with its catalog and
// without. Another host, which has the keys, the store and the kubeconfigs, and an empty catalog,
// finishes the operation or undoes it from the mirror. Where the first host was only suspended, it
// wakes up meanwhile and ends with exit code 11. No workload cluster is ever reconciled twice.
func TestLongHostLost(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	h := &hostLost{fixture: &fixture{dir: t.TempDir()}, namespaces: []string{moveGoesOnNS,
		moveUndoneNS, restoreGoesOnNS, restoreUndoneNS}}
	t.Cleanup(h.close)
	h.build(t)
	t.Run("MoveFinishedElsewhere", h.testMoveFinished)
	t.Run("MoveUndoneElsewhere", h.testMoveUndone)
	// Beyond this the source is dead, and what it was last seen to reconcile is no conflict.
	if err := h.reconcilers.Stop(); err != nil {
		t.Errorf("watch Clusters: %v", err)
	}
	assertNone(t, "reconciled twice", h.reconcilers.Conflicts())
	if err := h.leaving.Stop(); err != nil {
		t.Errorf("watch the source: %v", err)
	}
	if err := h.source.KillAll(); err != nil {
		t.Fatal(err)
	}
	t.Run("RestoreFinishedElsewhere", h.testRestoreFinished)
	t.Run("RestoreUndoneElsewhere", h.testRestoreUndone)
	t.Run("Window", h.testWindow)
}

// build starts the lab, makes one workload cluster per scenario, and takes a snapshot.
func (h *hostLost) build(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := h.start(ctx, lab.Options{}); err != nil {
		t.Fatal(err)
	}
	var shapes []fleet.Shape
	for _, namespace := range h.namespaces {
		shapes = append(shapes, fleet.Shape{Name: "web", Namespace: namespace,
			ClassNamespace: namespace, ControlPlanes: 1, Pools: []int{1}})
	}
	h.provision(ctx, t, shapes)
	if _, err := h.snapshot(ctx); err != nil {
		t.Fatal(err)
	}
}

// provision makes a fleet on the source, and observes both management clusters from then on.
func (h *hostLost) provision(ctx context.Context, t *testing.T, shapes []fleet.Shape) {
	t.Helper()
	h.workloads = len(shapes)
	if _, err := fleet.Create(ctx, h.clients[h.source], fleet.Options{Shapes: shapes,
		Progress: printProgress}); err != nil {
		t.Fatal(err)
	}
	if err := h.readSecrets(ctx); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.before, err = observe.StableInventory(ctx, h.source.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := h.startProbe(ctx, h.namespaces...); err != nil {
		t.Fatal(err)
	}
	h.watch(t)
}

// watch observes both management clusters until the end of the test.
func (h *hostLost) watch(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var err error
	if h.reconcilers, err = observe.WatchReconcilers(ctx, map[string]string{
		h.source.Name(): h.source.Kubeconfig(), h.target.Name(): h.target.Kubeconfig(),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.reconcilers.Stop() })
	if h.leaving, err = observe.Watch(ctx, h.source.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.leaving.Stop() })
	if h.arriving, err = observe.Watch(ctx, h.target.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	h.watcher = h.arriving
}

// host is a host with a catalog of its own.
func (h *hostLost) host(t *testing.T) *operator {
	t.Helper()
	return &operator{fixture: h.fixture, t: t, state: t.TempDir()}
}

// flags are those of a host that has all keys, and so may take over.
func (h *hostLost) flags(t *testing.T) []string {
	t.Helper()
	recipient, err := h.recipient()
	if err != nil {
		t.Fatal(err)
	}
	return append(h.host(t).flags(), "--recipient", recipient, "--signing-key",
		h.keys("signing.key"))
}

// moveFlags are flags for a move.
func (h *hostLost) moveFlags(t *testing.T) []string {
	t.Helper()
	return append(h.flags(t), "--source-kubeconfig", h.source.Kubeconfig())
}

// listed returns the id of the one operation of a namespace that a host lists as not ended.
func (o *operator) listed(state string, flags []string) string {
	o.t.Helper()
	var list struct {
		Operations []operation `json:"operations"`
	}
	args := []string{"operation", "list", "-o", "json", "--standalone", "--store", o.store(),
		"--trusted-key", o.keys("signing.pub")}
	if err := o.run(codeDone, args...).decode(&list); err != nil {
		o.t.Fatal(err)
	}
	var ids []string
	for _, op := range list.Operations {
		if op.State == "OPERATION_STATE_RUNNING" || op.State == "OPERATION_STATE_UNKNOWN" {
			ids = append(ids, op.ID)
		}
	}
	if len(ids) != 1 {
		o.t.Fatalf("want one operation that is %s: %+v", state, list.Operations)
	}
	return ids[0]
}

// suspended is a run of mgmtctl that SIGSTOP has suspended.
type suspended struct {
	*operator
	process *os.Process
	ended   <-chan output
}

// runAndSuspend starts a command and suspends it at a moment.
func (o *operator) runAndSuspend(at moment, args ...string) *suspended {
	o.t.Helper()
	watcher := o.watch(at)
	defer func() { watcher.Stop() }()
	process, done := o.begin(args...)
	for {
		select {
		case out := <-done:
			o.t.Fatalf("it ended before it was suspended:\n%s", out.text())
		case event, open := <-watcher.ResultChan():
			if !open {
				watcher = o.watch(at)
			} else if at.reached(event) {
				if err := process.Signal(syscall.SIGSTOP); err != nil {
					o.t.Fatal(err)
				}
				return &suspended{o, process, done}
			}
		}
	}
}

// wakeUp lets the run go on, and asserts that it ends fenced out.
func (s *suspended) wakeUp() {
	s.t.Helper()
	if err := s.process.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
	out := <-s.ended
	s.assertOutput(out, codeHeld)
	if !strings.Contains(out.stdout+out.stderr, "has taken over operation") {
		s.t.Errorf("it does not say who has taken over:\n%s", out.text())
	}
}

// runUntil starts a command, calls fn at a moment and asserts the exit code of the command.
func (o *operator) runUntil(at moment, fn func(), code int, args ...string) {
	o.t.Helper()
	o.runAndInterrupt(at, func(*os.Process) { fn() }, code, args...)
}

// testMoveFinished suspends a host in the middle of the copy. Another one finishes the move. The
// first one wakes up when the other one has released the workload cluster.
func (h *hostLost) testMoveFinished(t *testing.T) {
	first, other := h.host(t), h.host(t)
	flags := h.moveFlags(t)
	s := first.runAndSuspend(moment{h.target, "Machine", moveGoesOnNS, created},
		slices.Concat([]string{"move", "run", "--yes", "--namespace", moveGoesOnNS}, flags)...)
	id := other.listed("running", flags)
	other.runUntil(moment{h.target, "Cluster", moveGoesOnNS, released}, s.wakeUp, codeDone,
		slices.Concat([]string{"operation", "resume", id}, flags)...)
	before := h.before.In(moveGoesOnNS)
	h.assertMoved(t, h.source, h.target, before, moveGoesOnNS)
	assertNone(t, "arrivals", observe.UnexplainedByMoves(h.arriving.Events(moveGoesOnNS), before, 1,
		0))
	assertNone(t, "departures", observe.UnexplainedByMoves(h.leaving.Events(moveGoesOnNS), before, 0,
		1))
	// A command with the first catalog says so as well, and may import how the operation ended.
	first.run(codeDone, slices.Concat([]string{"operation", "resume", id}, flags)...)
}

// testMoveUndone kills a host, whose catalog stays, while the source is paused. Another host rolls
// the move back.
func (h *hostLost) testMoveUndone(t *testing.T) {
	first, other := h.host(t), h.host(t)
	flags := h.moveFlags(t)
	first.runAndKill(moment{h.target, "Machine", moveUndoneNS, created},
		slices.Concat([]string{"move", "run", "--yes", "--namespace", moveUndoneNS}, flags)...)
	id := other.listed("running", flags)
	other.run(codeDone, slices.Concat([]string{"operation", "rollback", id}, flags)...)
	before := h.before.In(moveUndoneNS)
	h.assertIntactOn(t, h.source, before, nil, moveUndoneNS)
	assertNone(t, "left on the target", observe.Left(h.inventoryOf(t, h.target, moveUndoneNS)))
	assertNone(t, "on the source", observe.UnexplainedByMoves(h.leaving.Events(moveUndoneNS), before,
		0, 0))
	// The first host has its catalog, which says that it died in the middle. Without the identity it
	// cannot read what the other one did.
	flags = slices.DeleteFunc(slices.Clone(flags), func(f string) bool {
		return f == "--identity" || f == h.keys("identity.txt")
	})
	first.run(codeHeld, slices.Concat([]string{"operation", "resume", id}, flags)...)
}

// testRestoreFinished kills a host whose catalog is lost, too. Another one finishes the restore.
func (h *hostLost) testRestoreFinished(t *testing.T) {
	first, other := h.host(t), h.host(t)
	flags := h.flags(t)
	first.runAndKill(moment{h.target, "Machine", restoreGoesOnNS, created},
		slices.Concat([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
			"source-seen-recently", "--namespace", restoreGoesOnNS}, flags)...)
	if err := os.RemoveAll(first.state); err != nil {
		t.Fatal(err)
	}
	id := other.listed("running", flags)
	other.run(codeDone, slices.Concat([]string{"operation", "resume", id}, flags)...)
	h.assertRestored(t, h.before.In(restoreGoesOnNS), nil, restoreGoesOnNS)
}

// testRestoreUndone suspends a host in the middle of a wave. Another one rolls the restore back.
// The first one wakes up after that, and creates nothing more. Then a third host restores.
func (h *hostLost) testRestoreUndone(t *testing.T) {
	first, other, third := h.host(t), h.host(t), h.host(t)
	flags := h.flags(t)
	restore := slices.Concat([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently", "--namespace", restoreUndoneNS}, flags)
	s := first.runAndSuspend(moment{h.target, "Machine", restoreUndoneNS, created}, restore...)
	id := other.listed("running", flags)
	time.Sleep(12 * time.Second) // the first host may create for 10 s without asking the store
	other.run(codeDone, slices.Concat([]string{"operation", "rollback", id}, flags)...)
	s.wakeUp()
	assertNone(t, "left on the target", observe.Left(h.inventoryOf(t, h.target, restoreUndoneNS)))
	third.run(codeDone, restore...)
	h.assertRestored(t, h.before.In(restoreUndoneNS), nil, restoreUndoneNS)
}

// testWindow waits for three resyncs. In the whole test no Machine was created or deleted but by
// copies, and each workload cluster answered all the time.
func (h *hostLost) testWindow(t *testing.T) {
	time.Sleep(window)
	if err := h.arriving.Stop(); err != nil {
		t.Errorf("watch the target: %v", err)
	}
	for _, namespace := range []string{moveGoesOnNS, restoreGoesOnNS} {
		assertNone(t, "created again or deleted", observe.UnexplainedByRestore(
			h.arriving.Events(namespace), h.before))
	}
	for _, event := range h.arriving.Events() {
		if event.What == observe.Deleting {
			t.Errorf("a controller saw the deletion of %+v", event)
		}
	}
	h.assertAnswered(t)
}
