package observe

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
)

// TestAListAfterAGapHasTheEventsInIt: an API server that was started again does not have the events
// of the time before.
func TestAListAfterAGapHasTheEventsInIt(t *testing.T) {
	machine := func(name, uid, version string) *unstructured.Unstructured {
		u := Named("cluster.x-k8s.io/v1beta2", "Machine", "n", name)
		u.SetUID(types.UID(uid))
		u.SetResourceVersion(version)
		return u
	}
	resource := schema.GroupVersionResource{Group: coreGroup, Version: "v1beta2",
		Resource: "machines"}
	var seen []string
	f := &follower{kind: kind{resource: resource}, known: map[Ref]*unstructured.Unstructured{},
		onEvent: func(what watch.EventType, o *unstructured.Unstructured) {
			seen = append(seen, string(what)+" "+o.GetName()+" "+string(o.GetUID()))
		}}
	list := func(objects ...runtime.Object) []string {
		t.Helper()
		f.view = &view{client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{resource: "MachineList"}, objects...)}
		seen = nil
		if _, err := f.list(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(seen)
		return seen
	}
	list(machine("changed", "1", "1"), machine("gone", "2", "1"), machine("replaced", "3", "1"),
		machine("same", "4", "1"))
	got := list(machine("changed", "1", "2"), machine("new", "5", "2"), machine("replaced", "6", "2"),
		machine("same", "4", "1"))
	if want := []string{"ADDED new 5", "ADDED replaced 6", "DELETED gone 2", "DELETED replaced 3",
		"MODIFIED changed 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
