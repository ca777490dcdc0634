package service

import (
	"testing"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestARepairWaitsForAPrune: a prune that listed before would remove what the repair brings back.
func TestARepairWaitsForAPrune(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(1)
	run := func() error {
		return (&repairService{s: b.Server}).RunRepair(&mgmtv1.RunRepairRequest{},
			&sink[mgmtv1.RunRepairResponse]{ctx: t.Context()})
	}
	if !b.claimPrune("main") {
		t.Fatal("the prune may not begin")
	}
	if err := run(); err == nil || classify(err).Reason != ReasonLocked {
		t.Errorf("while a prune runs: %v", err)
	}
	b.releasePrune("main")
	if err := run(); err != nil {
		t.Error(err)
	}
	if !b.claimPrune("main") {
		t.Error("a repair that has ended still has its place")
	}
}
