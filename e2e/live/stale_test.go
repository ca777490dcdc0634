package live

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// stalePrefix begins the namespaces of TestLongStaleSnapshots. Each has one workload cluster, and
// is named after what happens to that around the snapshot.
const stalePrefix = "stale-"

// staleCluster is a workload cluster that changes after its snapshot, and what a plan says of it.
type staleCluster struct {
	name              string
	workers           int
	finding, severity string // of the plan; empty for none
}

func staleClusters() []staleCluster {
	return []staleCluster{
		{"unchanged", 1, "", ""},
		{"scaled-up", 1, "nodes-unknown", "SEVERITY_WARNING"},
		{"scaled-down", 2, "machines-gone", "SEVERITY_ERROR"},
		{"rolled-out", 1, "control-plane-unknown", "SEVERITY_ERROR"},
		{"other-ca", 1, "ca-mismatch", "SEVERITY_ERROR"},
		{"deleted", 1, "", ""}, // its API server does not answer any more
		{"made-again", 1, "", ""},
	}
}

// staleFleet is the fixture of TestLongStaleSnapshots.
type staleFleet struct {
	*fixture
	opts   fleet.Options
	shapes map[string]fleet.Shape
}

// TestLongStaleSnapshots restores a snapshot that is older than what happened to its workload
// clusters. One whose control plane the snapshot does not know is blocked, and so is one that lost
// Machines, unless that is overridden. Those that are released lose and get no Machine.
func TestLongStaleSnapshots(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	s := &staleFleet{fixture: &fixture{dir: t.TempDir()}, shapes: map[string]fleet.Shape{}}
	t.Cleanup(s.close)
	s.build(t)
	o := s.operate(t)
	p := o.plan(codeFindings, "--source-is-gone")
	for _, c := range staleClusters() {
		s.assertFinding(t, p, c)
	}
	// The endpoint of a workload cluster that was made again may be another one.
	if !p.mentions("reality-unknown", "") {
		t.Error("the plan does not say that a workload cluster could not be compared")
	}
	for _, unit := range p.Units {
		again := unit.Name == s.unit("made-again")
		if again && !unit.Blocked && !p.mentions("reality-unknown", "") {
			t.Errorf("%s was made again, and nothing says so", unit.Name)
		}
	}
	compared := []string{"unchanged", "scaled-up", "scaled-down", "rolled-out", "other-ca"}
	o.restore(codeLeft, s.selection(compared...)...)
	s.assertReleased(t, "scaled-up", "unchanged")
	s.assertRestored(t, s.before.In(s.namespacesOf("unchanged", "scaled-up")...), nil,
		s.namespacesOf("unchanged", "scaled-up")...)
	// Overridden, the Machines whose Node is gone stay until the restore is through.
	o.restore(codeDone, append(s.selection("scaled-down"), "--force", "machines-gone")...)
	s.assertReleased(t, "scaled-down", "scaled-up", "unchanged")
	after := o.inventory(s.namespacesOf("scaled-down")...)
	for ref, object := range after {
		if _, held := object.GetAnnotations()["cluster.x-k8s.io/skip-remediation"]; held {
			t.Errorf("%s is still held from remediation", ref)
		}
	}
}

func (s *staleFleet) namespacesOf(names ...string) []string {
	var namespaces []string
	for _, name := range names {
		namespaces = append(namespaces, stalePrefix+name)
	}
	return namespaces
}

func (s *staleFleet) unit(name string) string { return stalePrefix + name + "/" + name }

func (s *staleFleet) selection(names ...string) []string {
	flags := []string{"--source-is-gone", "--force", "source-seen-recently"}
	for _, namespace := range s.namespacesOf(names...) {
		flags = append(flags, "--namespace", namespace)
	}
	return flags
}

// build makes the workload clusters, takes a snapshot, changes them, and kills the source.
func (s *staleFleet) build(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if err := s.start(ctx, lab.Options{}); err != nil {
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
	s.opts.Progress = printProgress
	for _, c := range staleClusters() {
		shape := fleet.Shape{Name: c.name, Namespace: stalePrefix + c.name,
			ClassNamespace: stalePrefix + c.name, ControlPlanes: 1, Pools: []int{c.workers},
			Templates: templates}
		s.shapes[c.name] = shape
		s.opts.Shapes = append(s.opts.Shapes, shape)
	}
	c := s.clients[s.source]
	if _, err := fleet.Create(ctx, c, s.opts); err != nil {
		t.Fatal(err)
	}
	if err := s.readSecrets(ctx); err != nil {
		t.Fatal(err)
	}
	if s.before, err = observe.StableInventory(ctx, s.source.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := s.swapCA(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err = s.snapshot(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.change(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.source.KillAll(); err != nil {
		t.Fatal(err)
	}
}

// swapCA gives a workload cluster the CA of another one.
func (s *staleFleet) swapCA(ctx context.Context) error {
	c := s.clients[s.source]
	read := func(name string) (*unstructured.Unstructured, error) {
		secret := object("v1", "Secret", stalePrefix+name, name+"-ca")
		return secret, c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	}
	other, err := read("unchanged")
	if err != nil {
		return err
	}
	secret, err := read("other-ca")
	if err != nil {
		return err
	}
	secret.Object["data"] = other.Object["data"]
	return c.Update(ctx, secret)
}

// change lets the workload clusters live on after the snapshot.
func (s *staleFleet) change(ctx context.Context) error {
	c := s.clients[s.source]
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return fleet.Scale(ctx, c, s.opts, s.shapes["scaled-up"], 2) })
	group.Go(func() error { return fleet.Scale(ctx, c, s.opts, s.shapes["scaled-down"], 1) })
	group.Go(func() error { return fleet.RollOut(ctx, c, s.opts, s.shapes["rolled-out"]) })
	group.Go(func() error { return fleet.Rebirth(ctx, c, s.opts, s.shapes["made-again"]) })
	group.Go(func() error { return fleet.Delete(ctx, c, s.opts, s.shapes["deleted"]) })
	return group.Wait()
}

// mentions reports whether the plan has a finding of this code and unit, of whatever severity.
func (p plan) mentions(code, unit string) bool {
	for _, f := range p.Findings {
		if f.Code == code && f.Unit == unit {
			return true
		}
	}
	return false
}

func (s *staleFleet) assertFinding(t *testing.T, p plan, c staleCluster) {
	t.Helper()
	var said []string
	for _, f := range p.Findings {
		if f.Unit != s.unit(c.name) {
			continue
		}
		said = append(said, fmt.Sprint(f.Severity, " ", f.Code, ": ", f.Message))
		if f.Code == c.finding && f.Severity == c.severity {
			return
		}
		if c.name == "unchanged" && slices.Contains([]string{"machines-gone", "nodes-unknown",
			"control-plane-unknown", "ca-mismatch"}, f.Code) {
			t.Errorf("the plan finds %s of %s: %s", f.Code, c.name, f.Message)
		}
	}
	if c.finding != "" {
		t.Errorf("the plan does not find %s of %s, but %q", c.finding, c.name, said)
	}
}

// assertReleased asserts which Clusters of the target are not paused.
func (s *staleFleet) assertReleased(t *testing.T, names ...string) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	list.SetKind("ClusterList")
	if err := s.clients[s.target].List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var released []string
	for i := range list.Items {
		if cluster := &list.Items[i]; !observe.Paused(cluster) {
			released = append(released, cluster.GetName())
		}
	}
	slices.Sort(released)
	assertEqual(t, "released", released, names)
}
