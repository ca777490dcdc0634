package restore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// TestI1AUnitThatTheTargetRefusesHasNotEnded: in a move, such a unit is paused on the source. A
// rollback gives back what has not ended, and the state "blocked" is an end.
func TestI1AUnitThatTheTargetRefusesHasNotEnded(t *testing.T) {
	x := newTrial(t, twoTenants(t), newMemory(t, "target"))
	x.target.refuseDry = refuses("Cluster.cluster.x-k8s.io/two/w")
	_, err := x.run(t)
	if incomplete, ok := errors.AsType[*IncompleteError](err); !ok || incomplete.Blocked != 1 {
		t.Fatalf("with a refused unit: %v", err)
	}
	for e, err := range x.catalog.Events(t.Context(), x.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == catalog.EventUnit && e.State == string(catalog.UnitBlocked) {
			t.Errorf("unit %s is journaled as %s", e.Unit, e.State)
		}
	}
}

// TestACanaryThatTheTargetRefusesStopsTheRun: the plan could not ask the target about the canary,
// since its namespace was missing. Nothing else may be released when the run finds that out.
func TestACanaryThatTheTargetRefusesStopsTheRun(t *testing.T) {
	x := newTrial(t, twoTenants(t), newMemory(t, "target"))
	x.tuning.Canary = "two/w"
	x.target.refuseDry = refuses("Cluster.cluster.x-k8s.io/two/w")
	_, err := x.run(t)
	if _, ok := errors.AsType[*IncompleteError](err); !ok {
		t.Fatalf("with a refused canary: %v", err)
	}
	if released := x.released(t); released != "" {
		t.Errorf("released: %s", released)
	}
}

// TestADryRunThatEndsWithItsContextIsNoRefusal: a unit must not be blocked because the operation
// was stopped.
func TestADryRunThatEndsWithItsContextIsNoRefusal(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	m := newMemory(t, "target")
	m.refuseDry = func(*unstructured.Unstructured) error {
		cancel(stopped)
		return ctx.Err()
	}
	body := decoded(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`)
	var rows *capi.Table
	a, err := standard{prober: m}.ask(ctx, rows, kube.NamespaceKind, body)
	if !errors.Is(err, stopped) || a.refusal != "" {
		t.Errorf("answer %+v, error %v", a, err)
	}
}

const templateOne = "KubeadmConfigTemplate.bootstrap.cluster.x-k8s.io/one/workers"

// withTemplate is twoTenants with a template that the first class names and owns.
func withTemplate(t *testing.T) *memory {
	t.Helper()
	m := twoTenants(t, `{"kind":"KubeadmConfigTemplate","metadata":{"namespace":"one",
		"name":"workers","ownerReferences":[{"kind":"ClusterClass","name":"class"}]},
		"spec":{"template":{"spec":{}}}}`, `{"kind":"KubeadmConfigTemplate","metadata":{"namespace":"one",
		"name":"w-workers","labels":{"cluster.x-k8s.io/cluster-name":"w"},"annotations":{
		"cluster.x-k8s.io/cloned-from-name":"workers","cluster.x-k8s.io/cloned-from-groupkind":
		"KubeadmConfigTemplate.bootstrap.cluster.x-k8s.io"},
		"ownerReferences":[{"kind":"Cluster","name":"w"}]},"spec":{"template":{"spec":{}}}}`)
	m.set(t, classOne, func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"workers": map[string]any{"machineDeployments": []any{
			map[string]any{"class": "x", "bootstrap": map[string]any{"templateRef": map[string]any{
				"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfigTemplate",
				"name": "workers"}}}}}}
	})
	return m
}

// TestAClassTemplateThatWouldRollOutMachinesIsNotCreated: a policy of the target adds a command to
// a template of a ClusterClass. After a release the topology controller would replace the Machines.
// A copy with the command would stay when the policy is gone, so none is created.
func TestAClassTemplateThatWouldRollOutMachinesIsNotCreated(t *testing.T) {
	x := newTrial(t, withTemplate(t), newMemory(t, "target"))
	addCommand := func(u *unstructured.Unstructured) error {
		if refOf(u).String() != templateOne {
			return nil
		}
		return unstructured.SetNestedStringSlice(u.Object, []string{"true"}, "spec", "template", "spec",
			"preKubeadmCommands")
	}
	x.target.refuseDry = addCommand
	x.target.onCreate = func(u *unstructured.Unstructured) { _ = addCommand(u) }
	failures, err := x.run(t)
	if _, ok := errors.AsType[*IncompleteError](err); !ok || x.released(t) != "two/w" {
		t.Fatalf("with the policy: released %q, %v", x.released(t), err)
	}
	if !slices.ContainsFunc(failures, func(f string) bool {
		return strings.HasPrefix(f, "one/w: ") && strings.Contains(f, templateOne) &&
			strings.Contains(f, "spec.template.spec.preKubeadmCommands")
	}) {
		t.Errorf("no failure names the unit, the template and the path: %q", failures)
	}
	if x.target.get(t, templateOne) != nil {
		t.Error("the template was created")
	}
	x.target.refuseDry, x.target.onCreate = nil, nil
	if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" {
		t.Errorf("without the policy: released %q, %v", x.released(t), err)
	}
}

// TestWhatTheTargetAddsToAllTemplatesRollsOutNothing: a newer provider adds a default to a template
// of a ClusterClass and to what the topology controller has made from it.
func TestWhatTheTargetAddsToAllTemplatesRollsOutNothing(t *testing.T) {
	x := newTrial(t, withTemplate(t), newMemory(t, "target"))
	x.target.refuseDry = func(u *unstructured.Unstructured) error {
		if u.GetKind() == "KubeadmConfigTemplate" {
			return unstructured.SetNestedField(u.Object, "x", "spec", "template", "spec", "format")
		}
		return nil
	}
	if _, err := x.run(t); err != nil || x.released(t) != "one/w two/w" {
		t.Errorf("released %q: %v", x.released(t), err)
	}
}
