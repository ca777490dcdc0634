//go:build api

package kube_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/task"
)

// TestAPIListReadsSomeNamespaces: each object of them is read once, and none of the others, however
// many there are.
func TestAPIListReadsSomeNamespaces(t *testing.T) {
	m := servers.Connect(t, 0)
	objectIn := func(kind, namespace, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
		u.SetNamespace(namespace)
		u.SetName(name)
		return u
	}
	create := func(k kube.Kind, u *unstructured.Unstructured) {
		t.Helper()
		if _, err := m.Writer().Create(t.Context(), k, u); err != nil {
			t.Fatal(err)
		}
	}
	var namespaces []string
	for i := range kube.ManyNamespaces + 1 {
		namespaces = append(namespaces, fmt.Sprintf("listin-%02d", i))
		create(kube.NamespaceKind, objectIn("Namespace", "", namespaces[i]))
		create(kube.SecretKind, objectIn("Secret", namespaces[i], "s"))
	}
	list := func(namespaces []string) (in []string) {
		t.Helper()
		got, err := m.Reader().List(t.Context(), kube.SecretKind, kube.ListOptions{Metadata: true,
			Namespaces: namespaces}, func(raw []byte) error {
			in = append(in, gjson.GetBytes(raw, "metadata.namespace").String())
			return nil
		})
		if err != nil || got.ResourceVersion == "" {
			t.Fatal(got, err)
		}
		slices.Sort(in)
		return in
	}
	check := func() {
		t.Helper()
		for _, n := range []int{1, 2, 3, kube.ManyNamespaces} {
			if got := list(namespaces[:n]); !slices.Equal(got, namespaces[:n]) {
				t.Errorf("%d namespaces: objects in %q", n, got)
			}
		}
		all := slices.DeleteFunc(list(namespaces), // and of others
			func(namespace string) bool { return !slices.Contains(namespaces, namespace) })
		if !slices.Equal(all, namespaces) {
			t.Errorf("many namespaces: objects in %q", all)
		}
	}
	check()
	// More than are read in all namespaces at once, and in front of the others.
	const before = "a-listin"
	create(kube.NamespaceKind, objectIn("Namespace", "", before))
	var g task.Group
	g.SetLimit(16)
	for i := range 120 {
		g.Go(func() error {
			_, err := m.Writer().Create(t.Context(), kube.SecretKind,
				objectIn("Secret", before, fmt.Sprintf("more-%d", i)))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	check()
}
