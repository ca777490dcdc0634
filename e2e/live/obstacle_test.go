package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// obstacle is a scenario with something on the target that is in the way of a restore.
type obstacle struct {
	name   string
	shapes []fleet.Shape
	// known: the target has the namespaces before the restore, so the plan finds the obstacle.
	// Otherwise the run finds it, after it has created the namespaces.
	known bool
	// put creates the obstacle and returns its objects.
	put func(o *operator) []*unstructured.Unstructured
	// code and reason are in the finding about each unit of blocked.
	code, reason string
	// blocked are the workload clusters that the obstacle blocks, as namespace/name.
	blocked []string
	// changes reports whether the obstacle changes an object, and in which field.
	changes func(*unstructured.Unstructured) (field string, changes bool)
}

// effective is longer than the API server takes to apply a new or changed policy or webhook.
const effective = 4 * time.Second

// obstacles are the scenarios of TestLongAdversity with an obstacle.
func obstacles() []obstacle { return slices.Concat(refusals(), changes(), webhooks()) }

// pair returns two workload clusters of a namespace: "lucky", which no obstacle is about, and
// "unlucky".
func pair(namespace string) []fleet.Shape {
	return []fleet.Shape{
		{Name: "lucky", Namespace: namespace, ControlPlanes: 1},
		{Name: "unlucky", Namespace: namespace, ControlPlanes: 1, Pools: []int{1}},
	}
}

// ofUnlucky is true, in CEL, for objects of the workload cluster "unlucky".
const ofUnlucky = `object.?metadata.?labels['cluster.x-k8s.io/cluster-name'].orValue('') == ` +
	`'unlucky'`

// namespaces returns those of the workload clusters, sorted.
func (s obstacle) namespaces() []string {
	var namespaces []string
	for _, shape := range s.shapes {
		namespaces = append(namespaces, shape.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// differences returns what the obstacle changes for good.
func (s obstacle) differences(before observe.Objects) []string {
	if s.changes == nil {
		return nil
	}
	var differences []string
	for _, ref := range before.Refs() {
		if field, changes := s.changes(before[ref]); changes {
			differences = append(differences, fmt.Sprintf("%s differs in %s", ref, field))
		}
	}
	return differences
}

// testObstacle restores the workload clusters of a scenario while the obstacle is there, and those
// that it blocks once it is gone.
func (o *operator) testObstacle(s obstacle) {
	namespaces := s.namespaces()
	before := o.before.In(namespaces...)
	selection := []string{"--source-is-gone", "--force", "source-seen-recently"}
	for _, ns := range namespaces {
		selection = append(selection, "--namespace", ns)
		if s.known {
			o.create(before[observe.Ref{Kind: "Namespace", Name: ns}])
		}
	}
	put := s.put(o)
	time.Sleep(effective)
	if len(s.blocked) == 0 {
		o.restore(codeDone, selection...)
		o.assertRestored(o.t, before, s.differences(before), namespaces...)
		o.remove(put...)
		return
	}
	if p := o.plan(s.planCode(), selection...); s.known && !p.finds(s.code) {
		o.t.Errorf("the plan does not find %s: %+v", s.code, p.Findings)
	}
	out := o.restore(codeLeft, selection...)
	for _, unit := range s.blocked {
		o.assertBlames(out, s.code, unit, s.reason)
	}
	o.assertOnlyHealthy(before, s.blocked, namespaces)

	o.remove(put...)
	time.Sleep(effective)
	if s.known {
		// The plan blocks the units: only a new one restores them.
		o.restore(codeDone, selection...)
	} else {
		o.run(codeDone, slices.Concat([]string{"operation", "resume", "latest"}, o.flags())...)
	}
	o.assertRestored(o.t, before, s.differences(before), namespaces...)
}

func (s obstacle) planCode() int {
	if s.known {
		return codeFindings
	}
	return codeDone
}

// remove deletes objects of the target.
func (o *operator) remove(objects ...*unstructured.Unstructured) {
	o.t.Helper()
	for _, u := range objects {
		if err := o.clients[o.target].Delete(o.t.Context(), u); err != nil {
			o.t.Fatal(err)
		}
	}
}

// assertOnlyHealthy asserts that nothing of the blocked workload clusters is on the target, and
// that all others of before are restored and Available. It leaves out ClusterResourceSets, which
// are paused until all workload clusters of their namespace are released.
func (o *operator) assertOnlyHealthy(before observe.Objects, blocked, namespaces []string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), healthTimeout)
	defer cancel()
	here := o.inventory(namespaces...)
	healthy := observe.Objects{}
	for ref, object := range before {
		unit := ref.Namespace + "/" + clusterOf(object)
		switch {
		case ref.Kind == "ClusterResourceSet":
		case !slices.Contains(blocked, unit):
			// Shared objects that only blocked workload clusters use may be missing.
			if clusterOf(object) != "" || here[ref] != nil {
				healthy[ref] = object
			}
		case here[ref] != nil:
			o.t.Errorf("%s was created, although %s is blocked", ref, unit)
		}
	}
	after, err := observe.Await(ctx, o.target.Kubeconfig(), func(after observe.Objects) []string {
		return observe.Health(healthy, after)
	}, namespaces...)
	if err != nil {
		o.t.Errorf("wait for health: %v", err)
	}
	maps.DeleteFunc(after, func(ref observe.Ref, _ *unstructured.Unstructured) bool {
		return ref.Kind == "ClusterResourceSet"
	})
	var differences []string
	for _, d := range observe.Compare(healthy, after, observe.Options{WithoutStatus: true}) {
		differences = append(differences, d.String())
	}
	assertNone(o.t, "differences of what is not blocked", differences)
	assertNone(o.t, "paused", observe.CheckPaused(healthy, after))
	assertNone(o.t, "Machines", observe.CompareMachines(healthy, after))
}

// policy creates an admission policy of kind Validating… or MutatingAdmissionPolicy for creations
// of resources ("group/resource") in one namespace, and its binding.
func (o *operator) policy(kind, namespace string, resources []string, condition string,
	spec map[string]any) []*unstructured.Unstructured {
	o.t.Helper()
	rules := make([]any, 0, len(resources))
	for _, resource := range resources {
		group, name, _ := strings.Cut(resource, "/")
		rules = append(rules, map[string]any{"apiGroups": []any{group}, "apiVersions": []any{"*"},
			"operations": []any{"CREATE"}, "resources": []any{name}})
	}
	const api = "admissionregistration.k8s.io/v1"
	policy := object(api, kind, "", namespace)
	spec["failurePolicy"] = "Fail"
	spec["matchConstraints"] = map[string]any{"resourceRules": rules}
	spec["matchConditions"] = []any{
		map[string]any{"name": "namespace", "expression": "request.namespace == '" + namespace + "'"},
		map[string]any{"name": "object", "expression": condition},
	}
	policy.Object["spec"] = spec
	binding := object(api, kind+"Binding", "", namespace)
	bound := map[string]any{"policyName": namespace}
	if kind == validating {
		bound["validationActions"] = []any{"Deny"}
	}
	binding.Object["spec"] = bound
	for _, u := range []*unstructured.Unstructured{policy, binding} {
		if err := o.clients[o.target].Create(o.t.Context(), u); err != nil {
			o.t.Fatal(err)
		}
	}
	return []*unstructured.Unstructured{binding, policy}
}

// Kinds of admission policies.
const (
	validating = "ValidatingAdmissionPolicy"
	mutating   = "MutatingAdmissionPolicy"
)

// deny returns a policy that denies objects for which condition is true in CEL.
func deny(namespace, resource, condition string) func(o *operator) []*unstructured.Unstructured {
	return func(o *operator) []*unstructured.Unstructured {
		return o.policy(validating, namespace, []string{resource}, condition, map[string]any{
			"validations": []any{map[string]any{"expression": "false", "message": "the house says no"}},
		})
	}
}

// mutate returns a policy that mutates objects for which condition is true in CEL.
func mutate(namespace, resource, condition string, mutation map[string]any) func(
	o *operator) []*unstructured.Unstructured {
	return func(o *operator) []*unstructured.Unstructured {
		return o.policy(mutating, namespace, []string{resource}, condition, map[string]any{
			"reinvocationPolicy": "Never", "mutations": []any{mutation},
		})
	}
}

// jsonPatch and applyConfiguration are the two forms of a mutation; expression is CEL.
func jsonPatch(expression string) map[string]any {
	return map[string]any{"patchType": "JSONPatch",
		"jsonPatch": map[string]any{"expression": expression}}
}

func applyConfiguration(expression string) map[string]any {
	return map[string]any{"patchType": "ApplyConfiguration",
		"applyConfiguration": map[string]any{"expression": expression}}
}

// refusals are the obstacles that refuse objects.
func refusals() []obstacle {
	return []obstacle{
		{
			name: "Quota", known: true,
			shapes: []fleet.Shape{
				{Name: "web", Namespace: "quota", ControlPlanes: 1},
				{Name: "web", Namespace: "quota-roomy", ControlPlanes: 1},
			},
			put:  quota("quota"),
			code: "quota", reason: "quota tight of namespace quota allows 3 of secrets",
			blocked: []string{"quota/web"},
		},
		{
			name: "SecretsDenied", shapes: pair("secrets-denied"),
			put: deny("secrets-denied", "/secrets", ofUnlucky),
			// The words of the policy could quote a value.
			code: "refused-by-target", reason: "ValidatingAdmissionPolicy 'secrets-denied'",
			blocked: []string{"secrets-denied/unlucky"},
		},
		{
			name: "MachinesDenied", shapes: pair("machines-denied"), known: true,
			put:  deny("machines-denied", "cluster.x-k8s.io/machines", ofUnlucky),
			code: "refused-by-target", reason: "the house says no",
			blocked: []string{"machines-denied/unlucky"},
		},
		{
			name: "SharedDenied",
			shapes: []fleet.Shape{
				{Name: "lucky", Namespace: "shared-denied", ControlPlanes: 1},
				{Name: "unlucky", Namespace: "shared-denied", ControlPlanes: 1, Addons: true},
			},
			put:  deny("shared-denied", "/configmaps", "object.metadata.name == 'cni'"),
			code: "unit-failed", reason: "ConfigMap/shared-denied/cni",
			blocked: []string{"shared-denied/unlucky"},
		},
		{
			name: "RolledOut", shapes: pair("rolled-out"),
			put: mutate("rolled-out", "controlplane.cluster.x-k8s.io/kubeadmcontrolplanes",
				ofUnlucky, jsonPatch(`[JSONPatch{op: "add", path: `+
					`"/spec/kubeadmConfigSpec/preKubeadmCommands", value: ["true"]}]`)),
			code: "would-roll-out", reason: "preKubeadmCommands",
			blocked: []string{"rolled-out/unlucky"},
		},
		{
			name: "BootstrapChanged", shapes: pair("bootstrap-changed"),
			put: mutate("bootstrap-changed", "bootstrap.cluster.x-k8s.io/kubeadmconfigs", ofUnlucky+
				` && 'cluster.x-k8s.io/control-plane' in object.metadata.labels`, jsonPatch(
				`[JSONPatch{op: "add", path: "/spec/preKubeadmCommands", value: ["true"]}]`)),
			code: "would-roll-out", reason: "preKubeadmCommands",
			blocked: []string{"bootstrap-changed/unlucky"},
		},
		{
			name: "ClassTemplateChanged", shapes: classyPair("template-changed"),
			put:  changeTemplate("template-changed"),
			code: "unit-failed", reason: "preKubeadmCommands",
			blocked: []string{"template-changed/unlucky"},
		},
		{
			name: "ClassTemplateChangedInPlan", shapes: classyPair("template-planned"), known: true,
			put:  changeTemplate("template-planned"),
			code: "would-roll-out", reason: "preKubeadmCommands",
			blocked: []string{"template-planned/unlucky"},
		},
	}
}

// classyPair returns two workload clusters of a namespace, of which "unlucky" has a ClusterClass.
func classyPair(namespace string) []fleet.Shape {
	return []fleet.Shape{
		{Name: "lucky", Namespace: namespace, ControlPlanes: 1},
		{Name: "unlucky", Namespace: namespace, ClassNamespace: namespace, ControlPlanes: 1,
			Pools: []int{1}},
	}
}

// changeTemplate returns a policy that changes a template of the ClusterClass of a namespace, and
// not those that the topology controller has made from it.
func changeTemplate(namespace string) func(o *operator) []*unstructured.Unstructured {
	return mutate(namespace, "bootstrap.cluster.x-k8s.io/kubeadmconfigtemplates",
		"object.metadata.name == 'in-memory-worker'", jsonPatch(`[JSONPatch{op: "add", path: `+
			`"/spec/template/spec/preKubeadmCommands", value: ["true"]}]`))
}

// changes are the obstacles that change objects and refuse none.
func changes() []obstacle {
	return []obstacle{{
		name: "SecretsLabelled",
		shapes: []fleet.Shape{{Name: "web", Namespace: "secrets-labelled", ControlPlanes: 1,
			Pools: []int{1}}},
		put: mutate("secrets-labelled", "/secrets", "true", applyConfiguration(
			`Object{metadata: Object.metadata{labels: {"house.example.org/seen": "true"}}}`)),
		changes: func(u *unstructured.Unstructured) (string, bool) {
			return newLabel(u, "house.example.org/seen"), u.GetKind() == "Secret"
		},
	}}
}

// newLabel returns the field in which a new label makes an object differ.
func newLabel(u *unstructured.Unstructured, label string) string {
	if len(u.GetLabels()) == 0 {
		return "metadata.labels"
	}
	return fmt.Sprintf("metadata.labels[%q]", label)
}

// quota returns a ResourceQuota with room for fewer Secrets than a workload cluster has.
func quota(namespace string) func(o *operator) []*unstructured.Unstructured {
	return func(o *operator) []*unstructured.Unstructured {
		tight := object("v1", "ResourceQuota", namespace, "tight")
		tight.Object["spec"] = map[string]any{"hard": map[string]any{"secrets": "3"}}
		if err := o.clients[o.target].Create(o.t.Context(), tight); err != nil {
			o.t.Fatal(err)
		}
		return []*unstructured.Unstructured{tight}
	}
}
