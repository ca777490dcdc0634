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
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		manager = r.URL.Query().Get("fieldManager")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	client, err := newRESTClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := &Writer{client: client}
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
