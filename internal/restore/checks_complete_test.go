package restore

import (
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAnIncompleteUnitIsBlocked: a unit of which the snapshot left out an object is restored only
// when the operator overrides that. An object that no unit needs blocks none.
func TestAnIncompleteUnitIsBlocked(t *testing.T) {
	many := func(name, cluster string) string {
		owner := `{"kind":"Cluster","name":"` + cluster + `"}`
		return `{"kind":"DevMachine","metadata":{"namespace":"n","name":"` + name +
			`","ownerReferences":[` + strings.Repeat(owner+",", capture.MaxReferences) + owner + `]},"spec":{}}`
	}
	for _, tt := range []struct {
		name, object string
		force        object.Forced
		severity     object.Severity
	}{
		{"of the unit", many("m", "w"), nil, object.Error},
		{"of the unit, overridden", many("m", "w"), object.Forced{object.CodeIncomplete: ""}, object.Warning},
		{"of no unit", many("m", "other"), nil, object.Warning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := newMemory(t, "source", needsNamespace, needsCluster, needsInfra, tt.object)
			x := newTrial(t, source, newMemory(t, "target"))
			x.spec.Force = tt.force
			plan := x.makePlan(t)
			found := 0
			for _, f := range plan.Findings {
				if f.Code == object.CodeIncomplete {
					found++
					if f.Severity != tt.severity || !strings.Contains(f.Message, "n/m") {
						t.Errorf("%+v", f)
					}
				}
			}
			if found != 1 || len(plan.Units) != 1 || plan.Units[0].Blocked != (tt.severity == object.Error) {
				t.Errorf("%d findings, units %+v", found, plan.Units)
			}
		})
	}
}
