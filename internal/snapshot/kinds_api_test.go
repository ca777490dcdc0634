//go:build api

package snapshot_test

import (
	"context"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

var crdKind = kube.Kind{GroupKind: object.GroupKind{Group: "apiextensions.k8s.io",
	Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}

// TestAPIUnchangedSourceIsNotInspectedAgain: without a write to the source since, its kinds and
// providers are not read again. They are after any write, also one between the inspection and the
// cut.
func TestAPIUnchangedSourceIsNotInspectedAgain(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "asked-", "--workloads", "1", "--machines", "1",
		"--fast")
	c := &changingSource{chainFixture: newChainFixture(t)}
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
		taken, err := snapshot.Create(t.Context(), o)
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
			t.Errorf("nothing was written, but %d bytes besides the envelope", taken.Wrote-taken.Size)
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
