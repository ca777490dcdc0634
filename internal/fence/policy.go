package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// lifted is the value of a Cluster in the ConfigMap that is not denied, although it was fenced or
// moved away: an operator lifted that. All others have the id of their workload cluster.
const lifted = ""

// policyNamespace is that of the ConfigMap: every management cluster has it.
const policyNamespace = "kube-system"

// policyTime bounds the wait until API servers know of a change of the policy. It takes about a
// second: each of them watches the policy and its ConfigMap. policySoon is how long a wait takes
// where no dry run shows it, since something else refuses it first.
const policyTime, policySoon = 10 * time.Second, 3 * time.Second

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

// policySpec denies to create a Cluster that is in the ConfigMap, unless it is paused, and to end
// its pause. A paused Cluster may be created: no controller reconciles it, and that is how a
// restore or a move brings it back, which takes it off the list right before the release. A
// ConfigMap that is gone allows everything (parameterNotFoundAction of the binding): the
// alternative would stop every write of a Cluster.
func policySpec() map[string]any {
	const key = "(request.namespace + '.' + object.metadata.name)"
	listed := "(has(params.data) && " + key + " in params.data && params.data[" + key + "] != '" +
		lifted + "')"
	return map[string]any{
		"failurePolicy": "Fail",
		"paramKind":     map[string]any{"apiVersion": "v1", "kind": "ConfigMap"},
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{capi.GroupCore}, "apiVersions": []any{"*"},
			"resources": []any{"clusters"}, "operations": []any{"CREATE", "UPDATE"}}}},
		"validations": []any{map[string]any{
			"expression": "!" + listed + " || " + paused("object") +
				" || (request.operation == 'UPDATE' && !" + paused("oldObject") + ")",
			"message": "another management cluster owns this workload cluster: here it is fenced, or was " +
				"moved away, and it is neither created nor unpaused until the fence is lifted",
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
	DryRunUpdate(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
}

// Policy is the admission policy of one management cluster that denies to create again what was
// fenced there or moved away, and to end its pause: a GitOps tool would do both. Its ConfigMap
// lists these Clusters. A Policy may be used concurrently.
type Policy struct {
	Reader Reader
	Writer PolicyWriter
	Prober Prober
	Kinds  []kube.Kind
	// Alive returns an error when another host has taken over the operation that writes the list. It
	// is asked after each read of the list and before the write that follows, so that what the other
	// host writes to the list after that makes the write fail. It is nil for callers that are no
	// operation.
	Alive func(ctx context.Context) error

	listing sync.Mutex // held while the list is written: writers of one process do not conflict
}

// policyKey is the key of a Cluster in the ConfigMap. A namespace has no dot.
func policyKey(ref object.Ref) string { return ref.Namespace + "." + ref.Name }

// Arm makes what is missing of the policy, lists Clusters, and waits until a dry run proves that
// the creation of one of them is denied. It proves nothing where none of them is there.
func (p *Policy) Arm(ctx context.Context, clusters []Cluster) error {
	if len(clusters) == 0 {
		return nil
	}
	if err := p.ensure(ctx); err != nil {
		return err
	}
	if err := p.change(ctx, p.Alive, func(data map[string]string) bool {
		changed := false
		for _, c := range clusters {
			// It may have the id of another workload cluster, which had this name before.
			if has := data[policyKey(c.Ref)]; has == lifted || c.ID != "" && has != c.ID {
				data[policyKey(c.Ref)], changed = c.ID, true
			}
		}
		return changed
	}); err != nil {
		return err
	}
	for _, c := range clusters {
		if asked, err := p.await(ctx, c.Ref, true); asked || err != nil {
			return err
		}
	}
	return nil
}

// Disarm takes Clusters off the list, and waits until the API server allows them. When none is left
// the list goes, and without it the policy allows everything. Policy and binding stay: a
// kube-apiserver (v1.36) that has stopped to watch ConfigMaps for the last policy that needs them
// does not follow a policy that is made later, until it starts again.
func (p *Policy) Disarm(ctx context.Context, clusters []object.Ref) error {
	return p.disarm(ctx, p.Alive, clusters)
}

func (p *Policy) disarm(ctx context.Context, alive func(ctx context.Context) error,
	clusters []object.Ref) error {
	listed := map[object.Ref]bool{} // also by an earlier try, which may have taken it off unheard
	err := p.change(ctx, alive, func(data map[string]string) (changed bool) {
		for _, ref := range clusters {
			if _, ok := data[policyKey(ref)]; ok {
				listed[ref], changed = true, true
				delete(data, policyKey(ref))
			}
		}
		return changed
	})
	if err != nil {
		return err
	}
	for _, ref := range clusters {
		if !listed[ref] {
			continue
		}
		if _, err := p.await(ctx, ref, false); err != nil {
			return err
		}
	}
	return nil
}

// forget lets Clusters that are not there be created, and remembers that an operator asked for it.
func (p *Policy) forget(ctx context.Context, clusters []Cluster) error {
	return p.change(ctx, p.Alive, func(data map[string]string) bool {
		changed := false
		for _, c := range clusters {
			if _, ok := data[policyKey(c.Ref)]; ok {
				data[policyKey(c.Ref)], changed = lifted, true
			}
		}
		return changed
	})
}

// Allow takes one Cluster off the list, before it is released on this management cluster. Without
// the right to read or write the list it does nothing: then the API server decides.
func (p *Policy) Allow(ctx context.Context, ref object.Ref) error {
	return p.allow(ctx, p.Alive, ref)
}

// TakeBack is Allow for a run that another host has taken over, and that gives back the pause it
// has just set: it does not ask Alive. The caller knows by the lock of the Cluster that the pause
// is its own.
func (p *Policy) TakeBack(ctx context.Context, ref object.Ref) error {
	return p.allow(ctx, nil, ref)
}

func (p *Policy) allow(ctx context.Context, alive func(ctx context.Context) error,
	ref object.Ref) error {
	err := p.disarm(ctx, alive, []object.Ref{ref})
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lift the admission policy %s for %s: %w", policyName, ref, err)
	}
	return nil
}

// change changes the data of the ConfigMap, until nobody else does at the same time. It makes the
// ConfigMap when there is none, and deletes one that becomes empty. It writes nothing when alive,
// which may be nil, returns an error.
func (p *Policy) change(ctx context.Context, alive func(ctx context.Context) error,
	fn func(data map[string]string) (changed bool)) error {
	p.listing.Lock()
	defer p.listing.Unlock()
	return kube.Retry(ctx, func() error {
		u, err := p.Reader.Get(ctx, kube.ConfigMapKind, policyNamespace, policyName)
		missing := apierrors.IsNotFound(err)
		if missing {
			u = newPolicyObject(kube.ConfigMapKind, nil)
			u.SetNamespace(policyNamespace)
		} else if err != nil {
			return err
		}
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		if data == nil {
			data = map[string]string{}
		}
		if !fn(data) {
			return nil
		}
		if alive != nil {
			if err := alive(ctx); err != nil {
				return err
			}
		}
		if len(data) == 0 {
			err := p.Writer.Delete(ctx, kube.ConfigMapKind, policyNamespace, policyName, u.GetUID(),
				u.GetResourceVersion())
			if !apierrors.IsForbidden(err) {
				return conflictIfGone(err)
			} // an empty list serves as well
		}
		if err := unstructured.SetNestedStringMap(u.Object, data, "data"); err != nil {
			return err
		}
		if missing {
			_, err = p.Writer.Create(ctx, kube.ConfigMapKind, u)
			return conflictIfExists(err)
		}
		_, err = p.Writer.Update(ctx, kube.ConfigMapKind, u)
		return conflictIfGone(err)
	})
}

// conflictIfExists makes kube.Retry read again what somebody else created meanwhile.
func conflictIfExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return asConflict(err)
	}
	return err
}

// conflictIfGone makes kube.Retry read again what somebody else deleted meanwhile: another
// operation has taken the last Cluster off the list.
func conflictIfGone(err error) error {
	if apierrors.IsNotFound(err) {
		return asConflict(err)
	}
	return err
}

func asConflict(err error) error {
	configMaps := schema.GroupResource{Resource: kube.ConfigMapKind.Resource}
	return apierrors.NewConflict(configMaps, policyName, err)
}

// await waits until the API server denies, or allows, to create a Cluster, and reports false when
// the Cluster is not there, so that there is nothing to ask with. It asks with a dry run: the
// policy decides before the server finds out that the Cluster exists. Of several API servers it
// asks one.
func (p *Policy) await(ctx context.Context, ref object.Ref, denied bool) (asked bool, err error) {
	k, ok := kube.FindKind(p.Kinds, ref.GroupKind())
	if !ok {
		return false, fmt.Errorf("%s is not served", ref.GroupKind())
	}
	u, err := p.Reader.Get(ctx, k, ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp",
		"managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "spec", "paused") // it denies no paused Cluster
	delete(u.Object, "status")
	b := retry.Backoff{First: 100 * time.Millisecond, Longest: 500 * time.Millisecond}
	began := time.Now()
	done, err := retry.Poll(ctx, b, policyTime, func(ctx context.Context) (bool, error) {
		_, err := p.Prober.DryRunCreate(ctx, k, u)
		is := deniedByPolicy(err)
		switch {
		case is, err == nil, apierrors.IsAlreadyExists(err):
			return is == denied, nil
		case denied:
			// not wrapped: it says nothing of the policy (IsUnable), such as the denial of a webhook
			return false, cmp.Or(context.Cause(ctx),
				errors.New("dry run of the admission policy: "+err.Error()))
		}
		return time.Since(began) >= policySoon, nil
	})
	if err == nil && !done {
		err = fmt.Errorf("the API server does not follow the admission policy %s after %s", policyName,
			policyTime)
	}
	return true, err
}

// deniedByPolicy reports whether the answer of an API server is the denial of the policy. It quotes
// the name (k8s.io/apiserver v0.36, pkg/admission/plugin/policy/validating/dispatcher.go).
func deniedByPolicy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "'"+policyName+"'")
}
