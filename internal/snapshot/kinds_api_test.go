//go:build api

package snapshot_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/mgmt"
)

var crdKind = mgmt.Kind{GroupKind: mgmt.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}

// TestAPIKindsAreNeverStale: what is remembered of CRDs gives what a first reader sees, whatever happened to them in between.
func TestAPIKindsAreNeverStale(t *testing.T) {
	m := servers.Connect(t, 0)
	gadget := mgmt.GroupKind{Group: "kinds.mgmtd.dev", Kind: "Gadget"}
	same := func(when string, served bool) mgmt.Kind {
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
		k, ok := mgmt.FindKind(got, gadget)
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
		if err := m.Writer().Delete(t.Context(), crdKind, "", crd.GetName(), crd.GetUID(), ""); err != nil {
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
	if k := same("made", true); k.Namespaced || k.Contract {
		t.Errorf("made: %+v", k)
	}
	if _, err := m.Writer().PatchMetadata(t.Context(), crdKind, "", crd.GetName(), map[string]any{"labels": map[string]any{"cluster.x-k8s.io/v1beta2": "v1"}}); err != nil {
		t.Fatal(err)
	}
	if k := same("labelled", true); !k.Contract {
		t.Errorf("labelled: %+v", k)
	}
	remove(crd)
	crd = create("Namespaced")
	if k := same("made anew", true); !k.Namespaced || k.Contract {
		t.Errorf("made anew: %+v", k)
	}
	remove(crd)
	same("removed", false)
}
