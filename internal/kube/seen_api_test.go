//go:build api

package kube_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// TestAPIPollsSeeWhatOthersWrite: what an API server remembers of an object is at least what was
// seen of it, and what others write comes, and its end.
func TestAPIPollsSeeWhatOthersWrite(t *testing.T) {
	m := servers.Connect(t, 0)
	ref := object.Ref{Kind: "ConfigMap", Namespace: "default", Name: "polled"}
	live, err := m.Writer().Create(t.Context(), kube.ConfigMapKind, &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace}}})
	if err != nil {
		t.Fatal(err)
	}
	var seen kube.Seen
	poll := func(done func(u *unstructured.Unstructured, err error) (bool, error)) {
		t.Helper()
		came, err := retry.Poll(t.Context(), retry.Backoff{First: 1, Longest: 1}, time.Minute,
			func(ctx context.Context) (bool, error) {
				return done(seen.Get(ctx, m.Reader(), kube.ConfigMapKind, ref))
			})
		if err != nil || !came {
			t.Fatalf("it did not come: %v", err)
		}
	}
	last := 0
	for i := range 50 {
		live.Object["data"] = map[string]any{"n": fmt.Sprint(i)}
		if live, err = m.Writer().Update(t.Context(), kube.ConfigMapKind, live); err != nil {
			t.Fatal(err)
		}
		poll(func(u *unstructured.Unstructured, err error) (bool, error) {
			if err != nil {
				return false, err
			}
			n := -1
			text, _, _ := unstructured.NestedString(u.Object, "data", "n")
			if _, err := fmt.Sscan(text, &n); err != nil || n < last || u.GetUID() != live.GetUID() ||
				u.GetKind() != "ConfigMap" {
				return false, fmt.Errorf("after %d: %v", last, u)
			}
			last = n
			return n == i, nil
		})
	}
	if err := m.Writer().Delete(t.Context(), kube.ConfigMapKind, ref.Namespace, ref.Name,
		live.GetUID(), ""); err != nil {
		t.Fatal(err)
	}
	poll(func(_ *unstructured.Unstructured, err error) (bool, error) {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}
