package fence

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

var (
	policyRef  = object.Ref{Group: policyKind.Group, Kind: policyKind.Kind, Name: policyName}
	bindingRef = object.Ref{Group: bindingKind.Group, Kind: bindingKind.Kind, Name: policyName}
)

// TestArmMendsAPolicyThatSomebodyEdited: one that matches nothing would be proven by nothing but
// the dry run of a creation, and a binding that only warns denies nothing.
func TestArmMendsAPolicyThatSomebodyEdited(t *testing.T) {
	m := newMemory()
	c := m.addCluster("w", true, nil)
	p := m.fence().Policy
	arm := func() {
		t.Helper()
		if err := p.Arm(t.Context(), []Cluster{c}); err != nil {
			t.Fatal(err)
		}
	}
	arm()
	policy, binding := policyRef, bindingRef
	spec := func(ref object.Ref, path ...string) any {
		v, _, _ := unstructured.NestedFieldNoCopy(m.objects[ref].Object, append([]string{"spec"}, path...)...)
		return v
	}
	set := func(ref object.Ref, v any, path ...string) {
		if err := unstructured.SetNestedField(m.objects[ref].Object, v,
			append([]string{"spec"}, path...)...); err != nil {
			t.Fatal(err)
		}
	}
	// what a server adds
	set(policy, "Equivalent", "matchConstraints", "matchPolicy")
	set(policy, map[string]any{}, "matchConstraints", "namespaceSelector")
	set(policy, map[string]any{}, "matchConstraints", "objectSelector")
	version := m.version
	arm()
	if m.version != version {
		t.Errorf("it writes to a policy that is as it should be")
	}
	set(policy, map[string]any{"matchLabels": map[string]any{"none": "none"}}, "matchConstraints",
		"namespaceSelector")
	set(binding, []any{"Warn"}, "validationActions")
	arm()
	if spec(policy, "matchConstraints", "namespaceSelector") != nil ||
		spec(binding, "validationActions").([]any)[0] != "Deny" {
		t.Errorf("policy %v, binding %v", m.objects[policy], m.objects[binding])
	}
}

// TestArmProvesWithAClusterThatIsThere: the first one of the list may be gone.
func TestArmProvesWithAClusterThatIsThere(t *testing.T) {
	m := newMemory()
	there := m.addCluster("there", true, nil)
	gone := Cluster{Ref: object.Ref{Group: there.Group, Kind: there.Kind, Namespace: "ns", Name: "gone"},
		ID: "id-of-gone"}
	m.refuse = func(u *unstructured.Unstructured) error {
		if u.GetName() == "there" {
			return errors.New("a webhook is down")
		}
		return nil
	}
	if err := m.fence().Policy.Arm(t.Context(), []Cluster{gone, there}); err == nil {
		t.Error("nothing proves the policy, and Arm returns no error")
	}
}

// TestArmListsNothingWhereThereAreNoPolicies: a list without its policy would look like protection.
func TestArmListsNothingWhereThereAreNoPolicies(t *testing.T) {
	m := newMemory()
	c := m.addCluster("w", true, nil)
	m.refuse = func(u *unstructured.Unstructured) error {
		if u.GetKind() == policyKind.Kind {
			return apierrors.NewNotFound(resourceOf(refOfObject(u)), "")
		}
		return nil
	}
	p := m.fence().Policy
	if err := p.Arm(t.Context(), []Cluster{c}); err == nil || m.listed() != nil {
		t.Errorf("listed %v, %v", m.listed(), err)
	}
	if err := p.Check(t.Context()); err == nil {
		t.Error("the check finds nothing")
	}
	m.refuse = nil
	if err := p.Check(t.Context()); err != nil || len(m.objects) != 1 {
		t.Errorf("the check: %v, %d objects", err, len(m.objects))
	}
}

// TestDisarmEndsTheListWithItsLastCluster: the policy and its binding stay.
func TestDisarmEndsTheListWithItsLastCluster(t *testing.T) {
	m := newMemory()
	a, b := m.addCluster("a", true, nil), m.addCluster("b", true, nil)
	p := m.fence().Policy
	if err := p.Arm(t.Context(), []Cluster{a, b}); err != nil {
		t.Fatal(err)
	}
	if err := p.Allow(t.Context(), a.Ref); err != nil || len(m.listed()) != 1 {
		t.Errorf("listed %v, %v", m.listed(), err)
	}
	if s, err := p.State(t.Context()); err != nil || !s.Enforced || !s.Denies(b.Ref) || s.Denies(a.Ref) {
		t.Errorf("state %v, %v", s, err)
	}
	if err := p.Allow(t.Context(), b.Ref); err != nil || m.objects[listRef] != nil || !m.enforced() {
		t.Errorf("left %v, %v", m.objects, err)
	}
	// without the list, a policy that denied would stop every write of a Cluster
	without, _, _ := unstructured.NestedString(m.objects[bindingRef].Object, "spec", "paramRef",
		"parameterNotFoundAction")
	if without != "Allow" {
		t.Errorf("without the list the policy does %q", without)
	}
}

// deletes has somebody else delete an object right before it is written for the first time.
type deletes struct {
	*memory
	ref object.Ref
}

func (d *deletes) delete(ref object.Ref) {
	if ref == d.ref {
		delete(d.objects, ref)
		d.ref = object.Ref{}
	}
}

func (d *deletes) Update(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	d.delete(refOfObject(u))
	return d.memory.Update(ctx, k, u)
}

func (d *deletes) Delete(ctx context.Context, k kube.Kind, namespace, name string, uid types.UID,
	version string) error {
	d.delete(object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name})
	return d.memory.Delete(ctx, k, namespace, name, uid, version)
}

// TestAListThatAnotherOperationEnds: it takes its last Cluster off the list, and deletes it, while
// this one adds a Cluster, or takes off the last one as well. A move took that for a management
// cluster without admission policies, and armed none for all workload clusters after that.
func TestAListThatAnotherOperationEnds(t *testing.T) {
	m := newMemory()
	theirs, ours := m.addCluster("theirs", true, nil), m.addCluster("ours", true, nil)
	p := m.fence().Policy
	if err := p.Arm(t.Context(), []Cluster{theirs}); err != nil {
		t.Fatal(err)
	}
	p.Writer = &deletes{memory: m, ref: listRef}
	if err := p.Arm(t.Context(), []Cluster{ours}); err != nil || m.listed()[policyKey(ours.Ref)] == "" {
		t.Errorf("listed %v, %v", m.listed(), err)
	}
	p.Writer = &deletes{memory: m, ref: listRef}
	if err := p.Allow(t.Context(), ours.Ref); err != nil || m.objects[listRef] != nil {
		t.Errorf("listed %v, %v", m.listed(), err)
	}
	m.objects[bindingRef].Object["spec"] = map[string]any{}
	p.Writer = &deletes{memory: m, ref: bindingRef}
	if err := p.Arm(t.Context(), []Cluster{ours}); err != nil || !m.enforced() {
		t.Errorf("it does not make the binding again that somebody deletes: %v", err)
	}
}

// unheard is a writer whose first answer to an update is lost.
type unheard struct {
	*memory
	lost bool
}

func (u *unheard) Update(ctx context.Context, k kube.Kind, o *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	is, err := u.memory.Update(ctx, k, o)
	if err == nil && !u.lost {
		u.lost = true
		return nil, apierrors.NewTimeoutError("the answer is lost", 0)
	}
	return is, err
}

// countedProofs counts the dry runs.
type countedProofs struct {
	*memory
	n int
}

func (c *countedProofs) DryRunCreate(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	c.n++
	return c.memory.DryRunCreate(ctx, k, u)
}

// TestAllowWaitsAlthoughItDidNotHearThatItIsOffTheList: a release that comes before the API server
// knows of it is denied.
func TestAllowWaitsAlthoughItDidNotHearThatItIsOffTheList(t *testing.T) {
	m := newMemory()
	a, b := m.addCluster("a", true, nil), m.addCluster("b", true, nil)
	p := m.fence().Policy
	if err := p.Arm(t.Context(), []Cluster{a, b}); err != nil {
		t.Fatal(err)
	}
	proofs := &countedProofs{memory: m}
	p.Writer, p.Prober = &unheard{memory: m}, proofs
	if err := p.Allow(t.Context(), a.Ref); err != nil || len(m.listed()) != 1 || proofs.n != 1 {
		t.Errorf("listed %v, %d dry runs, %v", m.listed(), proofs.n, err)
	}
}

// TestAWebhookThatDeniesTheProof says nothing of whether there are admission policies: the Cluster
// is listed, and so are the next ones.
func TestAWebhookThatDeniesTheProof(t *testing.T) {
	m := newMemory()
	c := m.addCluster("w", true, nil)
	m.refuse = func(u *unstructured.Unstructured) error {
		if u.GetName() == "w" {
			return apierrors.NewForbidden(resourceOf(c.Ref), "w", errors.New("a webhook denies it"))
		}
		return nil
	}
	err := m.fence().Policy.Arm(t.Context(), []Cluster{c})
	if err == nil || IsUnable(err) || len(m.listed()) != 1 {
		t.Errorf("listed %v, %v", m.listed(), err)
	}
}

// TestAPolicyThatIsMissingOrEditedIsNotEnforced: its list alone protects nothing.
func TestAPolicyThatIsMissingOrEditedIsNotEnforced(t *testing.T) {
	for _, part := range []object.Ref{policyRef, bindingRef} {
		m := newMemory()
		c := m.addCluster("w", true, nil)
		p := m.fence().Policy
		if err := p.Arm(t.Context(), []Cluster{c}); err != nil {
			t.Fatal(err)
		}
		enforced := func(want bool) {
			t.Helper()
			if s, err := p.State(t.Context()); err != nil || s.Enforced != want || !s.Denies(c.Ref) {
				t.Errorf("%s: state %v, %v", part, s, err)
			}
		}
		enforced(true)
		if err := unstructured.SetNestedField(m.objects[part].Object, "other", "spec",
			"edited"); err != nil {
			t.Fatal(err)
		}
		enforced(false)
		delete(m.objects, part)
		enforced(false)
	}
}

// TestAListThatMayNotBeChangedBlocksTheReturn: after the hand-over the release would be denied.
func TestAListThatMayNotBeChangedBlocksTheReturn(t *testing.T) {
	m := newMemory()
	moved, other := m.addCluster("moved", true, nil), m.addCluster("other", true, nil)
	p := m.fence().Policy
	check := func() []object.Finding {
		t.Helper()
		findings, err := p.CheckAllow(t.Context(), []object.Ref{moved.Ref, other.Ref})
		if err != nil {
			t.Fatal(err)
		}
		return findings
	}
	if got := check(); len(got) > 0 {
		t.Errorf("without a list: %v", got)
	}
	if err := p.Arm(t.Context(), []Cluster{moved}); err != nil {
		t.Fatal(err)
	}
	if got := check(); len(got) > 0 {
		t.Errorf("with the right to change it: %v", got)
	}
	m.refuse = func(u *unstructured.Unstructured) error {
		return apierrors.NewForbidden(resourceOf(refOfObject(u)), u.GetName(), errors.New("no right"))
	}
	if got := check(); len(got) != 1 || got[0].Unit != "ns/moved" || got[0].Severity != object.Error {
		t.Errorf("without the right to change it: %v", got)
	}
}
