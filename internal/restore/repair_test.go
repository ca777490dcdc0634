package restore

import (
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

// setPaused sets the condition Paused, as a controller does that has seen the pause of a Cluster or
// its end.
func setPaused(u *unstructured.Unstructured, status string) {
	conditions := []any{map[string]any{"type": "Paused", "status": status,
		"observedGeneration": u.GetGeneration()}}
	if err := unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions"); err != nil {
		panic(err)
	}
}

// repaired is a trial whose workload cluster is at work on the target and then paused by the
// operator. Its IPAddressClaim was deleted there. Its controllers have changed its status since the
// snapshot, and they acknowledge the pause of whatever is created.
func repaired(t *testing.T, explicit bool) *trial {
	t.Helper()
	source := oneTenant(t, "", false)
	for _, ref := range []string{clusterOne, claimOne} {
		source.set(t, ref, func(u *unstructured.Unstructured) {
			setPaused(u, "False")
			if !explicit && ref == clusterOne {
				unstructured.RemoveNestedField(u.Object, "spec", "paused")
			}
		})
	}
	target := newMemory(t, "target")
	target.statusWritten = func(u *unstructured.Unstructured) { setPaused(u, "True") }
	x := newTrial(t, source, target)
	x.spec.NoRelease = true
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	x.spec.NoRelease = false
	target.set(t, clusterOne, func(u *unstructured.Unstructured) {
		x.snapshot.Graph.Rows.Unpause(u.Object)
		u.Object["spec"] = map[string]any{"paused": true}
		u.Object["status"] = map[string]any{"phase": "Deleting"}
		setPaused(u, "True")
	})
	target.remove(t, claimOne)
	return x
}

// TestInPlaceRepairOfAClusterThatTheOperatorPausedLeavesItPaused: what is missing is created,
// acknowledged and verified, and the operator is reminded of the pause.
func TestInPlaceRepairOfAClusterThatTheOperatorPausedLeavesItPaused(t *testing.T) {
	for _, explicit := range []bool{false, true} {
		x := repaired(t, explicit)
		failures, err := x.again(t)
		if err != nil || len(failures) > 0 {
			t.Fatalf("paused: false in the snapshot: %t: %v: %v", explicit, err, failures)
		}
		claim, cluster := x.target.get(t, claimOne), x.target.get(t, clusterOne)
		if claim == nil || claim.Object["status"] == nil || x.released(t) != "" ||
			capi.PausedByUs(cluster.Object) {
			t.Errorf("released %q, claim %v, Cluster %v", x.released(t), claim, cluster)
		}
		list := found(x.plan, object.CodeStaysPaused)
		if len(list) != 1 || list[0].Unit != "one/w" || !x.plan.Units[0].StaysPaused {
			t.Errorf("findings %v, stays paused %t", x.plan.Findings, x.plan.Units[0].StaysPaused)
		}
	}
}

// TestInPlaceRepairWaitsForTheAcknowledgementAndVerifies: a controller that has not seen what was
// created, or a copy that is not what the snapshot has, fails the unit before it ends.
func TestInPlaceRepairWaitsForTheAcknowledgementAndVerifies(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		write      func(u *unstructured.Unstructured)
	}{
		{"acknowledgement", "acknowledge the pause", func(u *unstructured.Unstructured) {
			setPaused(u, "False")
		}},
		{"copy", "differs", func(u *unstructured.Unstructured) {
			setPaused(u, "True")
			u.Object["spec"] = map[string]any{"a": "another"}
		}},
	} {
		synctest.Test(t, func(t *testing.T) { // it waits
			x := repaired(t, false)
			x.target.statusWritten = tt.write
			failures, err := x.again(t)
			op, getErr := x.catalog.Operation(t.Context(), x.id)
			if getErr != nil {
				t.Fatal(getErr)
			}
			if err == nil || !strings.Contains(strings.Join(failures, " "), tt.want) ||
				op.Units["one/w"] == catalog.UnitReleased {
				t.Errorf("%s: %v: %v; the unit is %s", tt.name, err, failures, op.Units["one/w"])
			}
		})
	}
}

// TestInPlaceRepairCompletesWhatAnEarlierOneLeft: it died before it had written the status of what
// it created.
func TestInPlaceRepairCompletesWhatAnEarlierOneLeft(t *testing.T) {
	x := repaired(t, false)
	x.target.refuseStatus = refuses(claimOne)
	if _, err := x.again(t); err == nil {
		t.Fatal("the first repair succeeded")
	}
	x.target.refuseStatus = nil
	failures, err := x.again(t)
	claim := x.target.get(t, claimOne)
	if address, _, _ := unstructured.NestedString(claim.Object, "status", "addressRef",
		"name"); err != nil || len(failures) > 0 || address != "x" {
		t.Errorf("%v: %v: %v", err, failures, claim.Object)
	}
}
