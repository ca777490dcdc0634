package restore

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// publishPause is what a controller does that has seen the pause of an object.
func publishPause(u *unstructured.Unstructured) {
	status, _ := u.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	status["conditions"] = []any{map[string]any{"type": "Paused", "status": "True",
		"observedGeneration": int64(1)}}
	u.Object["status"] = status
}

// TestAcknowledgementsAreThoseOfTheTarget: the source is older than the condition Paused, and the
// controllers of the target publish it: after a while, on a copy and on other objects there. No
// workload cluster is released before its own objects show it.
func TestAcknowledgementsAreThoseOfTheTarget(t *testing.T) {
	for _, name := range []string{"another object of the kind shows it", "the copy shows it"} {
		t.Run(name, func(t *testing.T) {
			target := newMemory(t, "target")
			copied := name == "the copy shows it"
			if !copied {
				other := newMemory(t, "other", `{"kind":"Cluster","metadata":{"namespace":"other",
					"name":"live"}}`)
				for ref, u := range other.objects {
					publishPause(u)
					target.objects[ref] = u
				}
			}
			x := newTrial(t, twoTenants(t), target)
			if copied { // that of the first unit in time, that of the second one later
				target.onCreate = func(u *unstructured.Unstructured) {
					if u.GetKind() == "Cluster" && u.GetNamespace() == "one" {
						publishPause(u)
					}
				}
			}
			reads := map[object.Ref]int{}
			target.onGet = func(ref object.Ref) {
				if ref.GroupKind() != capi.Cluster {
					return
				}
				target.mu.Lock()
				defer target.mu.Unlock()
				if reads[ref]++; reads[ref] == 5 && target.objects[ref] != nil {
					publishPause(target.objects[ref])
				}
			}
			errEarly := errors.New("released before its Cluster acknowledged the pause")
			x.tuning.Concurrency = 1
			x.hooks.BeforeRelease = func(_ context.Context, u Unit) error {
				target.mu.Lock()
				defer target.mu.Unlock()
				for ref, live := range target.objects {
					if ref.GroupKind() == capi.Cluster && ref.Namespace+"/"+ref.Name == u.Name &&
						capi.NotAcknowledged(live.Object, "True") != "" {
						return errEarly
					}
				}
				return nil
			}
			failures, err := x.run(t)
			if len(failures) > 0 || err != nil {
				t.Errorf("%v: %q", err, failures)
			}
		})
	}
}
