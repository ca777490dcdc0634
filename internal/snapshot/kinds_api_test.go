//go:build api

package snapshot_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

var crdKind = kube.Kind{GroupKind: object.GroupKind{Group: "apiextensions.k8s.io",
	Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}

// TestAPIKindsAreNeverStale: what is remembered of CRDs gives what a first reader sees, whatever
// happened to them in between.
func TestAPIKindsAreNeverStale(t *testing.T) {
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
	if k := same("made", true); k.Namespaced || k.Contract {
		t.Errorf("made: %+v", k)
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
	if k := same("made anew", true); !k.Namespaced || k.Contract {
		t.Errorf("made anew: %+v", k)
	}
	remove(crd)
	same("removed", false)
}

// TestAPIMetadataOfKinds: the metadata of CRDs is the same text in a LIST of metadata as in one of
// all; else what is remembered of them would never hold.
func TestAPIMetadataOfKinds(t *testing.T) {
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

// TestAPIAskedOnce: a source to which nothing was written is not asked for its kinds and providers
// again; one to which anything was is, also when that happened after the question and before the
// cut.
func TestAPIAskedOnce(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "asked-", "--workloads", "1", "--machines", "1",
		"--fast")
	c := &changes{remembering: newRemembering(t)}
	asked, after := 0, func() {}
	c.source.onKinds = func() { asked++ }
	take := func() (*snapshot.Result, int) {
		t.Helper()
		asked = 0
		o := c.options()
		o.Providers = func(ctx context.Context, kinds []kube.Kind) ([]kube.Provider, error) {
			asked++
			after()
			return c.m.Providers(ctx, kinds)
		}
		taken, err := snapshot.Run(t.Context(), o)
		if err != nil || taken.NotRemembered != nil {
			t.Fatal(err, taken.NotRemembered)
		}
		return taken, asked
	}
	// The API server renews a lease every ten seconds, so that something was written now and then.
	quiet := func() (*snapshot.Result, int) {
		t.Helper()
		last, same := "", 0
		for range 20 {
			is, asked := take()
			if same++; is.ResourceVersion != last {
				last, same = is.ResourceVersion, 0
			}
			if same == 2 { // the second asked, if it did, after the first's cut
				return is, asked
			}
		}
		t.Fatal("the API server was never quiet")
		return nil, 0
	}
	for range 3 { // each third opens what the catalog has
		taken, asked := quiet()
		if asked != 0 {
			t.Errorf("nothing was written: asked %d times", asked)
		}
		if taken.Wrote != taken.Size {
			t.Errorf("nothing was written, but %d bytes beside the envelope", taken.Wrote-taken.Size)
		}
	}
	c.upgrade("machinesets.cluster.x-k8s.io")
	if _, asked := take(); asked != 2 {
		t.Errorf("a CRD was changed: asked %d times", asked)
	}
	quiet()
	after = func() { c.upgrade("machinesets.cluster.x-k8s.io") }
	c.upgrade("machinesets.cluster.x-k8s.io")
	changed, _ := take()
	after = func() {}
	if again, asked := take(); asked != 2 {
		t.Errorf("a CRD was changed after the question: asked %d times (resourceVersions %s and %s)",
			asked, changed.ResourceVersion, again.ResourceVersion)
	}
}
