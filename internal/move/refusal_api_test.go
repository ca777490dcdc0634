//go:build api

package move_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
)

// deny lets the target refuse to create what does not satisfy a CEL expression, in the namespace of
// the fleet, until undo is called.
func (fx *fixture) deny(name, resource, expression string) (undo func()) {
	fx.t.Helper()
	return fx.denyOn(fx.target(), "CREATE", name, resource, expression)
}

// denyOn lets a side refuse an operation on what does not satisfy a CEL expression, in the
// namespace of the fleet, until undo is called.
func (fx *fixture) denyOn(on *side, operation, name, resource, expression string) (undo func()) {
	fx.t.Helper()
	return fx.denyWith(on, "Invalid", operation, name, resource, expression)
}

// denyWith is denyOn for a reason of the answer.
func (fx *fixture) denyWith(on *side, reason, operation, name, resource, expression string) (
	undo func()) {
	fx.t.Helper()
	name = fx.namespace + "-" + name
	expression = `request.namespace != "` + fx.namespace + `" || (` + expression + `)`
	quoted, err := json.Marshal(expression)
	must(fx.t, err)
	const group = "admissionregistration.k8s.io"
	create := func(kind, resource, spec string) (remove func()) {
		k := kube.Kind{GroupKind: object.GroupKind{Group: group, Kind: kind}, Version: "v1",
			Resource: resource}
		u := &unstructured.Unstructured{}
		must(fx.t, json.Unmarshal([]byte(`{"apiVersion":"`+group+`/v1","kind":"`+kind+
			`","metadata":{"name":"`+name+`"},"spec":`+spec+`}`), &u.Object))
		u, err := on.Writer().Create(fx.t.Context(), k, u)
		must(fx.t, err)
		w := on.Writer()
		return func() {
			err := w.Delete(context.Background(), k, "", name, u.GetUID(), "")
			if !apierrors.IsNotFound(err) {
				must(fx.t, err)
			}
		}
	}
	policy := create("ValidatingAdmissionPolicy", "validatingadmissionpolicies",
		`{"failurePolicy":"Fail","matchConstraints":{"resourceRules":[{"apiGroups":["cluster.x-k8s.io"],
		"apiVersions":["*"],"operations":["`+operation+`"],"resources":["`+resource+`"]}]},
		"validations":[{"expression":`+string(quoted)+`,"message":"not wanted here","reason":"`+reason+`"}]}`)
	binding := create("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
		`{"policyName":"`+name+`","validationActions":["Deny"]}`)
	time.Sleep(2 * time.Second) // until the API server applies it
	return func() {
		binding()
		policy()
		time.Sleep(2 * time.Second)
	}
}

// TestAPIMoveRefusalsBlockTheirUnitsOnly: the target, which has not even the namespace, refuses the
// Machines of one workload cluster. That one is never paused on the source. It refuses the class of
// two, but not in a dry-run: the other one that needs the class fails, and stays paused until a
// resume. The third workload cluster is moved. A resume without the policies moves the rest.
func TestAPIMoveRefusalsBlockTheirUnitsOnly(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "refused")
	must(t, fx.removeNamespace())
	refused, needsClass := classyUnits[0], classyUnits[1]
	machines := fx.deny("refuses-machines", "machines", `object.metadata.labels[?"cluster.x-k8s.io/`+
		`cluster-name"].orValue("") != "`+refused+`"`)
	classes := fx.deny("refuses-classes", "clusterclasses", `request.dryRun`)
	var mu sync.Mutex
	var paused []string
	e := fx.carryOut(fx.order(doMove), catalog.Failed,
		func(_ context.Context, r catalog.StepRecord) error {
			mu.Lock()
			defer mu.Unlock()
			if r.Step.Phase == "pause" && r.State == catalog.StepBegun {
				paused = append(paused, r.Step.Unit)
			}
			return nil
		})
	if slices.Contains(paused, fx.namespace+"/"+refused) {
		t.Errorf("%s was paused, though the target refuses it: %v", refused, paused)
	}
	for _, words := range []string{"not wanted here", "ClusterClass"} {
		if !slices.ContainsFunc(e.Findings, func(f string) bool { return strings.Contains(f, words) }) {
			t.Errorf("no finding with %q: %s", words, e.Findings)
		}
	}
	st, err := fx.state()
	must(t, err)
	_, stay := fx.split(pausedUnit)
	for ref, was := range stay {
		if unitName(ref.Name) == refused && st.source[ref].GetResourceVersion() !=
			was.GetResourceVersion() {
			t.Errorf("%s was written to", ref)
		}
	}
	for _, unit := range allUnits {
		if moved := st.source[clusterRef(fx.namespace, unit)] == nil; moved != (unit == pausedUnit) {
			t.Errorf("%s: moved is %v", unit, moved)
		}
	}
	if u := st.target[clusterRef(fx.namespace, needsClass)]; u != nil {
		t.Errorf("%s was created without its class", needsClass)
	}
	machines()
	classes()
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	st, err = fx.state()
	must(t, err)
	fx.report(fx.checkMoved(st))
}

// TestAPIPlanFindsWhatTheSourceWouldNotRemove: a policy of the source refuses to delete Machines of
// one workload cluster, and to change those of another one. The plan asks in dry-runs, and writes
// nothing. Without the policies it has no error.
func TestAPIPlanFindsWhatTheSourceWouldNotRemove(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "kept")
	ends, err := move.NewEnds(t.Context(), fx.source().Mgmt, fx.target().Mgmt, fx.store, "default", nil)
	must(t, err)
	found := func() (refused []string) {
		t.Helper()
		plan, err := move.NewPlan(t.Context(), ends, fx.order(doMove).Spec)
		must(t, err)
		for _, f := range plan.Copy.Findings {
			switch {
			case f.Code == object.CodeRetireRefused:
				refused = append(refused, strings.TrimPrefix(f.Unit, fx.namespace+"/")+" "+f.Ref.Kind)
			case f.Severity >= object.Error:
				t.Errorf("%+v", f)
			}
		}
		slices.Sort(refused)
		return refused
	}
	if refused := found(); len(refused) > 0 {
		t.Errorf("without a policy: %q", refused)
	}
	of := func(version, unit string) string {
		return version + `.metadata.labels[?"cluster.x-k8s.io/cluster-name"].orValue("") != "` + unit + `"`
	}
	deletes := fx.denyOn(fx.source(), "DELETE", "keeps-machines", "machines", of("oldObject",
		classyUnits[0]))
	changes := fx.denyOn(fx.source(), "UPDATE", "freezes-machines", "machines", of("object",
		classyUnits[1]))
	if refused, want := found(), []string{classyUnits[0] + " Machine", classyUnits[1] +
		" Machine"}; !slices.Equal(refused, want) {
		t.Errorf("refused are %q, want %q", refused, want)
	}
	deletes()
	changes()
	for ref, is := range fx.live(fx.at) {
		if was := fx.was[ref]; was == nil || was.GetResourceVersion() != is.GetResourceVersion() {
			t.Errorf("the plan has written %s", ref)
		}
	}
}

// TestAPIPlanFindsWhoWouldAdoptOnTheTarget: a MachineSet there, of another workload cluster, whose
// selector matches a Machine that nothing controls.
func TestAPIPlanFindsWhoWouldAdoptOnTheTarget(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "adopted")
	ends, err := move.NewEnds(t.Context(), fx.source().Mgmt, fx.target().Mgmt, fx.store, "default", nil)
	must(t, err)
	var set *unstructured.Unstructured
	for ref, u := range fx.live(fx.at) {
		if ref.Kind == "MachineSet" {
			set = u
		}
	}
	set = &unstructured.Unstructured{Object: map[string]any{"apiVersion": set.GetAPIVersion(),
		"kind": "MachineSet", "spec": set.Object["spec"],
		"metadata": map[string]any{"name": "wide", "namespace": fx.namespace}}}
	must(t, unstructured.SetNestedStringMap(set.Object, map[string]string{"tier": "adopted"}, "spec",
		"selector", "matchLabels"))
	must(t, unstructured.SetNestedField(set.Object, "elsewhere", "spec", "clusterName"))
	k := fx.kind(1-fx.at, object.GroupKind{Group: "cluster.x-k8s.io", Kind: "MachineSet"})
	_, err = fx.target().Writer().Create(t.Context(), kube.NamespaceKind, &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": fx.namespace}}})
	must(t, err)
	set, err = fx.target().Writer().Create(t.Context(), k, set)
	must(t, err)
	for ref := range fx.was {
		if ref.Kind == "Machine" && unitName(ref.Name) == classyUnits[0] {
			fx.change(fx.at, ref, func(u *unstructured.Unstructured) {
				u.SetOwnerReferences(nil)
				u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": classyUnits[0],
					"tier": "adopted"})
			})
		}
	}
	plan, err := move.NewPlan(t.Context(), ends, fx.order(doMove).Spec)
	must(t, err)
	must(t, fx.target().Writer().Delete(t.Context(), k, fx.namespace, "wide", set.GetUID(), ""))
	if !slices.ContainsFunc(plan.Copy.Findings, func(f object.Finding) bool {
		return f.Code == object.CodeWouldAdopt && f.Unit == fx.namespace+"/"+classyUnits[0] &&
			strings.Contains(f.Message, "of the target") && strings.Contains(f.Message, "MachineSet wide")
	}) {
		t.Errorf("nothing says so: %+v", plan.Copy.Findings)
	}
}

// TestAPIMoveRollbackLeavesTheOnlyCopy: a template that nothing uses has moved with the first
// workload clusters and is gone from the source. A rollback of the others must not remove it from
// the target, where nothing uses it either, nor a rule that works by labels: no field names it.
func TestAPIMoveRollbackLeavesTheOnlyCopy(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "only-copy")
	template := fx.kind(fx.at, object.GroupKind{Group: "bootstrap.cluster.x-k8s.io",
		Kind: "KubeadmConfigTemplate"})
	fx.fill(template, `{"metadata":{"name":"unused"},"spec":{"template":{"spec":{"format":"cloud-config"}}}}`)
	rule := fx.kind(fx.at, object.GroupKind{Group: "cluster.x-k8s.io", Kind: "MachineDrainRule"})
	fx.fill(rule, `{"metadata":{"name":"skips"},"spec":{"drain":{"behavior":"Skip"}}}`)
	allow := fx.deny("refuses-one", "clusters", `object.metadata.name != "`+classyUnits[1]+`"`)
	fx.carryOut(fx.order(doMove), catalog.Failed, nil)
	allow()
	has := func(s *side, k kube.Kind, name string) bool {
		_, err := s.Reader().Get(t.Context(), k, fx.namespace, name)
		return err == nil
	}
	if has(fx.source(), template, "unused") || !has(fx.target(), template, "unused") ||
		!has(fx.source(), rule, "skips") || !has(fx.target(), rule, "skips") {
		t.Fatal("the template has not moved, or the rule is not on both sides: the test shows nothing")
	}
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	if !has(fx.target(), template, "unused") {
		t.Error("the template is on neither side")
	}
	if !has(fx.target(), rule, "skips") {
		t.Error("the rule is gone from the target, where units that are retired use it")
	}
}
