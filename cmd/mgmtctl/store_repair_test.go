package main

import (
	"strings"
	"testing"
	"time"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// testRepairKeys are keys of a store, in these states.
func testRepairKeys(states ...mgmtv1.RepairState) []*mgmtv1.RepairKey {
	var keys []*mgmtv1.RepairKey
	for i, state := range states {
		k := &mgmtv1.RepairKey{Key: "snapshots/7d1f/x.json", Kind: mgmtv1.StoreKind_STORE_KIND_ENVELOPE,
			Hidden: i%2 == 0, State: state, Versions: 2, GoodTime: ago(time.Hour)}
		if state == mgmtv1.RepairState_REPAIR_STATE_LOST {
			k.GoodTime, k.Reason = nil, "no version of it is proven to be the right one"
		}
		keys = append(keys, k)
	}
	return keys
}

// TestStoreRepairExitsByWhatIsLeft: a plan with anything in it exits with 3; a run with 0, 3 or 4.
func TestStoreRepairExitsByWhatIsLeft(t *testing.T) {
	const (
		possible  = mgmtv1.RepairState_REPAIR_STATE_POSSIBLE
		pruned    = mgmtv1.RepairState_REPAIR_STATE_PRUNED
		lost      = mgmtv1.RepairState_REPAIR_STATE_LOST
		undeleted = mgmtv1.RepairState_REPAIR_STATE_UNDELETED
		copied    = mgmtv1.RepairState_REPAIR_STATE_COPIED
		failed    = mgmtv1.RepairState_REPAIR_STATE_FAILED
	)
	summary := &mgmtv1.RepairSummary{Versioned: true, Examined: 9}
	for name, tt := range map[string]struct {
		line   string
		states []mgmtv1.RepairState
		exit   int
	}{
		"a plan of nothing":             {"plan", nil, 0},
		"a plan":                        {"plan", []mgmtv1.RepairState{possible, pruned}, 3},
		"nothing to bring back":         {"run --yes", nil, 0},
		"all is back":                   {"run --yes", []mgmtv1.RepairState{undeleted, copied, pruned}, 0},
		"nothing is back":               {"run --yes", []mgmtv1.RepairState{lost}, 3},
		"some is back":                  {"run --yes", []mgmtv1.RepairState{copied, failed}, 4},
		"without --yes and no terminal": {"run", nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.repairPlan = []*mgmtv1.PlanRepairResponse{
				{Item: &mgmtv1.PlanRepairResponse_Summary{Summary: summary}}}
			f.repaired = []*mgmtv1.RunRepairResponse{
				{Item: &mgmtv1.RunRepairResponse_Summary{Summary: summary}}}
			for _, k := range testRepairKeys(tt.states...) {
				f.repairPlan = append(f.repairPlan, &mgmtv1.PlanRepairResponse{
					Item: &mgmtv1.PlanRepairResponse_Key{Key: k}})
				f.repaired = append(f.repaired, &mgmtv1.RunRepairResponse{
					Item: &mgmtv1.RunRepairResponse_Key{Key: k}})
			}
			runner{fake: f}.run(t, "store repair "+tt.line+storeFlags).want(t, tt.exit)
		})
	}
}

// TestAPlanOfARepairShowsProgress: the service repeats the summary while it plans, and the last one
// counts. Progress is on stderr only.
func TestAPlanOfARepairShowsProgress(t *testing.T) {
	for _, line := range []string{"plan", "run --yes"} {
		f := newFake()
		for _, n := range []int64{1000, 2000, 2345} {
			summary := &mgmtv1.RepairSummary{Versioned: true, Examined: n}
			f.repairPlan = append(f.repairPlan, &mgmtv1.PlanRepairResponse{
				Item: &mgmtv1.PlanRepairResponse_Summary{Summary: summary}})
			f.repaired = append(f.repaired, &mgmtv1.RunRepairResponse{
				Item: &mgmtv1.RunRepairResponse_Summary{Summary: summary}})
		}
		got := runner{fake: f}.run(t, "store repair "+line+storeFlags)
		got.want(t, 0)
		if !strings.Contains(got.stdout, "2345 keys") || strings.Contains(got.stdout, "2000") ||
			!strings.Contains(got.stderr, "keys looked at: 2000") {
			t.Errorf("stdout %s\nstderr %s", got.stdout, got.stderr)
		}
	}
}
