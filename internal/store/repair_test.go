package store

import (
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// planRepair plans, and returns what was found by state.
func planRepair(t *testing.T, s *Store) (*RepairPlan, map[RepairState][]string) {
	t.Helper()
	plan, err := s.PlanRepair(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan, byState(plan.Repairs)
}

func byState(list []Repair) map[RepairState][]string {
	found := map[RepairState][]string{}
	for _, r := range list {
		found[r.State] = append(found[r.State], r.Key)
	}
	return found
}

func runRepair(t *testing.T, s *Store, plan *RepairPlan) map[RepairState][]string {
	t.Helper()
	var done []Repair
	if err := s.RunRepair(t.Context(), plan, func(r Repair) error {
		done = append(done, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return byState(done)
}

// TestRepairBringsBackWhatWasHiddenAndOverwritten: after delete markers and overwrites of
// everything the snapshot is listed and whole again, and a second repair finds nothing.
func TestRepairBringsBackWhatWasHiddenAndOverwritten(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(b *faultbucket.Versioned, key string)
		denied bool
		want   RepairState
	}{
		"hidden":           {(*faultbucket.Versioned).Hide, false, RepairUndeleted},
		"hidden, may not":  {(*faultbucket.Versioned).Hide, true, RepairCopied},
		"overwritten":      {overwrite, false, RepairCopied},
		"junk, and hidden": {overwriteAndHide, false, RepairCopied},
	} {
		t.Run(name, func(t *testing.T) {
			s, b, o, e := versionedStore(t, false)
			before := b.Keys("")
			tree, err := s.GetTree(t.Context(), e.Tree)
			if err != nil {
				t.Fatal(err)
			}
			spoiled := []string{markerKey, string(tree.Packs[0]), string(tree.Shards[0]), string(e.Tree),
				e.Key().String()}
			for _, key := range spoiled {
				tt.spoil(b, key)
			}
			b.NoUndelete = tt.denied
			s = mustOpen(t, o) // which finds the hidden mgmtd.json by a hidden envelope
			plan, found := planRepair(t, s)
			if !slices.Equal(found[RepairPossible], spoiled) || len(found) != 1 {
				t.Fatalf("planned %v, want %v", found, spoiled)
			}
			if done := runRepair(t, s, plan); !slices.Equal(done[tt.want], spoiled) {
				t.Fatalf("done %v, want %s of %v", done, tt.want, spoiled)
			}
			if _, again := planRepair(t, s); len(again) != 0 {
				t.Errorf("a second repair finds %v", again)
			}
			if !slices.Equal(b.Keys(""), before) {
				t.Errorf("keys %v, want %v", b.Keys(""), before)
			}
			again := mustOpen(t, o)
			report, err := again.VerifyStructure(t.Context(), e.Envelope, nil)
			if got, getErr := again.GetEnvelope(t.Context(), e.Key()); err != nil || getErr != nil ||
				got.Overwritten != nil || len(report.Findings) > 0 {
				t.Errorf("%v, %v, %v, %v", got.Overwritten, report.Findings, err, getErr)
			}
		})
	}
}

func overwrite(b *faultbucket.Versioned, key string) { b.Overwrite(key, []byte("junk")) }

func overwriteAndHide(b *faultbucket.Versioned, key string) {
	b.Overwrite(key, []byte("junk"))
	b.Hide(key)
}

// TestRepairLeavesWhatAPruneRemoved: a snapshot that a trusted record explains stays hidden, and
// one of which no version is proven is lost.
func TestRepairLeavesWhatAPruneRemoved(t *testing.T) {
	s, b, _, first := versionedStore(t, false)
	mustWriteSnapshot(t, s, 2, nil)
	planted := "snapshots/" + testSource + "/20260101T000000.000Z-0123456789ab.json"
	b.Overwrite(planted, []byte("junk"))
	b.Hide(planted)
	b.Hide(first.Key().String())
	early, _ := planRepair(t, s)
	pruned, err := s.Pruned(t.Context())
	if err == nil {
		_, err = s.PutPruneRecord(t.Context(), pruned,
			Removal{Numbers: map[string][]int64{testSource: {1}}}, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []string{first.Key().String()}
	plan, found := planRepair(t, s)
	if !slices.Equal(found[RepairPruned], want) || !slices.Equal(found[RepairLost], []string{planted}) {
		t.Errorf("planned %v", found)
	}
	for _, plan := range []*RepairPlan{plan, early} {
		if done := runRepair(t, s, plan); !slices.Equal(done[RepairPruned], want) ||
			slices.Contains(b.Keys(""), want[0]) {
			t.Errorf("done %v", done)
		}
	}
}

// TestRepairPutsBackTheOwnershipRecordOfTheHighestEpoch: an old record that somebody put back, and
// a delete marker, give way to the trusted record of the highest epoch.
func TestRepairPutsBackTheOwnershipRecordOfTheHighestEpoch(t *testing.T) {
	for name, spoil := range map[string]func(b *faultbucket.Versioned, key string, old []byte){
		"replayed": func(b *faultbucket.Versioned, key string, old []byte) { b.Overwrite(key, old) },
		"hidden":   func(b *faultbucket.Versioned, key string, _ []byte) { b.Hide(key) },
		"both": func(b *faultbucket.Versioned, key string, old []byte) {
			b.Overwrite(key, old)
			b.Hide(key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, b, _, _ := versionedStore(t, false)
			one, err := s.PutOwner(t.Context(), testOwner("w", 1), nil)
			if err != nil {
				t.Fatal(err)
			}
			key := "owners/" + one.WorkloadID + ".json"
			old, _, err := b.GetTagged(t.Context(), key)
			if err == nil {
				_, err = s.PutOwner(t.Context(), testOwner("w", 2), &one)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, found := planRepair(t, s); len(found) != 0 {
				t.Errorf("before: %v", found)
			}
			spoil(b, key, old)
			plan, _ := planRepair(t, s)
			runRepair(t, s, plan)
			if o, err := s.GetOwner(t.Context(), one.WorkloadID); err != nil || o.Epoch != 2 {
				t.Errorf("epoch %d, %v", o.Epoch, err)
			}
			if _, found := planRepair(t, s); len(found) != 0 {
				t.Errorf("after: %v", found)
			}
		})
	}
}

// TestRepairOfADirectoryFindsNoVersions: a directory has none, and the plan says so.
func TestRepairOfADirectoryFindsNoVersions(t *testing.T) {
	s := mustOpen(t, Options{Bucket: directory.New(t.TempDir()), Keys: mustLoad(t, testKeys(t)),
		Create: true})
	if plan, _ := planRepair(t, s); plan.Versioned || len(plan.Repairs) > 0 {
		t.Errorf("%+v", plan)
	}
}
