package fence

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// policyName is the name of the admission policy, its binding and its ConfigMap.
const policyName = "mgmtd-moved"

// policyNamespace is that of the ConfigMap: every management cluster has it.
const policyNamespace = "kube-system"

// policyTime bounds the wait until API servers know of a change of the policy. It takes about a
// second: each of them watches the policy and its ConfigMap.
const policyTime = 10 * time.Second

const groupAdmission = "admissionregistration.k8s.io"

var (
	policyKind = kube.Kind{GroupKind: object.GroupKind{Group: groupAdmission,
		Kind: "ValidatingAdmissionPolicy"}, Version: "v1", Resource: "validatingadmissionpolicies"}
	bindingKind = kube.Kind{GroupKind: object.GroupKind{Group: groupAdmission,
		Kind: "ValidatingAdmissionPolicyBinding"}, Version: "v1",
		Resource: "validatingadmissionpolicybindings"}
)

// paused is the expression for a Cluster that is paused.
func paused(cluster string) string {
	return fmt.Sprintf("(has(%[1]s.spec) && has(%[1]s.spec.paused) && %[1]s.spec.paused)", cluster)
}

// policySpec denies the creation of a Cluster that is in the ConfigMap, and the end of its pause. A
// ConfigMap that is gone allows everything (parameterNotFoundAction of the binding): the
// alternative would stop every write of a Cluster.
func policySpec() map[string]any {
	listed := "has(params.data) && (request.namespace + '.' + object.metadata.name) in params.data"
	return map[string]any{
		"failurePolicy": "Fail",
		"paramKind":     map[string]any{"apiVersion": "v1", "kind": "ConfigMap"},
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{capi.GroupCore}, "apiVersions": []any{"*"},
			"resources": []any{"clusters"}, "operations": []any{"CREATE", "UPDATE"}}}},
		"validations": []any{map[string]any{
			"expression": "!(" + listed + ") || (request.operation == 'UPDATE' && (" +
				paused("object") + " || !" + paused("oldObject") + "))",
			"message": "another management cluster owns this workload cluster: it is fenced here, " +
				"and stays paused until the fence is lifted",
			"reason": "Forbidden",
		}},
	}
}

func bindingSpec() map[string]any {
	return map[string]any{"policyName": policyName, "validationActions": []any{"Deny"},
		"paramRef": map[string]any{"name": policyName, "namespace": policyNamespace,
			"parameterNotFoundAction": "Allow"}}
}

// PolicyWriter writes the objects of the policy.
type PolicyWriter interface {
	Writer
	Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	Delete(ctx context.Context, k kube.Kind, namespace, name string, uid types.UID,
		resourceVersion string) error
}

// Prober asks an API server what it would do.
type Prober interface {
	DryRunCreate(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
}

// Policy is the admission policy of one management cluster that denies to create a fenced Cluster
// again, and to end its pause: a GitOps tool would do both. Its ConfigMap lists them.
type Policy struct {
	Reader Reader
	Writer PolicyWriter
	Prober Prober
	Kinds  []kube.Kind
}

// policyKey is the key of a Cluster in the ConfigMap. A namespace has no dot.
func policyKey(ref object.Ref) string { return ref.Namespace + "." + ref.Name }

// Arm lists Clusters, makes what is missing of the policy, and waits until a dry run proves that
// the creation of one of them is denied.
func (p *Policy) Arm(ctx context.Context, clusters []Cluster) error {
	if len(clusters) == 0 {
		return nil
	}
	add := map[string]string{}
	for _, c := range clusters {
		add[policyKey(c.Ref)] = c.ID
	}
	if err := p.list(ctx, add); err != nil {
		return err
	}
	if err := p.ensure(ctx); err != nil {
		return err
	}
	return p.await(ctx, clusters[0].Ref, true)
}

// Disarm takes Clusters off the list, and waits until the API server allows them. When none is left
// the list goes, and without it the policy allows everything. Policy and binding stay: a
// kube-apiserver (v1.36) that has stopped to watch ConfigMaps for the last policy that needs them
// does not follow a policy that is made later, until it starts again.
func (p *Policy) Disarm(ctx context.Context, clusters []object.Ref) error {
	var listed []object.Ref
	err := kube.Retry(ctx, func() error {
		listed = nil
		u, err := p.Reader.Get(ctx, kube.ConfigMapKind, policyNamespace, policyName)
		if err != nil {
			return err
		}
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		for _, ref := range clusters {
			if _, ok := data[policyKey(ref)]; ok {
				listed = append(listed, ref)
				delete(data, policyKey(ref))
			}
		}
		if len(listed) == 0 {
			return nil
		}
		if len(data) == 0 {
			return p.Writer.Delete(ctx, kube.ConfigMapKind, policyNamespace, policyName, u.GetUID(),
				u.GetResourceVersion())
		}
		if err := unstructured.SetNestedStringMap(u.Object, data, "data"); err != nil {
			return err
		}
		_, err = p.Writer.Update(ctx, kube.ConfigMapKind, u)
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || len(listed) == 0 {
		return err
	}
	for _, ref := range listed {
		if err := p.await(ctx, ref, false); err != nil {
			return err
		}
	}
	return nil
}

// Allow takes one Cluster off the list, before it is released on this management cluster. Without
// the right to read the list it does nothing: nobody with these credentials armed the policy.
func (p *Policy) Allow(ctx context.Context, ref object.Ref) error {
	err := p.Disarm(ctx, []object.Ref{ref})
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lift the admission policy %s for %s: %w", policyName, ref, err)
	}
	return nil
}

// list adds keys to the ConfigMap.
func (p *Policy) list(ctx context.Context, add map[string]string) error {
	return kube.Retry(ctx, func() error {
		u, err := p.Reader.Get(ctx, kube.ConfigMapKind, policyNamespace, policyName)
		if apierrors.IsNotFound(err) {
			u = newPolicyObject(kube.ConfigMapKind, nil)
			u.SetNamespace(policyNamespace)
			if err := unstructured.SetNestedStringMap(u.Object, add, "data"); err != nil {
				return err
			}
			_, err = p.Writer.Create(ctx, kube.ConfigMapKind, u)
			return conflictIfExists(err)
		}
		if err != nil {
			return err
		}
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		all := maps.Clone(add)
		maps.Copy(all, data)
		if len(all) == len(data) {
			return nil
		}
		if err := unstructured.SetNestedStringMap(u.Object, all, "data"); err != nil {
			return err
		}
		_, err = p.Writer.Update(ctx, kube.ConfigMapKind, u)
		return err
	})
}

// conflictIfExists makes kube.Retry read again what somebody else created meanwhile.
func conflictIfExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		configMaps := schema.GroupResource{Resource: kube.ConfigMapKind.Resource}
		return apierrors.NewConflict(configMaps, policyName, err)
	}
	return err
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

// ensure makes policy and binding where they are missing.
func (p *Policy) ensure(ctx context.Context) error {
	for _, o := range []struct {
		kind kube.Kind
		spec map[string]any
	}{{policyKind, policySpec()}, {bindingKind, bindingSpec()}} {
		_, err := p.Reader.Get(ctx, o.kind, "", policyName)
		if apierrors.IsNotFound(err) {
			_, err = p.Writer.Create(ctx, o.kind, newPolicyObject(o.kind, o.spec))
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// await waits until the API server denies, or allows, to create a Cluster. It asks with a dry run:
// the policy decides before the server finds out that the Cluster exists.
func (p *Policy) await(ctx context.Context, ref object.Ref, denied bool) error {
	k, ok := kube.FindKind(p.Kinds, ref.GroupKind())
	if !ok {
		return fmt.Errorf("%s is not served", ref.GroupKind())
	}
	u, err := p.Reader.Get(ctx, k, ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return nil // nothing to ask with
	}
	if err != nil {
		return err
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp",
		"managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	delete(u.Object, "status")
	b := retry.Backoff{First: 100 * time.Millisecond, Longest: 500 * time.Millisecond}
	done, err := retry.Poll(ctx, b, policyTime, func(ctx context.Context) (bool, error) {
		_, err := p.Prober.DryRunCreate(ctx, k, u)
		is := err != nil && strings.Contains(err.Error(), policyName)
		if err != nil && !is && denied && !apierrors.IsAlreadyExists(err) {
			return false, fmt.Errorf("dry run of the admission policy: %w", err)
		}
		return is == denied, nil
	})
	if err == nil && !done {
		return fmt.Errorf("the API server does not follow the admission policy %s after %s", policyName,
			policyTime)
	}
	return err
}
