package fence

import (
	"context"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// policyObjects are the policy and its binding.
func policyObjects() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{newPolicyObject(policyKind, policySpec()),
		newPolicyObject(bindingKind, bindingSpec())}
}

func newPolicyObject(k kube.Kind, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(k.APIVersion())
	u.SetKind(k.Kind)
	u.SetName(policyName)
	if spec != nil {
		u.Object["spec"] = spec
	}
	return u
}

func policyObjectKind(u *unstructured.Unstructured) kube.Kind {
	if u.GetKind() == bindingKind.Kind {
		return bindingKind
	}
	return policyKind
}

// ensure makes policy and binding where they are missing, and gives back their specs where somebody
// changed them, or an older version made them.
func (p *Policy) ensure(ctx context.Context) error {
	for _, want := range policyObjects() {
		k := policyObjectKind(want)
		err := kube.Retry(ctx, func() error {
			live, err := p.Reader.Get(ctx, k, "", policyName)
			if apierrors.IsNotFound(err) {
				_, err = p.Writer.Create(ctx, k, want)
				return conflictIfExists(err)
			}
			if err != nil || sameSpec(want, live) {
				return err
			}
			live.Object["spec"] = runtime.DeepCopyJSONValue(want.Object["spec"])
			_, err = p.Writer.Update(ctx, k, live)
			return conflictIfGone(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sameSpec compares the spec of a policy or a binding without what an API server adds to ours
// (k8s.io/api v0.36, admissionregistration/v1/types.go: the defaults of MatchResources).
func sameSpec(want, live *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(live.Object, "spec")
	constraints, _, _ := unstructured.NestedMap(spec, "matchConstraints")
	if constraints["matchPolicy"] == "Equivalent" {
		delete(constraints, "matchPolicy")
	}
	for _, selector := range []string{"namespaceSelector", "objectSelector"} {
		if m, ok := constraints[selector].(map[string]any); ok && len(m) == 0 {
			delete(constraints, selector)
		}
	}
	rules, _, _ := unstructured.NestedSlice(constraints, "resourceRules")
	for _, rule := range rules {
		if m, ok := rule.(map[string]any); ok && m["scope"] == "*" {
			delete(m, "scope")
		}
	}
	if len(rules) > 0 {
		constraints["resourceRules"] = rules
	}
	if len(constraints) > 0 {
		spec["matchConstraints"] = constraints
	}
	return reflect.DeepEqual(spec, want.Object["spec"])
}

// PolicyState is what there is of the admission policy.
type PolicyState struct {
	// Enforced: the policy and its binding are there, as this version makes them.
	Enforced bool
	listed   map[string]string
}

// Denies reports whether a Cluster is on the list.
func (s PolicyState) Denies(ref object.Ref) bool { return s.listed[policyKey(ref)] != lifted }

// Known reports whether a Cluster is on the list, or an operator has lifted that.
func (s PolicyState) Known(ref object.Ref) bool {
	_, ok := s.listed[policyKey(ref)]
	return ok
}

// deniesOther reports whether a Cluster is on the list for another workload cluster, which had its
// name before.
func (s PolicyState) deniesOther(c Cluster) bool {
	return s.Denies(c.Ref) && s.listed[policyKey(c.Ref)] != c.ID
}

// State reads the policy.
func (p *Policy) State(ctx context.Context) (PolicyState, error) {
	s := PolicyState{Enforced: true}
	for _, want := range policyObjects() {
		live, err := p.Reader.Get(ctx, policyObjectKind(want), "", policyName)
		switch {
		case apierrors.IsNotFound(err):
			s.Enforced = false
		case err != nil:
			return PolicyState{}, err
		default:
			s.Enforced = s.Enforced && sameSpec(want, live)
		}
	}
	u, err := p.Reader.Get(ctx, kube.ConfigMapKind, policyNamespace, policyName)
	if apierrors.IsNotFound(err) {
		return s, nil
	}
	if err == nil {
		s.listed, _, _ = unstructured.NestedStringMap(u.Object, "data")
	}
	return s, err
}

// DeniedID returns the id of the workload cluster for which the policy denies a Cluster; empty when
// it does not. Without the right to read the list it is empty, too: then Allow does nothing.
func (p *Policy) DeniedID(ctx context.Context, ref object.Ref) (id string, err error) {
	u, err := p.Reader.Get(ctx, kube.ConfigMapKind, policyNamespace, policyName)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	listed, _, _ := unstructured.NestedStringMap(u.Object, "data")
	return listed[policyKey(ref)], nil
}

// Check returns why the policy could not be armed: the API server lacks admission policies, or the
// credentials may not write them. It asks with dry runs, which change nothing.
func (p *Policy) Check(ctx context.Context) error {
	list := newPolicyObject(kube.ConfigMapKind, nil)
	list.SetNamespace(policyNamespace)
	for _, u := range append(policyObjects(), list) {
		k := kube.ConfigMapKind
		if u.GetKind() != k.Kind {
			k = policyObjectKind(u)
		}
		if _, err := p.Prober.DryRunCreate(ctx, k, u); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// IsUnable reports whether an error of Arm is there to stay: the API server lacks admission
// policies, or the credentials may not write them.
func IsUnable(err error) bool {
	return apierrors.IsForbidden(err) && !deniedByPolicy(err) || apierrors.IsNotFound(err)
}

// PolicyNotArmed is the finding about an admission policy that cannot be armed; side is that of the
// management cluster, "source" or "target", and may be empty.
func PolicyNotArmed(side string, err error) object.Finding {
	where := ""
	if side != "" {
		where = " on the " + side
	}
	return object.Finding{Severity: object.Warning, Code: object.CodePolicyNotArmed,
		Message: "nothing prevents others from ending the pause" + where + ", or from creating the " +
			"Clusters again: " + err.Error(),
		Hint: "suspend the GitOps tools that apply these Clusters; grant the credentials to write " +
			"ValidatingAdmissionPolicies, their bindings and ConfigMaps in " + policyNamespace}
}

// CheckAllow returns an error for each of the Clusters that is on the list, if the credentials may
// not take it off: its release would be denied. It asks with a dry run.
func (p *Policy) CheckAllow(ctx context.Context, clusters []object.Ref) ([]object.Finding, error) {
	u, err := p.Reader.Get(ctx, kube.ConfigMapKind, policyNamespace, policyName)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil // without the right to read it, the API server decides at the release
	}
	if err != nil {
		return nil, err
	}
	var s PolicyState
	s.listed, _, _ = unstructured.NestedStringMap(u.Object, "data")
	clusters = slices.DeleteFunc(slices.Clone(clusters),
		func(ref object.Ref) bool { return !s.Denies(ref) })
	if len(clusters) == 0 {
		return nil, nil
	}
	_, err = p.Prober.DryRunUpdate(ctx, kube.ConfigMapKind, u)
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if !apierrors.IsForbidden(err) {
		return nil, err
	}
	var findings []object.Finding
	for _, ref := range clusters {
		findings = append(findings, object.Finding{Severity: object.Error,
			Code: object.CodePolicyNotLifted, Ref: ref, Unit: Cluster{Ref: ref}.Unit(),
			Message: "it was moved away from the target or fenced there: the admission policy " +
				policyName + " denies to release it, and the credentials may not change that: " + err.Error(),
			Hint: "grant the credentials for the target to write the ConfigMap " + policyName + " in " +
				policyNamespace})
	}
	return findings, nil
}
