package service

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
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

// TestAPlanOfARepairIsReportedAsItGoes: the summary is sent again and again while keys are listed,
// and once when all are.
func TestAPlanOfARepairIsReportedAsItGoes(t *testing.T) {
	b := faultbucket.NewVersioned()
	st, err := store.Open(t.Context(), store.Options{Bucket: b, Plain: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2*progressKeys + 1 {
		data := []byte{byte(i), byte(i >> 8)}
		sum := sha256.Sum256(data)
		name := hex.EncodeToString(sum[:])
		b.Overwrite("packs/"+name[:2]+"/"+name+".tar.zst", data)
	}
	var examined []int64
	plan, err := planRepair(t.Context(), st, func(s *mgmtv1.RepairSummary) error {
		if !s.GetVersioned() {
			t.Errorf("summary %v", s)
		}
		examined = append(examined, s.GetExamined())
		return nil
	})
	want := []int64{progressKeys, 2 * progressKeys, 2*progressKeys + 2} // with mgmtd.json
	if err != nil || len(plan.Repairs) > 0 || !slices.Equal(examined, want) {
		t.Errorf("examined %v, want %v; %v", examined, want, err)
	}
}
