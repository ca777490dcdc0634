//go:build api

package kube_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

var crdKind = kube.Kind{GroupKind: object.GroupKind{Group: "apiextensions.k8s.io",
	Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}

// TestAPICachedKindsAreNeverStale: a connection with cached CRDs returns the kinds that a new one
// does, whatever happened to the CRDs in between.
func TestAPICachedKindsAreNeverStale(t *testing.T) {
	m := servers.Connect(t, 0)
	gadget := object.GroupKind{Group: "kinds.mgmtd.dev", Kind: "Gadget"}
	same := func(when string, served bool) kube.Kind {
		t.Helper()
		got, err := m.Reader().Kinds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want, err := servers.Connect(t, 0).Reader().Kinds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", when, diff)
		}
		k, ok := kube.FindKind(got, gadget)
		if ok != served {
			t.Errorf("%s: served: %v", when, ok)
		}
		return k
	}
	create := func(scope string) *unstructured.Unstructured {
		t.Helper()
		var crd unstructured.Unstructured
		if err := json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.kinds.mgmtd.dev"},
			"spec":{"group":"kinds.mgmtd.dev","scope":"`+scope+`","names":{"kind":"Gadget","plural":"gadgets"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`), &crd); err != nil {
			t.Fatal(err)
		}
		made, err := m.Writer().Create(t.Context(), crdKind, &crd)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	remove := func(crd *unstructured.Unstructured) {
		t.Helper()
		if err := m.Writer().Delete(t.Context(), crdKind, "", crd.GetName(), crd.GetUID(),
			""); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := m.Reader().Get(t.Context(), crdKind, "", crd.GetName()); apierrors.IsNotFound(err) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	same("at first", false)
	crd := create("Cluster")
	if k := same("created", true); k.Namespaced || k.Contract {
		t.Errorf("created: %+v", k)
	}
	if _, err := m.Writer().PatchMetadata(t.Context(), crdKind, "", crd.GetName(),
		map[string]any{"labels": map[string]any{"cluster.x-k8s.io/v1beta2": "v1"}}); err != nil {
		t.Fatal(err)
	}
	if k := same("labelled", true); !k.Contract {
		t.Errorf("labelled: %+v", k)
	}
	remove(crd)
	crd = create("Namespaced")
	if k := same("created again", true); !k.Namespaced || k.Contract {
		t.Errorf("created again: %+v", k)
	}
	remove(crd)
	same("removed", false)
}

// TestAPICRDMetadataIsTheSameInBothLists: a LIST of metadata returns the same text as a LIST of
// objects; otherwise a cached CRD would never be the current one.
func TestAPICRDMetadataIsTheSameInBothLists(t *testing.T) {
	r := servers.Connect(t, 0).Reader()
	list := func(metadata bool) map[string]string {
		texts := map[string]string{}
		_, err := r.List(t.Context(), crdKind, kube.ListOptions{Metadata: metadata},
			func(raw []byte) error {
				texts[gjson.GetBytes(raw, "metadata.name").String()] = gjson.GetBytes(raw, "metadata").Raw
				return nil
			})
		if err != nil || len(texts) == 0 {
			t.Fatal(texts, err)
		}
		return texts
	}
	if diff := cmp.Diff(list(false), list(true)); diff != "" {
		t.Error(diff)
	}
}
