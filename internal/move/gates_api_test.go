//go:build api

package move_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
)

// runs makes the Deployment of Cluster API's core provider on one side, with feature gates. It is
// removed at the end of the test.
func (fx *fixture) runs(t *testing.T, i int, gates string) {
	t.Helper()
	w := fx.sides[i].Writer()
	u := &unstructured.Unstructured{}
	must(t, json.Unmarshal([]byte(`{"apiVersion":"apps/v1","kind":"Deployment",
		"metadata":{"namespace":"default","name":"core-`+fx.namespace+`","labels":{
			"cluster.x-k8s.io/provider":"cluster-api"}},
		"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
			"spec":{"containers":[{"name":"manager","image":"core","args":["--leader-elect",
				"--feature-gates=`+gates+`"]}]}}}}`), &u.Object))
	u, err := w.Create(t.Context(), kube.DeploymentKind, u)
	must(t, err)
	t.Cleanup(func() {
		must(t, w.Delete(context.Background(), kube.DeploymentKind, u.GetNamespace(), u.GetName(),
			u.GetUID(), ""))
	})
}

// TestAPIPlanFindsFeatureGatesThatAreOffOnTheTarget: two of three workload clusters have a class,
// and the target's controllers are started without topologies.
func TestAPIPlanFindsFeatureGatesThatAreOffOnTheTarget(t *testing.T) {
	fx := newFixture(t, "gates")
	ends, err := move.NewEnds(t.Context(), fx.source().Mgmt, fx.target().Mgmt, fx.store, "default", nil)
	must(t, err)
	found := func(force object.Forced) map[string]object.Severity {
		t.Helper()
		spec := fx.order(doMove).Spec
		spec.Force = force
		plan, err := move.NewPlan(t.Context(), ends, spec)
		must(t, err)
		is := map[string]object.Severity{}
		for _, f := range plan.Copy.Findings {
			if f.Code != object.CodeFeatureGate {
				continue
			}
			for _, unit := range append(slices.Clone(f.Users), f.Unit) {
				is[unit] = f.Severity
			}
		}
		return is
	}
	classy := func(severity object.Severity) map[string]object.Severity {
		is := map[string]object.Severity{}
		for _, unit := range classyUnits {
			is[fx.namespace+"/"+unit] = severity
		}
		return is
	}
	check := func(got, want map[string]object.Severity) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("found %v, want %v", got, want)
		}
	}
	check(found(nil), map[string]object.Severity{})
	fx.runs(t, 0, "ClusterTopology=true,MachinePool=true")
	check(found(nil), map[string]object.Severity{})
	t.Run("off", func(t *testing.T) {
		fx.runs(t, 1, "ClusterTopology=false,MachinePool=true")
		check(found(nil), classy(object.Error))
		check(found(object.Forced{object.CodeFeatureGate: ""}), classy(object.Warning))
	})
	t.Run("not used", func(t *testing.T) {
		fx.runs(t, 1, "ClusterTopology=true,MachinePool=false")
		check(found(nil), map[string]object.Severity{"": object.Warning})
	})
	t.Run("not set", func(t *testing.T) {
		fx.runs(t, 1, "MachinePool=true")
		check(found(nil), classy(object.Info))
	})
}
