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

// patience bounds how long a state may take to come; what hangs should say where.
const patience = time.Minute

// namespacesWith are the namespaces of the source that begin with prefix.
func (w *world) namespacesWith(prefix string) []string {
	var names []string
	for _, o := range w.unmoved.Of("", "Namespace") {
		if strings.HasPrefix(o.GetName(), prefix) {
			names = append(names, o.GetName())
		}
	}
	return names
}

// inventory is what the target holds in namespaces.
func (o *operator) inventory(namespaces ...string) observe.Objects {
	o.t.Helper()
	objects, err := observe.Inventory(o.t.Context(), o.target.Kubeconfig(), namespaces...)
	if err != nil {
		o.t.Fatalf("look at the target: %v", err)
	}
	return objects
}

// restored is wellOn the target.
func (w *world) restored(t *testing.T, before observe.Objects, expected []string,
	namespaces ...string) {
	t.Helper()
	w.wellOn(t, w.target, before, expected, namespaces...)
}

// wellOn checks everything that a restore or a move promises of before, which is
// all that a management cluster holds in namespaces. expected are the differences
// that must be.
func (w *world) wellOn(t *testing.T, mgmt *lab.Mgmt, before observe.Objects, expected []string,
	namespaces ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// Exit code 0 has promised it already; a controller may be in the middle of something.
	after, err := observe.Await(ctx, mgmt.Kubeconfig(), func(after observe.Objects) []string {
		return slices.Concat(observe.Health(before, after), observe.CheckPaused(before, after))
	}, namespaces...)
	if err != nil {
		t.Errorf("look for health: %v", err)
	}
	if after == nil {
		return
	}
	var differences []string
	for _, d := range observe.Compare(before, after, observe.Options{WithoutStatus: true}) {
		differences = append(differences, d.String())
	}
	same(t, "differences", differences, expected)
	none(t, "paused", observe.CheckPaused(before, after))
	none(t, "health", observe.Health(before, after))
	none(t, "Machines", observe.CompareMachines(before, after))
	hashes := observe.Authorities(after)
	for ref, hash := range observe.Authorities(before) {
		if hashes[ref] != hash {
			t.Errorf("%s is not the one of before", ref)
		}
	}
	references, dangling, err := observe.CheckOwners(t.Context(), mgmt.Kubeconfig(), namespaces...)
	if err != nil {
		t.Errorf("look at owners: %v", err)
	}
	none(t, "owners", dangling)
	t.Logf("%s: %d objects, %d owner references, %d Machines", strings.Join(namespaces, " "),
		len(after), references, len(observe.Machines(after)))
}

func none(t *testing.T, what string, problems []string) {
	t.Helper()
	same(t, what, problems, nil)
}

func same(t *testing.T, what string, got, want []string) {
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

// unchanged checks that nothing of objects was written to since, but for status.
func (o *operator) unchanged(before observe.Objects, namespaces ...string) {
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
			written = append(written, ref.String()+" was made anew")
		case is.GetGeneration() != was.GetGeneration():
			written = append(written, fmt.Sprintf("%s went from generation %d to %d", ref,
				was.GetGeneration(), is.GetGeneration()))
		case len(observe.Compare(observe.Objects{ref: was}, observe.Objects{ref: is},
			observe.Options{})) == 0:
			// Equal in all that counts, so the write was one of times and managers.
			if touched := managers(is, was); len(touched) > 0 {
				written = append(written, fmt.Sprintf("%s was written to by %s", ref,
					strings.Join(touched, ", ")))
			}
		}
	}
	none(o.t, "written", written)
}

// managers are those of the object that were not there before, or wrote since, and are no
// controllers of the target.
func managers(is, was *unstructured.Unstructured) []string {
	var names []string
	for _, entry := range is.GetManagedFields() {
		known := slices.ContainsFunc(was.GetManagedFields(), func(old metav1.ManagedFieldsEntry) bool {
			return old.Manager == entry.Manager && old.Operation == entry.Operation &&
				old.Subresource == entry.Subresource && old.Time.Equal(entry.Time)
		})
		if !known && strings.HasPrefix(entry.Manager, "mgmt") {
			names = append(names, entry.Manager)
		}
	}
	return names
}

// create puts an object of the source on the target, as its author would:
// applied by the same manager, so that its field managers are the same too.
func (o *operator) create(source *unstructured.Unstructured) {
	o.t.Helper()
	applied := &unstructured.Unstructured{Object: map[string]any{}}
	applied.SetAPIVersion(source.GetAPIVersion())
	applied.SetKind(source.GetKind())
	applied.SetNamespace(source.GetNamespace())
	applied.SetName(source.GetName())
	labels := source.GetLabels()
	delete(labels, "kubernetes.io/metadata.name") // the API server's
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

// secret is a Secret of the source with its values.
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
