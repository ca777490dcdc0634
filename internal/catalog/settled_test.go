package catalog

import (
	"testing"
)

// TestARestoreIsSettledOnceAnotherOneHasReleasedItsUnits: until then its snapshot is in use.
func TestARestoreIsSettledOnceAnotherOneHasReleasedItsUnits(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	begin := func(target string, unreleased bool, units map[string]UnitState, end State) OperationID {
		t.Helper()
		op, err := c.CreateOperation(t.Context(), Operation{Kind: KindRestore, Store: "store",
			SnapshotID: "snapshot", Target: Side{UID: target}, Units: units})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.UpdateOperation(t.Context(), op.ID, func(op *Operation) {
			op.Unreleased = unreleased
		}); err != nil {
			t.Fatal(err)
		}
		setState(t, c, op.ID, Running)
		setState(t, c, op.ID, end)
		return op.ID
	}
	a, b := map[string]UnitState{"n/a": UnitReleased}, map[string]UnitState{"n/a": UnitReleased,
		"n/b": UnitReleased, "n/held": UnitCopied}
	rolledBack := map[string]UnitState{"n/a": UnitReleased, "n/b": UnitReleased,
		"n/held": UnitRolledBack}
	paused := begin("target", true, map[string]UnitState{"n/a": UnitCopied, "n/b": UnitCopied,
		"n/held": UnitCopied, "n/blocked": UnitBlocked}, Succeeded)
	for _, tt := range []struct {
		name string
		by   OperationID
		want bool
	}{
		{"another target", begin("another", false, b, Succeeded), false},
		{"one that failed", begin("target", false, b, Failed), false},
		{"one that leaves them paused", begin("target", true, b, Succeeded), false},
		{"one of them", begin("target", false, a, Succeeded), false},
		{"one that has rolled one of them back", begin("target", false, rolledBack, Succeeded), false},
		{"all of them", begin("target", false, b, Succeeded), true},
	} {
		settled, err := c.SettleReleased(t.Context(), tt.by)
		op, getErr := c.Operation(t.Context(), paused)
		if err != nil || getErr != nil || op.Settled() != tt.want || tt.want == (len(settled) == 0) {
			t.Errorf("%s: settled %v, the restore is settled: %t (%v, %v)", tt.name, settled,
				op.Settled(), err, getErr)
		}
	}
}
