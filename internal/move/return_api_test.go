//go:build api

package move_test

import (
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
)

// TestAPII1RollbackLeavesWhatWasRestoredElsewhere: the host of a move dies when the source is
// paused. A restore of its snapshot gives one workload cluster to a third management cluster. When
// the move is rolled back, that one stays paused on the source. Once it is gone from there, as
// after a move, a rollback comes to its end, and nobody may create it there again.
func TestAPII1RollbackLeavesWhatWasRestoredElsewhere(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "elsewhere")
	o := fx.order(doMove)
	o.Kill = &kill{Point: atKey, Key: "snapshots/"}
	_, err := fx.run(o)
	must(t, err)
	restored := classyUnits[0]
	must(t, ownership.Claim(t.Context(), fx.store, ownership.Request{
		WorkloadID: fx.workloadID(restored), Workload: fx.namespace + "/" + restored,
		To: object.Side{Name: "third", UID: "uid-third"}, Operation: "0123456789ab"}))
	e := fx.carryOut(fx.order(doRollback), catalog.Failed, nil)
	if !strings.Contains(e.Message, "third") {
		t.Errorf("it ended with %s", e.Message)
	}
	st, err := fx.state()
	must(t, err)
	for _, unit := range allUnits {
		u := st.source[clusterRef(fx.namespace, unit)]
		if paused := isPaused(u) && capi.PausedByUs(u.Object); paused != (unit == restored) {
			t.Errorf("%s: paused is %v", unit, paused)
		}
	}
	fx.report(fx.checkListed(st, []string{restored}, nil))
	fx.remove(fx.at, func(name string) bool { return unitName(name) == restored })
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	st, err = fx.state()
	must(t, err)
	fx.report(fx.checkListed(st, []string{restored}, nil))
}
