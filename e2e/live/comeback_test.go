package live

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// Namespaces of TestLongSourceComesBack, by when the source comes back: each has one workload
// cluster.
const (
	backBeforeNS, backDuringNS = "back-before", "back-during"
	backAfterNS, backByHandNS  = "back-after", "back-by-hand"
	backRefusedNS              = "back-refused"
	backSilentNS               = "back-silent"
	backName                   = "web" // of each workload cluster
)

// mostOverlap is how long a source that came back may reconcile what was restored elsewhere, as the
// documentation promises.
const mostOverlap = 10 * time.Second

// comeback is the fixture of TestLongSourceComesBack.
type comeback struct {
	*fixture
	daemon *lab.Daemon
	// route is the kubeconfig with which mgmtctl reaches the source.
	route string
}

// TestLongSourceComesBack cuts a source off by killing its API server, while its controllers run
// on, and lets it come back before, during and after a restore of a workload cluster. Then it cuts
// the network to a source that goes on. No workload cluster may be reconciled by both management
// clusters (invariant I1) for longer than mgmtd needs to fence it once the source answers, and no
// Machine may be created or deleted.
func TestLongSourceComesBack(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	c := &comeback{fixture: &fixture{dir: t.TempDir()}}
	t.Cleanup(c.close)
	c.build(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"BeforeTheRestore", c.testBefore},
		{"DuringTheRestore", c.testDuring},
		{"AfterTheRestore", c.testAfter},
		{"CutNetwork", c.testCutNetwork},
		{"FencedByHand", c.testByHand},
		{"NothingChanges", c.testNothingChanges},
	} {
		if !t.Run(step.name, step.run) {
			t.Fatal("the following scenarios need this one")
		}
	}
}

// build starts both management clusters, a daemon that watches the source, and the fleet, and takes
// a snapshot.
func (c *comeback) build(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	if err := c.start(ctx, lab.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := c.startS3(ctx); err != nil {
		t.Fatal(err)
	}
	opts := fleet.Options{Progress: printProgress}
	c.route = c.source.Kubeconfig()
	namespaces := []string{backBeforeNS, backDuringNS, backAfterNS, backRefusedNS, backSilentNS,
		backByHandNS}
	for _, namespace := range namespaces {
		opts.Shapes = append(opts.Shapes, fleet.Shape{Name: backName, Namespace: namespace,
			ControlPlanes: 1, Pools: []int{1}})
	}
	if _, err := fleet.Create(ctx, c.clients[c.source], opts); err != nil {
		t.Fatal(err)
	}
	if err := c.readSecrets(ctx); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.before, err = observe.StableInventory(ctx, c.source.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if c.daemon, err = c.startDaemon(ctx, "main"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.daemon.Close)
	o := c.operate(t)
	o.runOn(c.daemon, codeDone, "snapshot", "create", "--source", c.source.Name())
	if c.watcher, err = observe.Watch(context.WithoutCancel(t.Context()),
		c.target.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := c.startProbe(ctx, namespaces...); err != nil {
		t.Fatal(err)
	}
	c.workloads = len(namespaces)
}

// operate returns an operator on another host than the daemon.
func (c *comeback) operate(t *testing.T) *operator {
	return &operator{fixture: c.fixture, t: t, state: t.TempDir()}
}

// sides are the flags of a standalone restore into the target that dials the source.
func (c *comeback) sides() []string {
	return []string{"--standalone", "--store", c.s3.URL(bucket, "main"),
		"--identity", c.keys("identity.txt"), "--trusted-key", c.keys("signing.pub"),
		"--signing-key", c.keys("signing.key"), "--source-kubeconfig", c.route,
		"--target-kubeconfig", c.target.Kubeconfig()}
}

// selection are the flags with which an operator vouches that the source is dead.
func selection(namespace string) []string {
	return []string{"--namespace", namespace, "--source-is-gone", "--force", "source-seen-recently"}
}

func (c *comeback) restoreOf(namespace string) []string {
	return slices.Concat([]string{"restore", "run", "--yes"}, selection(namespace), c.sides())
}

func (c *comeback) cutOff(t *testing.T) {
	t.Helper()
	if err := c.source.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
}

func (c *comeback) comesBack(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.source.RestartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
}

// cluster returns the Cluster of a namespace.
func (c *comeback) cluster(ctx context.Context, m *lab.Mgmt, namespace string) (
	*unstructured.Unstructured, error) {
	cluster := object("cluster.x-k8s.io/v1beta2", "Cluster", namespace, backName)
	return cluster, c.clients[m].Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
}

// assertAtWork asserts which management clusters reconcile a workload cluster.
func (c *comeback) assertAtWork(t *testing.T, namespace string, onSource, onTarget bool) {
	t.Helper()
	for _, side := range []struct {
		mgmt *lab.Mgmt
		want bool
	}{{c.source, onSource}, {c.target, onTarget}} {
		cluster, err := c.cluster(t.Context(), side.mgmt, namespace)
		if err := client.IgnoreNotFound(err); err != nil {
			t.Fatal(err)
		}
		if atWork := err == nil && !observe.Paused(cluster); atWork != side.want {
			t.Errorf("%s reconciles %s: %t, want %t", side.mgmt.Name(), namespace, atWork, side.want)
		}
	}
}

// testBefore restores by a plan that was made while the source was cut off.
func (c *comeback) testBefore(t *testing.T) {
	o := c.operate(t)
	c.cutOff(t)
	plan := o.run(codeDone, slices.Concat([]string{"restore", "plan", "-o", "json"},
		selection(backBeforeNS), c.sides())...)
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(plan.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	c.comesBack(t)
	for _, args := range [][]string{c.restoreOf(backBeforeNS),
		append([]string{"restore", "run", "--yes", "--plan", file}, c.sides()...)} {
		if out := o.run(codeFindings, args...); !strings.Contains(out.text(), "source-answers") {
			t.Errorf("the refusal does not say source-answers:\n%s", out.text())
		}
	}
	assertNone(t, "created on the target", observe.Left(c.inventoryOf(t, c.target, backBeforeNS)))
	c.assertAtWork(t, backBeforeNS, true, false)
}

// testDuring restores, and the source comes back when the first Machine is copied. The restore must
// not release. Once the source is fenced by hand, its resume does.
func (c *comeback) testDuring(t *testing.T) {
	o := c.operate(t)
	c.cutOff(t)
	copying := moment{c.target, "Machine", backDuringNS, created}
	stopped := o.runAndInterrupt(copying, func(p *os.Process) {
		// The restore must not be through before the source is back.
		_ = p.Signal(syscall.SIGSTOP)
		defer func() { _ = p.Signal(syscall.SIGCONT) }()
		c.comesBack(t)
	}, codeLeft, c.restoreOf(backDuringNS)...)
	if !strings.Contains(stopped.text(), "source-answers") {
		t.Errorf("the restore does not say source-answers:\n%s", stopped.text())
	}
	c.assertAtWork(t, backDuringNS, true, false)

	conflicts := c.watchReconcilers(t)
	o.fence(codeDone, c, "--namespace", backDuringNS)
	c.assertFenced(t, backDuringNS)
	o.run(codeDone, slices.Concat([]string{"operation", "resume", "latest"}, c.sides())...)
	c.assertAtWork(t, backDuringNS, false, true)
	assertNone(t, "reconciled twice", conflicts())
}

// testAfter restores, and the source comes back as soon as the workload cluster is released. The
// daemon has not read the ownership record by then.
func (c *comeback) testAfter(t *testing.T) {
	o := c.operate(t)
	c.cutOff(t)
	c.restoreUntilAnswered(t, o, backAfterNS, func() { c.comesBack(t) })
}

// restoreUntilAnswered restores a workload cluster while mgmtd cannot reach the source, and lets
// the source answer as soon as the workload cluster is released. It asserts how long both
// management clusters reconcile it from the first answer on, and that the source stays fenced.
func (c *comeback) restoreUntilAnswered(t *testing.T, o *operator, namespace string,
	answer func()) {
	t.Helper()
	var overlap func() time.Duration
	var since time.Time
	o.runAndInterrupt(moment{c.target, "Cluster", namespace, released}, func(*os.Process) {
		since = time.Now()
		overlap = c.measureOverlap(t, namespace)
		answer()
	}, codeDone, c.restoreOf(namespace)...)
	measured := overlap()
	printed := c.printedOverlap(t, o, since)
	t.Logf("overlap: %s measured from outside, %s printed", measured, printed)
	if measured > mostOverlap || printed > mostOverlap {
		t.Errorf("both management clusters reconciled it for %s, mgmtd prints %s", measured, printed)
	}
	// The outside asks twenty times a second.
	if printed < measured-100*time.Millisecond {
		t.Errorf("mgmtd prints an overlap of %s, and it was %s", printed, measured)
	}
	conflicts := c.watchReconcilers(t)
	c.assertFenced(t, namespace)
	c.assertAtWork(t, namespace, false, true)
	assertNone(t, "reconciled twice", conflicts())
}

// testByHand restores without a daemon that watches the source, which is fenced by hand when it
// comes back: no selection names what it lost.
func (c *comeback) testByHand(t *testing.T) {
	o := c.operate(t)
	c.daemon.Kill()
	c.cutOff(t)
	o.run(codeDone, c.restoreOf(backByHandNS)...)
	overlap := c.measureOverlap(t, backByHandNS)
	c.comesBack(t)
	out := o.fence(codeDone, c)
	t.Logf("overlap until fenced by hand: %s\n%s", overlap(), out.stdout)
	conflicts := c.watchReconcilers(t)
	c.assertFenced(t, backByHandNS)
	c.assertAtWork(t, backByHandNS, false, true)
	c.assertAtWork(t, backBeforeNS, true, false) // nobody else owns it
	assertNone(t, "reconciled twice", conflicts())
}

// testNothingChanges waits for three resyncs of both management clusters, and checks everything.
func (c *comeback) testNothingChanges(t *testing.T) {
	conflicts := c.watchReconcilers(t)
	time.Sleep(window)
	assertNone(t, "reconciled twice", conflicts())
	restored := []string{backDuringNS, backAfterNS, backRefusedNS, backSilentNS, backByHandNS}
	before := c.before.In(restored...)
	c.assertRestored(t, before, nil, restored...)
	c.assertIntactOn(t, c.source, c.before.In(backBeforeNS), nil, backBeforeNS)
	if err := c.watcher.Stop(); err != nil {
		t.Errorf("watch the target: %v", err)
	}
	assertNone(t, "created again or deleted", observe.UnexplainedByRestore(c.watcher.Events(),
		before))
	// The source keeps its copies as they were, but paused.
	after := c.inventoryOf(t, c.source, restored...)
	for ref, was := range before {
		if is := after[ref]; is == nil || is.GetUID() != was.GetUID() ||
			is.GetDeletionTimestamp() != nil {
			t.Errorf("%s was deleted or created again on the source", ref)
		}
	}
	for ref := range after {
		if before[ref] == nil {
			t.Errorf("%s is new on the source", ref)
		}
	}
	c.assertAnswered(t)
}

// watchReconcilers watches both management clusters until the function that it returns is called,
// which reports the workload clusters that both reconciled at once.
func (c *comeback) watchReconcilers(t *testing.T) (conflicts func() []string) {
	t.Helper()
	w, err := observe.WatchReconcilers(t.Context(), map[string]string{
		c.source.Name(): c.source.Kubeconfig(), c.target.Name(): c.target.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	return func() []string {
		if err := w.Stop(); err != nil {
			t.Errorf("watch Clusters: %v", err)
		}
		return w.Conflicts()
	}
}
