package live

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// Namespaces of TestLongMovesAsClusterctl beside those of the standard fleet.
const (
	classNS  = "classes" // of the ClusterClass of the next two
	firstNS  = "team-c"
	secondNS = "team-d"
	// externalNS has a workload cluster with an etcd of its own, whose client certificate is in a
	// Secret of the user.
	externalNS = "external"
	halfDoneNS = "half-done"
)

// peers is the fixture of TestLongMovesAsClusterctl. mgmtctl moves the fleet from source to target,
// clusterctl moves it on to last.
type peers struct {
	*fixture
	last *lab.Mgmt
}

// TestLongMovesAsClusterctl moves one fleet with mgmtctl, and on to a third management cluster with
// clusterctl. Each move is compared with what there was before it, object by object. What differs
// must be in the table of the program, and all of the table must occur. The subtests also show
// dangers of clusterctl that mgmtctl does not have: a ClusterClass that stays paused on the source,
// and a move that was interrupted and is refused from then on.
func TestLongMovesAsClusterctl(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	t.Run("TheTableIsExact", testTable)
	p := &peers{fixture: &fixture{dir: t.TempDir()}}
	t.Cleanup(p.close)
	p.build(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"MgmtctlLeavesASharedClassAtWork", p.testClassAtWork},
		{"MgmtctlResumesAHalfDoneMove", p.testResumed},
		{"MgmtctlMovesEverything", p.testMgmtctl},
		{"ClusterctlLeavesASharedClassPaused", p.testClassPaused},
		{"ClusterctlMovesWhatItKnows", p.testClusterctl},
		{"ClusterctlRefusesAHalfDoneMove", p.testRefused},
	} {
		if !t.Run(step.name, step.run) {
			t.Fatal("the following scenarios need this one")
		}
	}
}

// build starts three management clusters and provisions the fleet on the first.
func (p *peers) build(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	err := p.start(ctx, lab.Options{})
	if err == nil {
		p.last, err = p.lab.AddMgmt(ctx, "mgmt-3")
	}
	if err == nil {
		p.clients[p.last], err = clientOf(p.last)
	}
	if err != nil {
		t.Fatal(err)
	}
	small := func(namespace string) fleet.Shape {
		return fleet.Shape{Name: "web", Namespace: namespace, ControlPlanes: 1, Pools: []int{1}}
	}
	second, external := small(secondNS), small(externalNS)
	second.ClassNamespace, external.ExternalEtcd = classNS, true
	shapes := append(fleet.Named("classy", "plain", "plain-ha", "cross"), second, external,
		small(halfDoneNS))
	if _, err := fleet.Create(ctx, p.clients[p.source], fleet.Options{Shapes: shapes,
		Progress: printProgress}); err != nil {
		t.Fatal(err)
	}
	if p.before, err = observe.StableInventory(ctx, p.source.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := p.readSecrets(ctx); err != nil {
		t.Fatal(err)
	}
}

// host is a host with a catalog of its own.
func (p *peers) host(t *testing.T) *operator {
	return &operator{fixture: p.fixture, t: t, state: t.TempDir()}
}

// move moves namespaces with mgmtctl.
func (p *peers) move(t *testing.T, namespaces ...string) {
	t.Helper()
	o := p.host(t)
	args := append([]string{"move", "run", "--yes"}, o.moveFlags(p.source, p.target)...)
	for _, namespace := range namespaces {
		args = append(args, "--namespace", namespace)
	}
	o.run(codeDone, args...)
}

// testClassAtWork moves one of two workload clusters in different namespaces that share a
// ClusterClass in a third. The class on the source must be at work for the other one, which can be
// moved then, too.
func (p *peers) testClassAtWork(t *testing.T) {
	p.move(t, firstNS)
	for _, m := range []*lab.Mgmt{p.source, p.target} {
		if class := p.class(t, m); observe.Paused(class) {
			t.Errorf("the class on %s is paused", m.Name())
		}
	}
	p.move(t, secondNS)
	assertNone(t, "left of the class", p.left(t, p.source, "ClusterClass", classNS))
}

// testResumed kills a move in the middle of the copy, and resumes it.
func (p *peers) testResumed(t *testing.T) {
	o := p.host(t)
	flags := o.moveFlags(p.source, p.target)
	o.runAndKill(moment{p.target, "Machine", halfDoneNS, created},
		slices.Concat([]string{"move", "run", "--yes", "--namespace", halfDoneNS}, flags)...)
	o.run(codeDone, slices.Concat([]string{"operation", "resume", "latest"}, flags)...)
	assertNone(t, "left", p.left(t, p.source, "", halfDoneNS))
}

// testMgmtctl moves the rest of the fleet, and compares all of it.
func (p *peers) testMgmtctl(t *testing.T) {
	p.move(t, "team-a", "team-b", externalNS, classNS)
	after := p.settled(t, p.target)
	left := p.inventoryOf(t, p.source, p.namespaces()...)
	assertNone(t, "differences", contradictions(peerDifferences(p.before, after, left),
		mgmtctlDifferences()))
	p.before = after
}

// testClassPaused does with clusterctl what testClassAtWork does with mgmtctl.
func (p *peers) testClassPaused(t *testing.T) {
	p.clusterctl(t, true, firstNS)
	if class := p.class(t, p.target); !observe.Paused(class) {
		t.Error("the class on the source is not paused: remove this test, and the step by hand")
	}
	if out := p.clusterctl(t, false, secondNS); !strings.Contains(out,
		"following ClusterClasses are paused") {
		t.Errorf("the refusal does not say that the class is paused:\n%s", out)
	}
	unpause := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`))
	if err := p.clients[p.target].Patch(t.Context(), p.class(t, p.target), unpause); err != nil {
		t.Fatal(err)
	}
	p.clusterctl(t, true, secondNS)
}

// testClusterctl moves the rest of the fleet with clusterctl, except for the namespace of
// testRefused, and compares all of it.
func (p *peers) testClusterctl(t *testing.T) {
	for _, namespace := range []string{"team-a", "team-b", externalNS} {
		p.clusterctl(t, true, namespace)
	}
	delete(p.before, observe.Ref{Kind: "Namespace", Name: halfDoneNS})
	for ref := range p.before {
		if ref.Namespace == halfDoneNS {
			delete(p.before, ref)
		}
	}
	after := p.settled(t, p.last)
	left := p.inventoryOf(t, p.target, p.namespaces()...)
	assertNone(t, "differences", contradictions(peerDifferences(p.before, after, left),
		clusterctlDifferences()))
}

// testRefused does with clusterctl what testResumed does with mgmtctl. What is left is a workload
// cluster that no management cluster reconciles, until somebody repairs it by hand.
func (p *peers) testRefused(t *testing.T) {
	watcher := p.host(t).watch(moment{p.last, "Machine", halfDoneNS, created})
	defer watcher.Stop()
	cmd, out := p.clusterctlCommand(t, halfDoneNS)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for event := range watcher.ResultChan() {
		if created(event) {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatalf("clusterctl ended before it was killed:\n%s", out)
	}
	if again := p.clusterctl(t, false, halfDoneNS); !strings.Contains(again, "following Clusters are "+
		"paused") {
		t.Errorf("the refusal does not say that the Cluster is paused:\n%s", again)
	}
	for _, m := range []*lab.Mgmt{p.target, p.last} {
		cluster := object("cluster.x-k8s.io/v1beta2", "Cluster", halfDoneNS, "web")
		if err := p.clients[m].Get(t.Context(), client.ObjectKeyFromObject(cluster),
			cluster); err != nil || !observe.Paused(cluster) {
			t.Errorf("%s reconciles the workload cluster, or does not have it: %v", m.Name(), err)
		}
	}
}

// clusterctl moves a namespace from target to last, and asserts whether that succeeds. It returns
// what was printed.
func (p *peers) clusterctl(t *testing.T, succeeds bool, namespace string) string {
	t.Helper()
	cmd, out := p.clusterctlCommand(t, namespace)
	if err := cmd.Run(); (err == nil) != succeeds {
		t.Fatalf("clusterctl move of %s: %v\n%s", namespace, err, out)
	}
	return out.String()
}

func (p *peers) clusterctlCommand(t *testing.T, namespace string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	home, err := lab.FindHome()
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := home.Clusterctl(t.Context(), filepath.Join(p.dir, "clusterctl"), "move",
		"--kubeconfig", p.target.Kubeconfig(), "--to-kubeconfig", p.last.Kubeconfig(), "--namespace",
		namespace)
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// class returns the ClusterClass that two namespaces share.
func (p *peers) class(t *testing.T, m *lab.Mgmt) *unstructured.Unstructured {
	t.Helper()
	class := object("cluster.x-k8s.io/v1beta2", "ClusterClass", classNS, "in-memory")
	if err := p.clients[m].Get(t.Context(), client.ObjectKeyFromObject(class), class); err != nil {
		t.Fatal(err)
	}
	return class
}

// left reports the objects of a kind, or of all kinds, in a namespace.
func (p *peers) left(t *testing.T, m *lab.Mgmt, kind, namespace string) []string {
	t.Helper()
	objects := p.inventoryOf(t, m, namespace)
	for ref := range objects {
		if kind != "" && ref.Kind != kind {
			delete(objects, ref)
		}
	}
	return observe.Left(objects)
}

// namespaces returns those of p.before.
func (p *peers) namespaces() []string {
	var names []string
	for _, o := range p.before.Of("", "Namespace") {
		names = append(names, o.GetName())
	}
	return names
}

// settled returns the objects of a management cluster once they are as healthy as before, have all
// status that they had, and nothing changes.
func (p *peers) settled(t *testing.T, m *lab.Mgmt) observe.Objects {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*healthTimeout)
	defer cancel()
	if _, err := observe.Await(ctx, m.Kubeconfig(), func(after observe.Objects) []string {
		problems := observe.Health(p.before, after)
		for ref, is := range after {
			if was := p.before[ref]; was != nil && len(goneStatus(was, is)) > 0 {
				problems = append(problems, ref.String()+" has less status than before")
			}
		}
		return problems
	}, p.namespaces()...); err != nil {
		t.Error(err)
	}
	after, err := observe.StableInventory(t.Context(), m.Kubeconfig(), p.namespaces()...)
	if err != nil {
		t.Fatal(err)
	}
	assertNone(t, "Machines", observe.CompareMachines(p.before, after))
	return after
}
