package service

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// filesOf returns the content of the files of a folder.
func filesOf(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestAReadOnlyLocationIsOnlyRead: all that would write there is refused and says why. A verify
// succeeds without a record, and a restore warns that it can record nothing.
func TestAReadOnlyLocationIsOnlyRead(t *testing.T) {
	root := t.TempDir()
	e := putStructure(t, root, 1)
	before := filesOf(t, root)
	s := verifyServer(t, root)
	s.cfg.Locations[0].Store.ReadOnly = true
	s.cfg.Locations[0].Default = true
	s.cfg.Locations = append(s.cfg.Locations, Location{Name: "other",
		Store: StoreOptions{URL: t.TempDir(), Plain: true}})

	outcome, findings, err := verifyNow(t, s, verifyRequest{level: store.LevelStructure})
	if outcome != store.OutcomeOK || err != nil ||
		strings.Join(findings, ", ") != "warning signature" {
		t.Errorf("a verify: %q, %v, %v", outcome, findings, err)
	}
	if v := shown(t, s); v.GetResult() != mgmtv1.VerifyResult_VERIFY_RESULT_OK {
		t.Errorf("its result is shown as %v", v)
	}
	st, err := s.openStore(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	unfenced, fenceErr := noFence(t.Context(), st)
	unmirrored, mirrorErr := mirror.Findings(t.Context(), st)
	if fenceErr != nil || mirrorErr != nil || len(unfenced) != 1 || len(unmirrored) != 1 ||
		!strings.Contains(unfenced[0].Message, "read-only") ||
		unfenced[0].Severity != object.Warning || unmirrored[0].Severity != object.Warning {
		t.Errorf("a restore: %v, %v; %v, %v", unfenced, fenceErr, unmirrored, mirrorErr)
	}

	ctx, snapshots, prunes := t.Context(), &snapshotService{s: s}, &pruneService{s: s}
	stores, repairs := &storeService{s: s}, &repairService{s: s}
	refused := map[string]error{}
	_, refused["pin"] = snapshots.PinSnapshot(ctx, &mgmtv1.PinSnapshotRequest{Id: latest})
	_, refused["unpin"] = snapshots.UnpinSnapshot(ctx, &mgmtv1.UnpinSnapshotRequest{Id: latest})
	_, refused["delete"] = snapshots.DeleteSnapshots(ctx, &mgmtv1.DeleteSnapshotsRequest{
		Ids: []string{string(e.ID)}})
	_, refused["prune"] = prunes.RunPrune(ctx, &mgmtv1.RunPruneRequest{})
	_, refused["copy into it"] = stores.CopyStore(ctx, &mgmtv1.CopyStoreRequest{Location: "disk",
		ToLocation: "disk"})
	refused["repair"] = repairs.RunRepair(&mgmtv1.RunRepairRequest{},
		&sink[mgmtv1.RunRepairResponse]{ctx: ctx})
	refused["snapshot or move"] = st.AcceptsSnapshots()
	for what, err := range refused {
		if err == nil || !strings.Contains(err.Error(), "read-only") ||
			FromStatus(ToStatus(err)).Reason != ReasonUsage {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := stores.CopyStore(ctx, &mgmtv1.CopyStoreRequest{Location: "disk",
		ToLocation: "other"}); err != nil {
		t.Errorf("a copy of it: %v", err)
	}
	if diff := cmp.Diff(before, filesOf(t, root)); diff != "" {
		t.Errorf("it was changed (-before +after):\n%s", diff)
	}
}
