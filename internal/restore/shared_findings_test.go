package restore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAnErrorOfASharedObjectIsOneFinding: a fleet has thousands of workload clusters that need one
// class. The finding says how many, and blocks each of them.
func TestAnErrorOfASharedObjectIsOneFinding(t *testing.T) {
	source := twoTenants(t)
	const more = 3
	for i := range more {
		own := newMemory(t, "more", fmt.Sprintf(`{"kind":"Cluster","metadata":{"namespace":"one",
			"name":"more-%d"},"spec":{"topology":{"classRef":{"name":"class"}}}}`, i))
		for ref, u := range own.objects {
			source.put(ref, u)
		}
	}
	x := newTrial(t, source, newMemory(t, "target", `{"kind":"Namespace","metadata":{"name":"one","labels":{"team":"one"},
		"annotations":{"cattle.io/status":"old"}}}`,
		`{"kind":"ClusterClass","metadata":{"namespace":"one","name":"class"},"spec":{"text":"other"}}`))
	x.source.set(t, classOne, func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"text": "as it was"}
	})
	x.load(t)
	p := x.makePlan(t)
	var found []object.Finding
	for _, f := range p.Findings {
		if f.Severity >= object.Error {
			found = append(found, f)
		}
	}
	if len(found) != 1 || len(found[0].Users) != more ||
		!strings.Contains(found[0].Message, "4 workload clusters need it") {
		t.Fatalf("findings %v", found)
	}
	for _, u := range p.Units {
		if u.Blocked != strings.HasPrefix(u.Name, "one/") {
			t.Errorf("%s: blocked %v", u.Name, u.Blocked)
		}
	}
	if found[0].Unit == "one/w" {
		t.Fatal("the canary is to be one of the users that are not the first")
	}
	err := p.CheckCanary("one/w")
	if refused, ok := errors.AsType[*FindingsError](err); !ok || !slices.ContainsFunc(
		refused.Findings, func(f object.Finding) bool { return f.Severity >= object.Error }) {
		t.Errorf("the canary: %v", err)
	}
}
