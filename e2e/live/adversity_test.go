package live

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// adversity is the fixture of TestLongAdversity.
type adversity struct {
	*fixture
	extension *extension
}

// TestLongAdversity restores after an outage into a target that is in the way: quotas, policies and
// webhooks that refuse or change objects, leftovers of other restores, kill -9. Each scenario has
// namespaces of its own, to which its policies are limited. What nothing refuses must be restored.
// What is refused must be named with reason and hint, and be restored once the obstacle is gone. At
// the end everything is restored over all of it.
func TestLongAdversity(t *testing.T) {
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	f := &fixture{dir: t.TempDir()}
	t.Cleanup(f.close)
	a := adversity{f, newExtension(t)}
	a.build(t)
	if err := f.captureAndKill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("Scenarios", func(t *testing.T) {
		for _, s := range obstacles() {
			t.Run(s.name, func(t *testing.T) { a.operate(t).testObstacle(s) })
		}
		t.Run("FirstStep", func(t *testing.T) { a.operate(t).testFirstStep() })
		t.Run("KilledAtRandom", func(t *testing.T) { a.operate(t).testKilledAtRandom() })
		t.Run("LeftReleased", func(t *testing.T) { a.operate(t).testLeftReleased() })
		t.Run("LeftAdopted", func(t *testing.T) { a.operate(t).testLeftAdopted() })
		t.Run("Extension", func(t *testing.T) { a.operate(t).testExtension(a.extension) })
	})
	t.Run("Everything", func(t *testing.T) { a.testEverything(t) })
	t.Run("Window", a.testWindow)
}

// Namespaces of scenarios without an obstacle.
const (
	firstStepNS = "first-step"
	randomNS    = "killed-at-random"
)

// adverseShapes returns the workload clusters of all scenarios.
func adverseShapes() []fleet.Shape {
	shapes := []fleet.Shape{
		{Name: "web", Namespace: firstStepNS, ClassNamespace: firstStepNS, ControlPlanes: 1,
			Pools: []int{1}},
		{Name: "web", Namespace: randomNS, ControlPlanes: 1, Pools: []int{1}, Addons: true},
		{Name: "api", Namespace: randomNS, ControlPlanes: 1},
		{Name: "web", Namespace: leftReleasedNS, ControlPlanes: 1, Addons: true},
		{Name: "web", Namespace: leftAdoptedNS, ControlPlanes: 1, Pools: []int{1}},
		extendedShape(),
	}
	for _, s := range obstacles() {
		shapes = append(shapes, s.shapes...)
	}
	return shapes
}

// build starts the lab and provisions the workload clusters of all scenarios.
func (a adversity) build(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	if err := a.start(ctx, lab.Options{RuntimeSDK: true}); err != nil {
		t.Fatal(err)
	}
	if err := a.extension.register(ctx, a.fixture); err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Create(ctx, a.clients[a.source], fleet.Options{Shapes: adverseShapes(),
		Progress: printProgress}); err != nil {
		t.Fatal(err)
	}
	if err := a.readSecrets(ctx); err != nil {
		t.Fatal(err)
	}
	var namespaces []string
	for _, s := range adverseShapes() {
		a.workloads++
		namespaces = append(namespaces, s.Namespace)
	}
	slices.Sort(namespaces)
	if err := a.startProbe(ctx, slices.Compact(namespaces)...); err != nil {
		t.Fatal(err)
	}
}

// testFirstStep restores one namespace. testEverything restores everything over it.
func (o *operator) testFirstStep() {
	o.restore(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--signing-key",
		o.keys("signing.key"), "--namespace",
		firstStepNS)
	o.assertRestored(o.t, o.before.In(firstStepNS), nil, firstStepNS)
}

// testEverything restores everything after all scenarios: it adopts what they left, and creates
// the rest.
func (a adversity) testEverything(t *testing.T) {
	o := &operator{fixture: a.fixture, t: t, state: t.TempDir()}
	is, err := observe.StableInventory(t.Context(), a.target.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	p := o.plan(codeDone, "--source-is-gone", "--force", "source-seen-recently")
	if p.Summary.Adopt == 0 {
		t.Error("the plan adopts nothing")
	}
	o.restore(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--signing-key",
		o.keys("signing.key"))
	var namespaces []string
	for _, ns := range a.before.Of("", "Namespace") {
		namespaces = append(namespaces, ns.GetName())
	}
	var changed []string
	for _, s := range obstacles() {
		changed = append(changed, s.differences(a.before.In(s.namespaces()...))...)
	}
	slices.Sort(changed)
	a.assertRestored(t, a.before.In(namespaces...), changed, namespaces...)
	var there []string // before; a scenario that was skipped has created none
	for _, ns := range is.Of("", "Namespace") {
		there = append(there, ns.GetName())
	}
	o.assertUnchanged(is.In(there...), there...)
}

// testWindow waits for the window of three resyncs and asserts that nothing was created again or
// deleted in the whole test, and that the workload clusters have answered all the time.
func (a adversity) testWindow(t *testing.T) {
	time.Sleep(window)
	if err := a.watcher.Stop(); err != nil {
		t.Errorf("watch the target: %v", err)
	}
	assertNone(t, "created again or deleted", observe.UnexplainedByRestore(a.watcher.Events(),
		a.before))
	if created, want := observe.CountCreated(a.watcher.Events(), "Machine"),
		len(observe.Machines(a.before)); created != want {
		t.Errorf("%d Machines were created, want %d", created, want)
	}
	a.assertAnswered(t)
}

// assertBlames asserts that the output names a unit, or an object of it, on one line with a code
// and a reason, and has a hint for it.
func (o *operator) assertBlames(out output, code, unit, reason string) {
	o.t.Helper()
	lines := strings.Split(out.stdout, "\n")
	for i, line := range lines {
		if !strings.Contains(line, code) || !strings.Contains(line, unit) ||
			!strings.Contains(line, reason) {
			continue
		}
		// Findings of one code share the hint after the last of them.
		for _, after := range lines[i+1:] {
			if strings.HasPrefix(after, "    hint: ") {
				return
			}
		}
	}
	o.t.Errorf("no line names %s with %s and %q, and a hint:\n%s", unit, code, reason, out.text())
}
