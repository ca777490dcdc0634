package live

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// moves is the state that the scenarios of TestMovesBetweenLiveManagementClusters share.
type moves struct {
	daemon           *lab.Daemon
	reconcilers      *observe.ReconcilerWatch
	leaving, arrived *observe.Watcher // of the source and of the target
}

// TestMovesBetweenLiveManagementClusters moves different namespaces of the fleet at once, while a
// schedule takes snapshots of the source. No workload cluster may ever be reconciled by both
// management clusters (invariant I1).
func TestMovesBetweenLiveManagementClusters(t *testing.T) {
	skipInLong(t)
	f := shared
	f.moveFailed = true
	m := &moves{}
	var err error
	if m.daemon, err = f.startDaemon(t.Context(), "main", lab.Schedule{Name: "often",
		Cron: "@every 30s", Source: f.source.Name()}); err != nil {
		t.Fatal(err)
	}
	defer m.daemon.Close()
	kubeconfigs := map[string]string{f.source.Name(): f.source.Kubeconfig(),
		f.target.Name(): f.target.Kubeconfig()}
	if m.reconcilers, err = observe.WatchReconcilers(t.Context(), kubeconfigs); err != nil {
		t.Fatal(err)
	}
	defer m.reconcilers.Stop()
	if m.leaving, err = observe.Watch(t.Context(), f.source.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	defer m.leaving.Stop()
	if m.arrived, err = observe.Watch(t.Context(), f.target.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	defer m.arrived.Stop()

	t.Run("Scenarios", func(t *testing.T) {
		t.Run("MovedAndBack", m.testMovedAndBack)
		t.Run("KilledAndResumed", m.testKilledAndResumed)
		t.Run("RolledBack", m.testRolledBack)
	})

	t.Run("OneReconcilerAtATime", func(t *testing.T) {
		if err := m.reconcilers.Stop(); err != nil {
			t.Errorf("watch Clusters: %v", err)
		}
		assertNone(t, "reconciled twice", m.reconcilers.Conflicts())
	})
	t.Run("Scheduled", m.testScheduled)
	f.moveFailed = t.Failed()
}

// startDaemon starts a daemon with its own catalog and its own prefix in the bucket.
func (f *fixture) startDaemon(ctx context.Context, name string, schedules ...lab.Schedule) (
	*lab.Daemon, error) {
	return f.startDaemonOver(ctx, name, f.source.Kubeconfig(), schedules...)
}

// startDaemonOver starts a daemon that reaches the source with another kubeconfig.
func (f *fixture) startDaemonOver(ctx context.Context, name, source string,
	schedules ...lab.Schedule) (*lab.Daemon, error) {
	return lab.StartDaemon(ctx, lab.DaemonOptions{
		Program: f.mgmtd, Dir: filepath.Join(f.dir, name), Keys: f.keys(""), S3: f.s3, Bucket: bucket,
		Prefix: name, Schedules: schedules,
		Mgmts: map[string]string{f.source.Name(): source, f.target.Name(): f.target.Kubeconfig()},
	})
}

// runOn runs a command against a daemon and asserts its exit code.
func (o *operator) runOn(d *lab.Daemon, code int, args ...string) output {
	o.t.Helper()
	out := o.run(code, append(args, "--address", d.Address())...)
	return out
}

// move returns the arguments of a move between two management clusters of a daemon.
func move(from, to *lab.Mgmt, selection ...string) []string {
	return append([]string{"move", "run", "--yes", "--source", from.Name(), "--target", to.Name()},
		selection...)
}

// assertMoved asserts everything that a move promises. before is everything that was in namespaces.
func (f *fixture) assertMoved(t *testing.T, from, to *lab.Mgmt, before observe.Objects,
	namespaces ...string) {
	t.Helper()
	f.assertIntactOn(t, to, before, nil, namespaces...)
	assertNone(t, "left", observe.Left(f.inventoryOf(t, from, namespaces...)))
}

// inventoryOf returns the objects of a management cluster in namespaces.
func (f *fixture) inventoryOf(t *testing.T, m *lab.Mgmt, namespaces ...string) observe.Objects {
	t.Helper()
	objects, err := observe.Inventory(t.Context(), m.Kubeconfig(), namespaces...)
	if err != nil {
		t.Fatalf("inventory of %s: %v", m.Name(), err)
	}
	return objects
}

// testMovedAndBack moves one of two workload clusters that share a ClusterClass, then all others of
// a mixed fleet, and then everything back. The source must be as before.
func (m *moves) testMovedAndBack(t *testing.T) {
	o := operate(t)
	namespaces := o.namespacesWith("mixed-")
	before := o.beforeMoves.In(namespaces...)
	var selection []string
	for _, namespace := range namespaces {
		selection = append(selection, "--namespace", namespace)
	}
	m.moveOneOfTwo(o, "mixed-team-a", "classy", "classy-ha")

	o.runOn(m.daemon, codeDone, move(o.source, o.target, selection...)...)
	o.assertMoved(t, o.source, o.target, before, namespaces...)
	t.Logf("pauses: %v", m.reconcilers.Pauses(o.source.Name(), o.target.Name()))
	assertNone(t, "arrivals", observe.UnexplainedByMoves(m.arrived.Events(namespaces...), before, 1,
		0))
	assertNone(t, "departures", observe.UnexplainedByMoves(m.leaving.Events(namespaces...), before, 0,
		1))

	o.runOn(m.daemon, codeDone, move(o.target, o.source, selection...)...)
	o.assertMoved(t, o.target, o.source, before, namespaces...)
	pauses := m.reconcilers.Pauses(o.target.Name(), o.source.Name())
	t.Logf("pauses of the move back: %v", pauses)
	assertNone(t, "arrivals and departures",
		observe.UnexplainedByMoves(m.arrived.Events(namespaces...), before, 1, 1))
	assertNone(t, "departures and arrivals",
		observe.UnexplainedByMoves(m.leaving.Events(namespaces...), before, 1, 1))
	// One workload cluster was paused before the moves.
	if want := len(before.Of("cluster.x-k8s.io", "Cluster")) - 1; len(pauses) != want {
		t.Errorf("%d workload clusters were paused and released by the move back, want %d",
			len(pauses), want)
	}
}

// moveOneOfTwo moves one of two workload clusters of a namespace that share a ClusterClass. Both
// management clusters must have the class then, unchanged.
func (m *moves) moveOneOfTwo(o *operator, namespace, goes, stays string) {
	o.t.Helper()
	all := o.beforeMoves.In(namespace)
	o.runOn(m.daemon, codeDone, move(o.source, o.target, "--workload", namespace+"/"+goes)...)
	source, target := o.inventoryOf(o.t, o.source, namespace), o.inventoryOf(o.t, o.target, namespace)
	staying, going, gone := observe.Objects{}, observe.Objects{}, observe.Objects{}
	for ref, object := range all {
		if clusterOf(object) == goes {
			gone[ref] = object
		} else {
			staying[ref] = object
		}
		if clusterOf(object) == goes || target[ref] != nil {
			going[ref] = object
		}
	}
	assertNone(o.t, "copied without need", belonging(target, []string{stays}))
	o.assertIntactOn(o.t, o.target, going, nil, namespace)
	o.assertIntactOn(o.t, o.source, staying, nil, namespace)
	for ref := range staying {
		if source[ref] != nil && source[ref].GetUID() != all[ref].GetUID() {
			o.t.Errorf("%s was created again on the source", ref)
		}
	}
	class := observe.Ref{Group: "cluster.x-k8s.io", Kind: "ClusterClass", Namespace: namespace,
		Name: "in-memory"}
	for name, objects := range map[string]observe.Objects{"source": source, "target": target} {
		if is := objects[class]; is == nil || observe.Paused(is) || is.GetDeletionTimestamp() != nil {
			o.t.Errorf("the class on the %s: %v", name, is)
		}
	}
	assertNone(o.t, "arrivals", observe.UnexplainedByMoves(m.arrived.Events(namespace), gone, 1, 0))
	assertNone(o.t, "departures", observe.UnexplainedByMoves(m.leaving.Events(namespace), gone, 0, 1))
}

// testKilledAndResumed kills a standalone mgmtctl with kill -9 while it copies, right after the
// hand-over, and while it retires, and resumes the move each time.
func (m *moves) testKilledAndResumed(t *testing.T) {
	o := operate(t)
	before := o.beforeMoves.In(killedNS)
	recipient, err := o.recipient()
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{
		"--standalone", "--store", o.s3.URL(bucket, "alone"), "--recipient", recipient, "--signing-key",
		o.keys("signing.key"),
		"--trusted-key", o.keys("signing.pub"), "--source-kubeconfig", o.source.Kubeconfig(),
		"--target-kubeconfig", o.target.Kubeconfig(),
	}
	resume := slices.Concat([]string{"operation", "resume", "latest"}, flags)
	o.runAndKill(moment{o.target, "Machine", killedNS, created},
		slices.Concat([]string{"move", "run", "--yes", "--namespace", killedNS}, flags)...)
	o.runAndKill(moment{o.target, "Cluster", killedNS, released}, resume...)
	o.runAndKill(moment{o.source, "Machine", killedNS, deleted}, resume...)
	o.run(codeDone, resume...)
	o.assertMoved(t, o.source, o.target, before, killedNS)
	assertNone(t, "arrivals", observe.UnexplainedByMoves(m.arrived.Events(killedNS), before, 1, 0))
	assertNone(t, "departures", observe.UnexplainedByMoves(m.leaving.Events(killedNS), before, 0, 1))
	o.checkAgainLater("MovedWithKills", func(t *testing.T) {
		o.assertRestored(t, before, nil,
			killedNS)
	})
}

// operation is the output of operation show.
type operation struct {
	ID    string            `json:"id"`
	Kind  string            `json:"kind"`
	State string            `json:"state"`
	Units map[string]string `json:"units"`
}

// testRolledBack kills a daemon with kill -9 while it copies, and rolls the move back. The source
// must be as before, and the target empty.
func (m *moves) testRolledBack(t *testing.T) {
	o := operate(t)
	before := o.beforeMoves.In(resumeNS)
	daemon, err := o.startDaemon(t.Context(), "back")
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	args := append(move(o.source, o.target, "--namespace", resumeNS), "--address", daemon.Address())
	o.runAndInterrupt(moment{o.target, "Machine", resumeNS, created},
		func(*os.Process) { daemon.Kill() },
		codeError, args...)
	if err := daemon.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var op operation
	// The daemon resumes the move when it starts, so stop it first.
	for o.runOn(daemon, codeDone, "operation", "stop", "latest"); op.State == "" ||
		op.State == "OPERATION_STATE_RUNNING"; time.Sleep(200 * time.Millisecond) {
		if err := o.runOn(daemon, codeDone, "operation", "show", "latest", "-o", "json").decode(
			&op); err != nil {
			t.Fatal(err)
		}
	}
	if unit := op.Units[resumeNS+"/web"]; op.Kind != "move" || op.State != "OPERATION_STATE_STOPPED" ||
		!slices.Contains([]string{"pending", "locked", "paused", "copied"}, unit) {
		t.Errorf("after the kill: %+v", op)
	}
	o.runOn(daemon, codeDone, "operation", "rollback", op.ID)

	o.assertIntactOn(t, o.source, before, nil, resumeNS)
	assertNone(t, "creations and deletions on the source",
		observe.UnexplainedByMoves(m.leaving.Events(resumeNS), before, 0, 0))
	for ref, is := range o.inventoryOf(t, o.source, resumeNS) {
		if was := before[ref]; was == nil || was.GetUID() != is.GetUID() {
			t.Errorf("%s was created again on the source", ref)
		}
	}
	assertNone(t, "left on the target", observe.Left(o.inventoryOf(t, o.target, resumeNS)))
	if err := o.runOn(daemon, codeDone, "operation", "show", op.ID, "-o", "json").decode(
		&op); err != nil {
		t.Fatal(err)
	}
	if op.State != "OPERATION_STATE_ROLLED_BACK" || op.Units[resumeNS+"/web"] != "rolled-back" {
		t.Errorf("after the rollback: %+v", op)
	}
}

// testScheduled checks the schedule that ran during the moves.
func (m *moves) testScheduled(t *testing.T) {
	o := &operator{fixture: shared, t: t, state: t.TempDir()}
	var list struct {
		Schedules []struct {
			LastSuccessTime, LastError string
		} `json:"schedules"`
	}
	if err := o.runOn(m.daemon, codeDone, "schedule", "list", "-o", "json").decode(
		&list); err != nil {
		t.Fatal(err)
	}
	if len(list.Schedules) != 1 || list.Schedules[0].LastSuccessTime == "" ||
		list.Schedules[0].LastError != "" {
		t.Errorf("schedules: %+v", list.Schedules)
	}
	out := o.runOn(m.daemon, codeDone, "snapshot", "list")
	if lines := strings.Count(out.stdout, "\n"); lines < 3 {
		t.Errorf("too few snapshots:\n%s", out.text())
	}
}
