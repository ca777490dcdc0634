package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// healthTimeout is how long the controllers may take to reach the expected state.
const healthTimeout = time.Minute

// namespacesWith returns the namespaces of the source that begin with prefix.
func (f *fixture) namespacesWith(prefix string) []string {
	var names []string
	for _, o := range f.beforeMoves.Of("", "Namespace") {
		if strings.HasPrefix(o.GetName(), prefix) {
			names = append(names, o.GetName())
		}
	}
	return names
}

// inventory returns the objects of the target in namespaces.
func (o *operator) inventory(namespaces ...string) observe.Objects {
	o.t.Helper()
	objects, err := observe.Inventory(o.t.Context(), o.target.Kubeconfig(), namespaces...)
	if err != nil {
		o.t.Fatalf("inventory of the target: %v", err)
	}
	return objects
}

// assertRestored is assertIntactOn the target.
func (f *fixture) assertRestored(t *testing.T, before observe.Objects, expected []string,
	namespaces ...string) {
	t.Helper()
	f.assertIntactOn(t, f.target, before, expected, namespaces...)
}

// assertIntactOn asserts everything that a restore or a move promises. before is everything that
// the management cluster must have in namespaces, expected the differences that there must be.
func (f *fixture) assertIntactOn(t *testing.T, mgmt *lab.Mgmt, before observe.Objects,
	expected []string,
	namespaces ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), healthTimeout)
	defer cancel()
	// Exit code 0 says that all is healthy; a controller may still change a status for a moment.
	after, err := observe.Await(ctx, mgmt.Kubeconfig(), func(after observe.Objects) []string {
		return slices.Concat(observe.Health(before, after), observe.CheckPaused(before, after))
	}, namespaces...)
	if err != nil {
		t.Errorf("wait for health: %v", err)
	}
	if after == nil {
		return
	}
	var differences []string
	for _, d := range observe.Compare(before, after, observe.Options{WithoutStatus: true}) {
		differences = append(differences, d.String())
	}
	assertEqual(t, "differences", differences, expected)
	assertNone(t, "paused", observe.CheckPaused(before, after))
	assertNone(t, "health", observe.Health(before, after))
	assertNone(t, "Machines", observe.CompareMachines(before, after))
	hashes := observe.Authorities(after)
	for ref, hash := range observe.Authorities(before) {
		if hashes[ref] != hash {
			t.Errorf("%s has another CA or key than before", ref)
		}
	}
	references, dangling, err := observe.CheckOwners(t.Context(), mgmt.Kubeconfig(), namespaces...)
	if err != nil {
		t.Errorf("check owners: %v", err)
	}
	assertNone(t, "owners", dangling)
	t.Logf("%s: %d objects, %d owner references, %d Machines", strings.Join(namespaces, " "),
		len(after), references, len(observe.Machines(after)))
}

func assertNone(t *testing.T, what string, problems []string) {
	t.Helper()
	assertEqual(t, what, problems, nil)
}

func assertEqual(t *testing.T, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	const most = 20
	shown := got
	if len(shown) > most {
		shown = append(slices.Clone(shown[:most]), "...")
	}
	t.Errorf("%s: got %d, want %d:\n  %s", what, len(got), len(want), strings.Join(shown, "\n  "))
}

// assertUnchanged asserts that nobody has written to the objects since, except to status.
func (o *operator) assertUnchanged(before observe.Objects, namespaces ...string) {
	o.t.Helper()
	after := o.inventory(namespaces...)
	var written []string
	for _, d := range observe.Compare(before, after, observe.Options{WithoutStatus: true}) {
		written = append(written, d.String())
	}
	for ref, was := range before {
		is := after[ref]
		if is == nil || is.GetResourceVersion() == was.GetResourceVersion() {
			continue
		}
		switch {
		case is.GetUID() != was.GetUID():
			written = append(written, ref.String()+" was created again")
		case is.GetGeneration() != was.GetGeneration():
			written = append(written, fmt.Sprintf("%s went from generation %d to %d", ref,
				was.GetGeneration(), is.GetGeneration()))
		case len(observe.Compare(observe.Objects{ref: was}, observe.Objects{ref: is},
			observe.Options{})) == 0:
			// The write changed only what Compare ignores. It must not be one of ours.
			if touched := managers(is, was); len(touched) > 0 {
				written = append(written, fmt.Sprintf("%s was written to by %s", ref,
					strings.Join(touched, ", ")))
			}
		}
	}
	assertNone(o.t, "written", written)
}

// managers returns the field managers of the product that wrote to the object since.
func managers(is, was *unstructured.Unstructured) []string {
	var names []string
	for _, entry := range is.GetManagedFields() {
		unchanged := slices.ContainsFunc(was.GetManagedFields(),
			func(old metav1.ManagedFieldsEntry) bool {
				return old.Manager == entry.Manager && old.Operation == entry.Operation &&
					old.Subresource == entry.Subresource && old.Time.Equal(entry.Time)
			})
		if !unchanged && strings.HasPrefix(entry.Manager, "mgmt") {
			names = append(names, entry.Manager)
		}
	}
	return names
}

// create applies an object of the source on the target with the field manager of its author, so
// that the managedFields are the same too.
func (o *operator) create(source *unstructured.Unstructured) {
	o.t.Helper()
	applied := &unstructured.Unstructured{Object: map[string]any{}}
	applied.SetAPIVersion(source.GetAPIVersion())
	applied.SetKind(source.GetKind())
	applied.SetNamespace(source.GetNamespace())
	applied.SetName(source.GetName())
	labels := source.GetLabels()
	delete(labels, "kubernetes.io/metadata.name") // the API server sets it
	applied.SetLabels(labels)
	for _, field := range []string{"data", "type"} {
		if value, ok := source.Object[field]; ok {
			applied.Object[field] = value
		}
	}
	if err := o.clients[o.target].Apply(o.t.Context(), client.ApplyConfigurationFromUnstructured(
		applied), client.FieldOwner("fleet"), client.ForceOwnership); err != nil {
		o.t.Fatalf("apply %s %s: %v", source.GetKind(), source.GetName(), err)
	}
}

// secret returns a Secret of the source with its values.
func (o *operator) secret(namespace, name string) *unstructured.Unstructured {
	o.t.Helper()
	for _, secret := range o.secrets {
		if secret.GetNamespace() == namespace && secret.GetName() == name {
			return secret.DeepCopy()
		}
	}
	o.t.Fatalf("the source had no Secret %s/%s", namespace, name)
	return nil
}
