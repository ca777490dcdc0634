//go:build api

package retention

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// age makes all files below a folder older than any grace: they are what both kinds of storage
// take the time of a key from.
func age(t *testing.T, root string) {
	t.Helper()
	old := time.Now().Add(-24 * time.Hour)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAPIPruneOfS3RemovesWhatItsPlanSays: and a second prune removes nothing.
func TestAPIPruneOfS3RemovesWhatItsPlanSays(t *testing.T) {
	server := s3test.Start(t, s3test.Options{})
	server.NewBucket(t, "prune")
	b, err := s3.New(s3.Options{Bucket: "prune", Prefix: "p", Endpoint: server.Endpoint,
		CredentialsFile: server.CredentialsFile})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Options{Bucket: b, Plain: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	source := snapshottest.New("prod", 5, 1)
	var last *snapshot.Result
	for range 3 {
		if last, err = snapshot.Create(t.Context(), source.Options(st)); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Store: st, Policy: Policy{Last: 1}}
	if r := mustPrune(t, o); len(r.Removed) > 0 || r.Freed.Keys > 0 {
		t.Errorf("what is young is gone: %v, %+v", r.Removed, r.Freed)
	}
	age(t, filepath.Join(server.Root, "prune"))
	plan, err := planAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r := mustPrune(t, o); len(r.Removed) != 2 || r.Freed != plan.Frees || r.Freed.Keys < 8 {
		t.Errorf("removed %v, freed %+v, planned %+v", r.Removed, r.Freed, plan.Frees)
	}
	report, err := st.VerifyStructure(t.Context(), last.Envelope, nil)
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("what is left: %v, %v", report.Findings, err)
	}
	if r := mustPrune(t, o); r.Freed.Keys > 0 || len(r.Findings) > 0 {
		t.Errorf("again: %+v, %v", r.Freed, r.Findings)
	}
}
