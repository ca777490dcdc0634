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

// moves is what the scenarios of TestMove share.
type moves struct {
	daemon           *lab.Daemon
	hands            *observe.Hands
	leaving, arrived *observe.Watcher // of the source and of the target
}

// TestMove moves different parts of the fleet side by side, while an observer
// looks whether a workload cluster is ever in two hands (invariant I1), and a
// schedule takes snapshots of the source all the time.
func TestMove(t *testing.T) {
	w := shared
	w.brokenMove = true
	m := &moves{}
	var err error
	if m.daemon, err = w.startDaemon(t.Context(), "main", lab.Schedule{Name: "often",
		Cron: "@every 30s", Source: w.source.Name()}); err != nil {
		t.Fatal(err)
	}
	defer m.daemon.Close()
	kubeconfigs := map[string]string{w.source.Name(): w.source.Kubeconfig(),
		w.target.Name(): w.target.Kubeconfig()}
	if m.hands, err = observe.WatchHands(t.Context(), kubeconfigs); err != nil {
		t.Fatal(err)
	}
	defer m.hands.Stop()
	if m.leaving, err = observe.Watch(t.Context(), w.source.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	defer m.leaving.Stop()
	if m.arrived, err = observe.Watch(t.Context(), w.target.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	defer m.arrived.Stop()

	t.Run("Scenarios", func(t *testing.T) {
		t.Run("ToAndFro", m.testToAndFro)
		t.Run("KilledAndResumed", m.testKilledAndResumed)
		t.Run("RolledBack", m.testRolledBack)
	})

	t.Run("OneHandAtATime", func(t *testing.T) {
		if err := m.hands.Stop(); err != nil {
			t.Errorf("watch Clusters: %v", err)
		}
		none(t, "in two hands", m.hands.Twice())
	})
	t.Run("Scheduled", m.testScheduled)
	w.brokenMove = t.Failed()
}

// startDaemon starts a daemon with a catalog and a part of the bucket of its own.
func (w *world) startDaemon(ctx context.Context, name string, schedules ...lab.Schedule) (
	*lab.Daemon, error) {
	return lab.StartDaemon(ctx, lab.DaemonOptions{
		Program: w.mgmtd, Dir: filepath.Join(w.dir, name), Keys: w.keys(""), S3: w.s3, Bucket: bucket,
		Prefix: name, Schedules: schedules,
		Mgmts: map[string]string{w.source.Name(): w.source.Kubeconfig(),
			w.target.Name(): w.target.Kubeconfig()},
	})
}

// through runs a command through a daemon and wants it to end with code.
func (o *operator) through(d *lab.Daemon, code int, args ...string) output {
	o.t.Helper()
	out := o.run(code, append(args, "--address", d.Address())...)
	return out
}

// move are the arguments of a move between management clusters of a daemon.
func move(from, to *lab.Mgmt, selection ...string) []string {
	return append([]string{"move", "run", "--yes", "--source", from.Name(), "--target", to.Name()},
		selection...)
}

// moved checks everything that a move promises of before, which is all that was in namespaces.
func (w *world) moved(t *testing.T, from, to *lab.Mgmt, before observe.Objects,
	namespaces ...string) {
	t.Helper()
	w.wellOn(t, to, before, nil, namespaces...)
	none(t, "left", observe.Left(w.held(t, from, namespaces...)))
}

// held is what a management cluster has in namespaces.
func (w *world) held(t *testing.T, m *lab.Mgmt, namespaces ...string) observe.Objects {
	t.Helper()
	objects, err := observe.Inventory(t.Context(), m.Kubeconfig(), namespaces...)
	if err != nil {
		t.Fatalf("look at %s: %v", m.Name(), err)
	}
	return objects
}

// testToAndFro moves one of two workload clusters that share a ClusterClass, then
// all others of a mixed fleet, and then everything back: the source is what it was.
func (m *moves) testToAndFro(t *testing.T) {
	o := operate(t)
	namespaces := o.namespacesWith("mixed-")
	before := o.unmoved.In(namespaces...)
	var selection []string
	for _, namespace := range namespaces {
		selection = append(selection, "--namespace", namespace)
	}
	m.moveOneOfTwo(o, "mixed-team-a", "classy", "classy-ha")

	o.through(m.daemon, codeDone, move(o.source, o.target, selection...)...)
	o.moved(t, o.source, o.target, before, namespaces...)
	t.Logf("pauses: %v", m.hands.Pauses(o.source.Name(), o.target.Name()))
	none(t, "arrivals", observe.Lives(m.arrived.Events(namespaces...), before, 1, 0))
	none(t, "departures", observe.Lives(m.leaving.Events(namespaces...), before, 0, 1))

	o.through(m.daemon, codeDone, move(o.target, o.source, selection...)...)
	o.moved(t, o.target, o.source, before, namespaces...)
	pauses := m.hands.Pauses(o.target.Name(), o.source.Name())
	t.Logf("pauses of the way back: %v", pauses)
	none(t, "arrivals and departures", observe.Lives(m.arrived.Events(namespaces...), before, 1, 1))
	none(t, "departures and arrivals", observe.Lives(m.leaving.Events(namespaces...), before, 1, 1))
	// all but the one that was paused before
	if want := len(before.Of("cluster.x-k8s.io", "Cluster")) - 1; len(pauses) != want {
		t.Errorf("%d workload clusters were seen to be paused and released on the way back, want %d",
			len(pauses), want)
	}
}

// moveOneOfTwo moves one of two workload clusters that share a ClusterClass and
// are all of their namespace: the class is on both sides, and stays what it was.
func (m *moves) moveOneOfTwo(o *operator, namespace, goes, stays string) {
	o.t.Helper()
	all := o.unmoved.In(namespace)
	o.through(m.daemon, codeDone, move(o.source, o.target, "--workload", namespace+"/"+goes)...)
	source, target := o.held(o.t, o.source, namespace), o.held(o.t, o.target, namespace)
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
	none(o.t, "came without need", belonging(target, []string{stays}))
	o.wellOn(o.t, o.target, going, nil, namespace)
	o.wellOn(o.t, o.source, staying, nil, namespace)
	for ref := range staying {
		if source[ref] != nil && source[ref].GetUID() != all[ref].GetUID() {
			o.t.Errorf("%s was made anew on the source", ref)
		}
	}
	class := observe.Ref{Group: "cluster.x-k8s.io", Kind: "ClusterClass", Namespace: namespace,
		Name: "in-memory"}
	for name, objects := range map[string]observe.Objects{"source": source, "target": target} {
		if is := objects[class]; is == nil || observe.Paused(is) || is.GetDeletionTimestamp() != nil {
			o.t.Errorf("the class on the %s: %v", name, is)
		}
	}
	none(o.t, "arrivals", observe.Lives(m.arrived.Events(namespace), gone, 1, 0))
	none(o.t, "departures", observe.Lives(m.leaving.Events(namespace), gone, 0, 1))
}

// testKilledAndResumed kills mgmtctl, which works alone here, with kill -9 while it
// copies, right after the hand-over, and while it retires, and goes on each time.
func (m *moves) testKilledAndResumed(t *testing.T) {
	o := operate(t)
	before := o.unmoved.In(killedNS)
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
	o.killed(moment{o.target, "Machine", killedNS, created},
		slices.Concat([]string{"move", "run", "--yes", "--namespace", killedNS}, flags)...)
	o.killed(moment{o.target, "Cluster", killedNS, released}, resume...)
	o.killed(moment{o.source, "Machine", killedNS, deleted}, resume...)
	o.run(codeDone, resume...)
	look := func(t *testing.T) { o.world.moved(t, o.source, o.target, before, killedNS) }
	look(t)
	none(t, "arrivals", observe.Lives(m.arrived.Events(killedNS), before, 1, 0))
	none(t, "departures", observe.Lives(m.leaving.Events(killedNS), before, 0, 1))
	o.later("MovedWithKills", func(t *testing.T) { o.world.restored(t, before, nil, killedNS) })
}

// operation is what operation show says.
type operation struct {
	ID    string            `json:"id"`
	Kind  string            `json:"kind"`
	State string            `json:"state"`
	Units map[string]string `json:"units"`
}

// testRolledBack kills a daemon with kill -9 while it copies and takes the move
// back: the source is what it was, and the target is empty.
func (m *moves) testRolledBack(t *testing.T) {
	o := operate(t)
	before := o.unmoved.In(resumeNS)
	daemon, err := o.startDaemon(t.Context(), "back")
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	args := append(move(o.source, o.target, "--namespace", resumeNS), "--address", daemon.Address())
	o.interrupted(moment{o.target, "Machine", resumeNS, created}, func(*os.Process) { daemon.Kill() },
		codeError, args...)
	if err := daemon.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var op operation
	// By itself the daemon goes on with the move.
	for o.through(daemon, codeDone, "operation", "stop", "latest"); op.State == "" ||
		op.State == "OPERATION_STATE_RUNNING"; time.Sleep(200 * time.Millisecond) {
		if err := o.through(daemon, codeDone, "operation", "show", "latest", "-o", "json").decode(
			&op); err != nil {
			t.Fatal(err)
		}
	}
	if unit := op.Units[resumeNS+"/web"]; op.Kind != "move" || op.State != "OPERATION_STATE_STOPPED" ||
		unit != "paused" && unit != "copied" {
		t.Errorf("after the kill: %+v", op)
	}
	o.through(daemon, codeDone, "operation", "rollback", op.ID)

	o.wellOn(t, o.source, before, nil, resumeNS)
	none(t, "births and deaths on the source", observe.Lives(m.leaving.Events(resumeNS), before, 0, 0))
	for ref, is := range o.held(t, o.source, resumeNS) {
		if was := before[ref]; was == nil || was.GetUID() != is.GetUID() {
			t.Errorf("%s was made anew on the source", ref)
		}
	}
	none(t, "left on the target", observe.Left(o.held(t, o.target, resumeNS)))
	if err := o.through(daemon, codeDone, "operation", "show", op.ID, "-o", "json").decode(
		&op); err != nil {
		t.Fatal(err)
	}
	if op.State != "OPERATION_STATE_ROLLED_BACK" || op.Units[resumeNS+"/web"] != "rolled-back" {
		t.Errorf("after the rollback: %+v", op)
	}
}

// testScheduled looks at the schedule that ran beside the moves.
func (m *moves) testScheduled(t *testing.T) {
	o := &operator{world: shared, t: t, state: t.TempDir()}
	var list struct {
		Schedules []struct {
			LastSuccessTime, LastError string
		} `json:"schedules"`
	}
	if err := o.through(m.daemon, codeDone, "schedule", "list", "-o", "json").decode(
		&list); err != nil {
		t.Fatal(err)
	}
	if len(list.Schedules) != 1 || list.Schedules[0].LastSuccessTime == "" ||
		list.Schedules[0].LastError != "" {
		t.Errorf("schedules: %+v", list.Schedules)
	}
	out := o.through(m.daemon, codeDone, "snapshot", "list")
	if lines := strings.Count(out.stdout, "\n"); lines < 3 {
		t.Errorf("too few snapshots:\n%s", out.text())
	}
}
