package restore

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// twoClaims is a management cluster with a workload cluster that owns two claims.
func twoClaims(t *testing.T) *memory {
	t.Helper()
	claim := func(name string) string {
		return `{"kind":"IPAddressClaim","metadata":{"namespace":"one","name":"` + name + `",
			"labels":{"cluster.x-k8s.io/cluster-name":"w"},
			"ownerReferences":[{"kind":"Cluster","name":"w"}]},
			"spec":{"pool":"blue"},"status":{"address":"` + name + `"}}`
	}
	return newMemory(t, "source", `{"kind":"Namespace","metadata":{"name":"one"}}`,
		`{"kind":"Cluster","metadata":{"namespace":"one","name":"w"},"spec":{}}`,
		claim("a"), claim("b"))
}

// verified restores twoClaims and leaves it paused. before is called once, after the last write of
// each object and before verify reads the target. verified returns which claims verify read
// one by one.
func verified(t *testing.T, before func(target *memory)) (x *trial, read []string,
	failures []string, err error) {
	x = newTrial(t, twoClaims(t), newMemory(t, "target"))
	x.spec.NoRelease = true
	verifies := false
	x.target.onList = func(_ kube.Kind, o kube.ListOptions) {
		if o.Labels != "" && o.Labels != capi.LabelClusterName && !verifies { // a plan names no cluster
			verifies = true
			before(x.target)
		}
	}
	x.target.onGet = func(ref object.Ref) {
		if verifies && ref.Kind == "IPAddressClaim" {
			read = append(read, ref.Name)
		}
	}
	failures, err = x.run(t)
	if !verifies {
		t.Fatal("verify has listed nothing")
	}
	return x, read, failures, err
}

// TestVerifyReadsNoObjectThatIsAsItWasWritten: the metadata of one LIST says that both claims have
// the resourceVersions of their last writes.
func TestVerifyReadsNoObjectThatIsAsItWasWritten(t *testing.T) {
	_, read, failures, err := verified(t, func(*memory) {})
	if err != nil || len(failures) > 0 {
		t.Fatalf("%v %v", failures, err)
	}
	if len(read) > 0 {
		t.Errorf("verify read %v one by one", read)
	}
}

// TestVerifyReadsAnObjectThatChangedAfterItsLastWrite: somebody changes a claim between its last
// write and verify. What is there then is compared, and the unit is not copied.
func TestVerifyReadsAnObjectThatChangedAfterItsLastWrite(t *testing.T) {
	for name, change := range map[string]func(u *unstructured.Unstructured){
		"its spec": func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"pool": "red"}
		},
		"its label":         func(u *unstructured.Unstructured) { u.SetLabels(nil) },
		"it is another one": func(u *unstructured.Unstructured) { u.SetUID("another") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // verify waits for a difference to pass
				_, read, failures, err := verified(t, func(target *memory) {
					target.set(t, "IPAddressClaim.ipam.cluster.x-k8s.io/one/a", change)
				})
				if !slices.Contains(read, "a") || slices.Contains(read, "b") {
					t.Errorf("verify read %v one by one", read)
				}
				if err == nil || !slices.ContainsFunc(failures, func(f string) bool {
					return strings.Contains(f, "one/a")
				}) {
					t.Errorf("the changed claim passed: %q, %v", failures, err)
				}
			})
		})
	}
}

// TestVerifyNotesWhatTheLastWriteAdded: what the target added to an object is reported although
// verify does not read the object again.
func TestVerifyNotesWhatTheLastWriteAdded(t *testing.T) {
	x := newTrial(t, twoClaims(t), newMemory(t, "target"))
	x.spec.NoRelease = true
	x.target.onCreate = func(u *unstructured.Unstructured) {
		if u.GetKind() == "IPAddressClaim" {
			u.SetFinalizers([]string{"added"})
		}
	}
	if failures, err := x.run(t); err != nil {
		t.Fatal(failures, err)
	}
	for e, err := range x.catalog.Events(t.Context(), x.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Finding != nil && e.Finding.Code == object.CodeAddedOnTarget &&
			strings.Contains(e.Finding.Message, "2 objects, the first in metadata.finalizers") {
			return
		}
	}
	t.Error("no finding names what the target added")
}
