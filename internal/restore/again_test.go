package restore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// oneTenant is a management cluster with one workload cluster of three objects, each with a
// status.
func oneTenant(t *testing.T, annotations string, paused bool) *memory {
	t.Helper()
	owner := `"ownerReferences":[{"kind":"Cluster","name":"w"}]`
	return newMemory(t, "source", `{"kind":"Namespace","metadata":{"name":"one"}}`,
		fmt.Sprintf(`{"kind":"Cluster","metadata":{"namespace":"one","name":"w","annotations":{%s}},
			"spec":{"paused":%v},"status":{"phase":"Provisioned"}}`, annotations, paused),
		`{"kind":"IPAddressClaim","metadata":{"namespace":"one","name":"a",`+owner+`},"spec":{"a":"b"},
			"status":{"addressRef":{"name":"x"}}}`,
		`{"kind":"Secret","metadata":{"namespace":"one","name":"w-ca",`+owner+`},"data":{}}`)
}

const (
	clusterOne = "Cluster.cluster.x-k8s.io/one/w"
	claimOne   = "IPAddressClaim.ipam.cluster.x-k8s.io/one/a"
)

// again plans and runs a new operation with the same snapshot and target.
func (x *trial) again(t *testing.T) ([]string, error) {
	t.Helper()
	x.plan = nil
	x.load(t)
	return x.run(t)
}

// TestASecondRestoreCompletesWhatTheFirstOneLeft: hints and runbooks say to run the
// restore again, which has another operation id. It finds the copies of the first one.
func TestASecondRestoreCompletesWhatTheFirstOneLeft(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first func(t *testing.T, x *trial) // runs the first operation
	}{
		{"of everything", func(t *testing.T, x *trial) {
			if _, err := x.run(t); err != nil {
				t.Fatal(err)
			}
		}},
		{"without release", func(t *testing.T, x *trial) {
			x.spec.NoRelease = true
			if _, err := x.run(t); err != nil {
				t.Fatal(err)
			}
			x.spec.NoRelease = false
		}},
		{"that an object of the unit failed", func(t *testing.T, x *trial) {
			x.target.refuse = refuses(claimOne)
			if _, err := x.run(t); err == nil {
				t.Fatal("the first restore succeeded")
			}
			x.target.refuse = nil
		}},
		{"that an object failed of a Cluster that somebody applies", func(t *testing.T, x *trial) {
			x.source.set(t, clusterOne, func(u *unstructured.Unstructured) {
				u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl",
					APIVersion: u.GetAPIVersion(), Operation: metav1.ManagedFieldsOperationApply,
					FieldsType: "FieldsV1",
					FieldsV1:   metav1.NewFieldsV1(`{"f:spec":{"f:paused":{}}}`)}})
			})
			x.load(t)
			x.target.refuse = refuses(claimOne)
			if _, err := x.run(t); err == nil {
				t.Fatal("the first restore succeeded")
			}
			x.target.refuse = nil
			// Its controllers acknowledge the pause of the Cluster.
			x.target.set(t, clusterOne, func(u *unstructured.Unstructured) {
				u.Object["status"] = map[string]any{"observedGeneration": int64(1)}
			})
		}},
		{"that failed to write a status", func(t *testing.T, x *trial) {
			x.target.refuseStatus = refuses(claimOne)
			if _, err := x.run(t); err == nil {
				t.Fatal("the first restore succeeded")
			}
			x.target.refuseStatus = nil
		}},
		{"whose release was refused", func(t *testing.T, x *trial) {
			x.hooks.BeforeRelease = func(context.Context, Unit) error { return errors.New("not now") }
			if _, err := x.run(t); err == nil {
				t.Fatal("the first restore succeeded")
			}
			x.hooks.BeforeRelease = nil
		}},
		{"of which somebody deleted an object", func(t *testing.T, x *trial) {
			x.spec.NoRelease = true
			if _, err := x.run(t); err != nil {
				t.Fatal(err)
			}
			x.spec.NoRelease = false
			x.target.remove(t, claimOne)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newTrial(t, oneTenant(t, "", false), newMemory(t, "target"))
			tt.first(t, x)
			failures, err := x.again(t)
			if err != nil || len(failures) > 0 {
				t.Fatalf("the second restore: %v: %v", err, failures)
			}
			if x.released(t) != "one/w" {
				t.Error("the workload cluster is not released")
			}
			for _, ref := range []string{clusterOne, claimOne} {
				if u := x.target.get(t, ref); u == nil || u.Object["status"] == nil {
					t.Errorf("%s has no status: %v", ref, u)
				}
			}
		})
	}
}

// TestWhatControllersWroteSinceIsAdopted: a kubeconfig that was renewed after the release is the
// same kubeconfig. In a copy that is still paused no controller wrote it.
func TestWhatControllersWroteSinceIsAdopted(t *testing.T) {
	const kubeconfig = "Secret/one/w-kubeconfig"
	for _, noRelease := range []bool{false, true} {
		source := oneTenant(t, "", false)
		source.put(object.Ref{Kind: "Secret", Namespace: "one", Name: "w-kubeconfig"},
			decoded(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"one",
			"name":"w-kubeconfig","uid":"k","ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2",
			"kind":"Cluster","name":"w","uid":"`+string(source.get(t, clusterOne).GetUID())+`"}]},
			"data":{"value":"old"}}`))
		x := newTrial(t, source, newMemory(t, "target"))
		x.spec.NoRelease = noRelease
		if _, err := x.run(t); err != nil {
			t.Fatal(err)
		}
		x.target.set(t, kubeconfig, func(u *unstructured.Unstructured) {
			u.Object["data"] = map[string]any{"value": "new"}
		})
		x.load(t)
		if plan := x.makePlan(t); plan.Blocked != noRelease {
			t.Errorf("without release: %v, but the plan is blocked: %v: %v", noRelease, plan.Blocked,
				plan.Findings)
		}
	}
}

// TestOnlyAPausedCopyIsCompleted: one that controllers work on, one with another spec, and every
// one in a move, is left to the operation that created it.
func TestOnlyAPausedCopyIsCompleted(t *testing.T) {
	const machine = `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"name":"a",
		"namespace":"one","managedFields":[{"manager":"mgmtd-0123456789ab","operation":"Update"}]}`
	for _, tt := range []struct {
		name, spec   string
		atWork, move bool
		want         object.Severity
	}{
		{"paused", `{"a":"b"}`, false, false, object.Warning},
		{"at work", `{"a":"b"}`, true, false, object.Error},
		{"in a move", `{"a":"b"}`, false, true, object.Error},
		{"changed", `{"a":"c"}`, false, false, object.Error},
	} {
		n := &graph.Node{Unit: "one/w", Ref: object.Ref{Group: capi.GroupCore, Kind: "Machine",
			Namespace: "one", Name: "a"}}
		p := &planner{Input: Input{Snapshot: &snapshot.Snapshot{Graph: &graph.Graph{}},
			Spec: Spec{SourceAtWork: tt.move}}, left: map[*graph.Node]bool{},
			kinds: map[object.GroupKind]kube.Kind{n.GroupKind(): {Status: true}}}
		want := decoded(t, machine+`,"spec":{"a":"b"},"status":{"c":"d"}}`)
		live := decoded(t, machine+`,"spec":`+tt.spec+`}`)
		if p.completes(t.Context(), n, want, live, tt.atWork) != (tt.want == object.Warning) {
			t.Errorf("%s: completes is not %v", tt.name, tt.want == object.Warning)
		}
		if p.collide(t.Context(), n, want, live, tt.atWork, &notes{}); tt.atWork {
			continue // its status is no difference
		}
		if len(p.findings) != 1 || p.findings[0].Code != object.CodeLeftByOperation ||
			p.findings[0].Severity != tt.want || p.left[n] != (tt.want == object.Warning) {
			t.Errorf("%s: findings %v", tt.name, p.findings)
		}
	}
}

// TestARestoreTakesOverAMoveWhoseSourceDied: the source died between the hand-over and
// the release. Its newest snapshot is that of the batch, with the pause and the lock of the move.
// The copies on the target are paused, and marked by the move.
func TestARestoreTakesOverAMoveWhoseSourceDied(t *testing.T) {
	const marks = `"mgmtd.dev/was-paused":"absent","mgmtd.dev/operation":"0123456789ab/1"`
	x := newTrial(t, oneTenant(t, marks, true), newMemory(t, "target"))
	x.hooks = Hooks{RequirePause: true, LeaveSharedPaused: true, BeforeRelease: func(context.Context,
		Unit) error {
		return errors.New("the process died")
	}}
	x.spec = Spec{SourceAtWork: true}
	if _, err := x.run(t); err == nil || x.released(t) != "" {
		t.Fatalf("the move released %q: %v", x.released(t), err)
	}
	x.hooks, x.spec = Hooks{}, Spec{SourceIsGone: true}
	if failures, err := x.again(t); err != nil || len(failures) > 0 {
		t.Fatalf("the take-over: %v: %v", err, failures)
	}
	u := x.target.get(t, clusterOne)
	if x.released(t) != "one/w" || capi.PausedByUs(u.Object) ||
		u.GetAnnotations()[capi.AnnotationOperation] != "" {
		t.Errorf("the workload cluster is not released as it was before the move: %v", u.Object)
	}
}

// remove deletes an object as somebody else.
func (m *memory) remove(t *testing.T, ref string) {
	t.Helper()
	u := m.get(t, ref)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, refOf(u))
}
