package restore

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	extension      = "ExtensionConfig.runtime.cluster.x-k8s.io/ext"
	sourceExtended = `{"kind":"ExtensionConfig","metadata":{"name":"ext"},
		"spec":{"clientConfig":{"caBundle":"source"}},
		"status":{"handlers":[{"name":"discover.ext"}],"conditions":[{"type":"Discovered","status":"True"}]}}`
)

// extended is twoTenants with an extension that discovers the variables of the first class.
func extended(t *testing.T) *memory {
	t.Helper()
	m := twoTenants(t, sourceExtended)
	m.set(t, classOne, func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"patches": []any{map[string]any{"name": "x",
			"external": map[string]any{"discoverVariablesExtension": "discover.ext"}}}}
	})
	return m
}

// runtimeController discovers the extension some time after its creation, unless it is paused, and
// reconciles a class when its extension is discovered. It is called with the lock of m.
func (m *memory) runtimeController(after time.Duration) {
	discovered := false // what a restored status says of it is of another management cluster
	m.onCreate = func(u *unstructured.Unstructured) {
		if _, paused := u.GetAnnotations()[capi.AnnotationPaused]; refOf(u).String() != extension ||
			paused {
			return
		}
		_ = unstructured.SetNestedField(u.Object, "target", "spec", "clientConfig", "caBundle")
		time.AfterFunc(after, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			discovered = true
			u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Discovered",
				"status": "True"}}}
		})
	}
	m.statusWritten = func(u *unstructured.Unstructured) {
		if refOf(u).String() == classOne && !discovered {
			_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"type": "VariablesReady",
				"status": "False", "reason": "VariableDiscoveryFailed"}}, "status", "conditions")
		}
	}
}

// TestAnExtensionIsDiscoveredBeforeItsClassIsCreated: a class that comes before its extension is
// discovered is not reconciled. That another workload cluster fails does not hold the extension.
func TestAnExtensionIsDiscoveredBeforeItsClassIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t, extended(t), newMemory(t, "target"))
		x.tuning.Wait = time.Minute
		x.target.runtimeController(3 * time.Second)
		x.target.refuse = refuses("Cluster.cluster.x-k8s.io/two/w")
		failures, err := x.run(t)
		if x.released(t) != "one/w" {
			t.Fatalf("released %q, failures %q: %v", x.released(t), failures, err)
		}
		live := x.target.get(t, extension)
		if len(live.GetAnnotations()) > 0 || capi.PausedByUs(live.Object) {
			t.Errorf("the extension is not as it was: %v", live.GetAnnotations())
		}
		x.target.refuse = nil
		if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" {
			t.Errorf("resumed: released %q: %v", x.released(t), err)
		}
	})
}

// TestAnExtensionThatIsNotDiscoveredBlocksTheUsersOfItsClasses: what runs on the source does not
// run on the target.
func TestAnExtensionThatIsNotDiscoveredBlocksTheUsersOfItsClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t, extended(t), newMemory(t, "target"))
		x.tuning.Wait = time.Minute
		x.target.runtimeController(time.Hour)
		failures, err := x.run(t)
		if x.released(t) != "two/w" || !slices.ContainsFunc(failures, func(f string) bool {
			return strings.HasPrefix(f, "one/w: ") && strings.Contains(f, extension) &&
				strings.Contains(f, "Discovered")
		}) {
			t.Errorf("released %q, failures %q: %v", x.released(t), failures, err)
		}
	})
}

// TestAnExtensionOfTheTargetIsUsedAsItIs: it has the CA of what runs there.
func TestAnExtensionOfTheTargetIsUsedAsItIs(t *testing.T) {
	target := newMemory(t, "target", strings.Replace(sourceExtended, `"source"`, `"target"`, 1))
	x := newTrial(t, extended(t), target)
	p := x.makePlan(t)
	if p.Units[0].Blocked || !slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
		return f.Severity == object.Warning && f.Ref.String() == extension
	}) {
		t.Errorf("blocked %v: %v", p.Units[0].Blocked, p.Findings)
	}
	if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}

// TestAnExtensionComesWithTheClassThatNamesIt: one workload cluster is selected.
func TestAnExtensionComesWithTheClassThatNamesIt(t *testing.T) {
	x := newTrial(t, extended(t), newMemory(t, "target"))
	has := func(workload string) bool {
		x.spec.Selection.Workloads = []object.Key{{Namespace: workload, Name: "w"}}
		return slices.ContainsFunc(x.makePlan(t).Shared.Objects,
			func(o Object) bool { return o.Ref.String() == extension })
	}
	if !has("one") || has("two") {
		t.Errorf("the extension comes with its user: %v, with the other one: %v", has("one"), has("two"))
	}
}
