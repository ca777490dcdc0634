//go:build api

package kube_test

import (
	"fmt"
	"testing"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/task"
)

// TestAPIListReadsEveryPageOnce lists more objects than two pages hold, as of one resourceVersion,
// while others come and go.
func TestAPIListReadsEveryPageOnce(t *testing.T) {
	m := servers.Connect(t, 0)
	const count = 1100
	create := func(i int) error {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": fmt.Sprintf("page-%04d", i), "namespace": "default"}}}
		_, err := m.Writer().Create(t.Context(), kube.ConfigMapKind, u)
		return err
	}
	g, _ := task.WithContext(t.Context())
	g.SetLimit(16)
	for i := range count {
		g.Go(func() error { return create(i) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	at, err := m.Reader().List(t.Context(), kube.ConfigMapKind, kube.ListOptions{Limit: 1,
		Metadata: true}, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := create(count); err != nil { // after the cut
		t.Fatal(err)
	}
	seen := map[string]int{}
	_, err = m.Reader().List(t.Context(), kube.ConfigMapKind, kube.ListOptions{Namespace: "default",
		Exact: at.ResourceVersion}, func(raw []byte) error {
		if gjson.GetBytes(raw, "kind").String() != "ConfigMap" ||
			gjson.GetBytes(raw, "apiVersion").String() != "v1" {
			t.Errorf("an object without its kind: %.80s", raw)
		}
		seen[gjson.GetBytes(raw, "metadata.name").String()]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if n := seen[fmt.Sprintf("page-%04d", i)]; n != 1 {
			t.Errorf("object %d is listed %d times", i, n)
		}
	}
	if seen[fmt.Sprintf("page-%04d", count)] > 0 {
		t.Error("an object of after the cut is listed")
	}
}
