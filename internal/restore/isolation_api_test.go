//go:build api

package restore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// released returns the workload clusters with a prefix that are on the target, and whether each is
// released.
func released(t *testing.T, prefix string) map[string]bool {
	t.Helper()
	m := servers.Connect(t, 1)
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k, _ := kube.FindKind(kinds, capi.Cluster)
	found := map[string]bool{}
	if _, err := m.Reader().List(t.Context(), k, kube.ListOptions{}, func(raw []byte) error {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return err
		}
		if strings.HasPrefix(u.GetNamespace(), prefix) {
			found[u.GetNamespace()+"/"+u.GetName()] = !capi.PausedByUs(u.Object)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// classUsers returns the ClusterClasses with a prefix, and the workload clusters that use one, and
// that use none.
func classUsers(w *work, prefix string) (classes []object.Ref, users, others []string) {
	for _, n := range w.snapshot.Graph.Nodes {
		switch {
		case !strings.HasPrefix(n.Namespace, prefix):
		case n.GroupKind() == capi.ClusterClass:
			classes = append(classes, n.Ref)
		case n.GroupKind() == capi.Cluster:
			uses := false
			for _, need := range n.Needs {
				uses = uses || need.GroupKind() == capi.ClusterClass
			}
			if uses {
				users = append(users, n.Key().String())
			} else {
				others = append(others, n.Key().String())
			}
		}
	}
	return classes, users, others
}

// TestAPIARefusedSharedObjectBlocksItsUsersOnly: a policy of the target refuses the ClusterClasses
// of one fleet. What does not use them is released, and a resume restores the rest once the policy
// is gone.
func TestAPIARefusedSharedObjectBlocksItsUsersOnly(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "refused-", "--workloads", "2", "--machines", "1",
		"--fast")
	servers.Fleet(t, 0, "--namespace-prefix", "spared-", "--workloads", "2", "--machines", "1",
		"--fast")
	s := take(t, "refused-", "spared-")
	servers.Acknowledge(t, 1)
	w, err := s.open(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	classes, users, others := classUsers(w, "refused-")
	if len(classes) == 0 || len(users) == 0 || len(others) == 0 {
		t.Fatalf("classes %v, users %v, others %v", classes, users, others)
	}
	const name = "refuse-classes"
	policy := createOnTarget(t, "validatingadmissionpolicies",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy",
		"metadata":{"name":"`+name+`"},"spec":{"failurePolicy":"Fail",
		"matchConstraints":{"resourceRules":[{"apiGroups":["cluster.x-k8s.io"],"apiVersions":["*"],
			"operations":["CREATE"],"resources":["clusterclasses"]}]},
		"validations":[{"expression":"!object.metadata.namespace.startsWith('refused-')",
			"message":"no classes here"}]}}`)
	binding := createOnTarget(t, "validatingadmissionpolicybindings",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",
		"metadata":{"name":"`+name+`"},"spec":{"policyName":"`+name+`","validationActions":["Deny"]}}`)
	time.Sleep(2 * time.Second) // until the API server applies it
	err = s.carryOut(t.Context(), everything, realWriter)
	binding()
	policy()
	incomplete, ok := errors.AsType[*restore.IncompleteError](err)
	if !ok || incomplete.Failed != len(users) || !strings.Contains(err.Error(), "'"+name+"'") ||
		strings.Contains(err.Error(), "no classes here") || // a class may have secrets, so may these words
		!slices.ContainsFunc(classes, func(ref object.Ref) bool {
			return strings.Contains(err.Error(), ref.String())
		}) {
		t.Fatalf("with the policy: %v", err)
	}
	found := released(t, "refused-")
	for _, unit := range users {
		if _, there := found[unit]; there {
			t.Errorf("%s was begun without its class", unit)
		}
	}
	for _, unit := range others {
		if !found[unit] {
			t.Errorf("%s is not released", unit)
		}
	}
	_, users, others = classUsers(w, "spared-")
	found = released(t, "spared-")
	for _, unit := range slices.Concat(users, others) {
		if !found[unit] {
			t.Errorf("%s is not released", unit)
		}
	}
	time.Sleep(2 * time.Second)
	if err := s.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Fatalf("resumed without the policy: %v", err)
	}
	checkRestored(t, s)
}

var extensionConfigs = schema.GroupVersionResource{Group: capi.ExtensionConfig.Group,
	Version: "v1beta2", Resource: "extensionconfigs"}

// TestAPIAnExtensionIsDiscoveredBeforeItsClass: the controller of the target discovers an
// extension a while after its creation, unless it is paused, and injects its own CA.
func TestAPIAnExtensionIsDiscoveredBeforeItsClass(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "extended-", "--workloads", "2", "--machines", "1",
		"--fast")
	const name = "extended-variables"
	extension := extendOnSource(t, name, "extended-")
	s := take(t, "extended-")
	extension()
	servers.Acknowledge(t, 1)
	discovered := discoverOnTarget(t, name)
	if err := s.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Fatal(err)
	}
	discovered.mu.Lock()
	defer discovered.mu.Unlock()
	if discovered.at.IsZero() || discovered.classBefore {
		t.Errorf("discovered at %s, a class was there before: %v", discovered.at, discovered.classBefore)
	}
	w, err := s.open(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	_, users, others := classUsers(w, "extended-")
	found := released(t, "extended-")
	for _, unit := range slices.Concat(users, others) {
		if !found[unit] {
			t.Errorf("%s is not released", unit)
		}
	}
	live, err := dynamicClient(t, 1).Resource(extensionConfigs).Get(t.Context(), name,
		metav1.GetOptions{})
	if err != nil || len(live.GetAnnotations()) > 0 {
		t.Errorf("the extension has annotations %v: %v", live.GetAnnotations(), err)
	}
}

// extendOnSource makes an ExtensionConfig on the source that is discovered and that all classes
// with a prefix name, until undo is called.
func extendOnSource(t *testing.T, name, prefix string) (undo func()) {
	t.Helper()
	ctx := t.Context()
	client := dynamicClient(t, 0)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{"clientConfig": map[string]any{"url": "https://extension.example.test",
			"caBundle": "c291cmNl"}},
	}}
	created, err := client.Resource(extensionConfigs).Create(ctx, u, metav1.CreateOptions{})
	if err == nil {
		err = setDiscovered(ctx, t, 0, created)
	}
	if err != nil {
		t.Fatal(err)
	}
	classes := client.Resource(schema.GroupVersionResource{Group: capi.GroupCore, Version: "v1beta2",
		Resource: "clusterclasses"})
	patch := func(text string) {
		t.Helper()
		list, err := classes.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Items {
			if !strings.HasPrefix(c.GetNamespace(), prefix) {
				continue
			}
			if _, err := classes.Namespace(c.GetNamespace()).Patch(ctx, c.GetName(),
				types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	patch(`{"spec":{"patches":[{"name":"x","external":{"discoverVariablesExtension":"discover.` +
		name + `"}}]}}`)
	return func() {
		patch(`{"spec":{"patches":null}}`)
		if err := client.Resource(extensionConfigs).Delete(ctx, name,
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

func setDiscovered(ctx context.Context, t *testing.T, server int,
	u *unstructured.Unstructured) error {
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Discovered",
		"status": "True", "reason": "Discovered", "message": "",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}
	_, err := dynamicClient(t, server).Resource(extensionConfigs).UpdateStatus(ctx, u,
		metav1.UpdateOptions{})
	return err
}

// discovery is what a fake controller of ExtensionConfigs saw.
type discovery struct {
	mu          sync.Mutex
	at          time.Time
	classBefore bool
}

// discoverOnTarget runs the fake controller of one ExtensionConfig until the test ends.
func discoverOnTarget(t *testing.T, name string) *discovery {
	t.Helper()
	d := &discovery{}
	ctx, cancel := context.WithCancel(context.Background())
	client := dynamicClient(t, 1)
	classes := client.Resource(schema.GroupVersionResource{Group: capi.GroupCore, Version: "v1beta2",
		Resource: "clusterclasses"})
	step := func(seen *time.Time) error {
		u, err := client.Resource(extensionConfigs).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, paused := u.GetAnnotations()[capi.AnnotationPaused]; paused {
			return nil
		}
		if seen.IsZero() {
			*seen = time.Now()
		}
		if time.Since(*seen) < 3*time.Second {
			list, err := classes.List(ctx, metav1.ListOptions{})
			if err == nil {
				for _, c := range list.Items {
					d.classBefore = d.classBefore || strings.HasPrefix(c.GetNamespace(), "extended-")
				}
			}
			return err
		}
		if err := unstructured.SetNestedField(u.Object, "dGFyZ2V0", "spec", "clientConfig",
			"caBundle"); err != nil {
			return err
		}
		if u, err = client.Resource(extensionConfigs).Update(ctx, u, metav1.UpdateOptions{}); err == nil {
			err = setDiscovered(ctx, t, 1, u)
		}
		if err == nil {
			d.at = time.Now()
		}
		return err
	}
	var g sync.WaitGroup
	g.Go(func() {
		var seen time.Time
		for ctx.Err() == nil && d.at.IsZero() {
			d.mu.Lock()
			err := step(&seen)
			d.mu.Unlock()
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) &&
				ctx.Err() == nil {
				t.Error(err)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel()
		g.Wait()
	})
	return d
}
