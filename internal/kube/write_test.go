package kube

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// TestAWriteIsMadeUnderTheFieldManagerOfItsContext: a restore marks by it what it creates.
func TestAWriteIsMadeUnderTheFieldManagerOfItsContext(t *testing.T) {
	var manager string
	w := echoWriter(t, func(r *http.Request) { manager = r.URL.Query().Get("fieldManager") })
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "a", "namespace": "n"}}}
	if _, err := w.Create(t.Context(), ConfigMapKind, u); err != nil || manager != "mgmtd" {
		t.Errorf("without a name: %q, %v", manager, err)
	}
	ctx := WithFieldManager(t.Context(), "mgmtd-0123456789ab")
	if _, err := w.Create(ctx, ConfigMapKind, u); err != nil || manager != "mgmtd-0123456789ab" {
		t.Errorf("with a name: %q, %v", manager, err)
	}
}

// echoWriter returns a Writer to a server that answers each request with its body.
func echoWriter(t *testing.T, seen func(r *http.Request)) *Writer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	client, err := newRESTClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &Writer{client: client}
}

// TestAWriteOfStatusLeavesOutManagedFields: the server would decode and ignore them. The object of
// the caller, which they are part of, does not change.
func TestAWriteOfStatusLeavesOutManagedFields(t *testing.T) {
	var paths []string
	w := echoWriter(t, func(r *http.Request) { paths = append(paths, r.URL.Path) })
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1",
			"managedFields": []any{map[string]any{"manager": "m"}}},
		"status": map[string]any{"ready": true}}}
	sent, err := w.UpdateStatus(t.Context(), ConfigMapKind, u)
	if err != nil {
		t.Fatal(err)
	}
	if len(sent.GetManagedFields()) > 0 || sent.GetUID() != "u" || sent.Object["status"] == nil {
		t.Errorf("sent to %v: %v", paths, sent.Object)
	}
	if len(u.GetManagedFields()) != 1 {
		t.Error("the object of the caller has lost its managedFields")
	}
	if sent, err = w.Update(t.Context(), ConfigMapKind, u); err != nil ||
		len(sent.GetManagedFields()) != 1 {
		t.Errorf("a write of the object itself lacks its managedFields: %v", err)
	}
}
