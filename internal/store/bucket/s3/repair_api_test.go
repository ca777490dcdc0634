//go:build api

package s3_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// TestAPIS3RepairBringsBackWhatAnAttackerDid: somebody hides and overwrites everything in a bucket
// with versions. A repair brings it back, and the next one finds nothing to do.
func TestAPIS3RepairBringsBackWhatAnAttackerDid(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3Repairs)
}

func s3Repairs(t *testing.T, server *s3test.Server) {
	dir := filepath.Join(t.TempDir(), "keys")
	made, err := store.Keygen(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: []string{made.Recipient},
		SigningKeyFile:  filepath.Join(dir, store.SigningFile),
		TrustedKeyFiles: []string{filepath.Join(dir, store.SigningPubFile)}})
	if err != nil {
		t.Fatal(err)
	}
	c := server.Client(t)
	for name, create := range map[string]func(testing.TB, string){
		"versioned": server.NewVersionedBucket, "locked": server.NewLockedBucket} {
		create(t, name)
		o := s3.Options{Bucket: name, Endpoint: server.Endpoint,
			CredentialsFile: server.CredentialsFile}
		if name == "locked" {
			o.ObjectLock, o.RetentionDays = s3.LockGovernance, 1
		}
		open := func() *store.Store {
			t.Helper()
			s, err := store.Open(t.Context(), store.Options{Bucket: newS3(t, o), Keys: keys, Create: true})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		shards, signed := putSnapshot(t, open())
		spoiled := []string{"mgmtd.json", string(shards[0]), string(shards[1]), string(signed.Tree),
			signed.Key().String()}
		for i, key := range spoiled {
			if i%2 == 1 || key == signed.Key().String() {
				overwrite(t, c, name, key, "junk")
			}
			if i%2 == 0 {
				mark(t, c, name, key)
			}
		}
		plan, err := open().PlanRepair(t.Context(), nil)
		if err != nil || !plan.Versioned || len(plan.Repairs) != len(spoiled) {
			t.Fatalf("%s: plan %+v, %v", name, plan, err)
		}
		if err := open().RunRepair(t.Context(), plan, func(r store.Repair) error {
			if r.State != store.RepairUndeleted && r.State != store.RepairCopied {
				t.Errorf("%s: %s: %s, %s", name, r.Key, r.State, r.Reason)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if again, err := open().PlanRepair(t.Context(), nil); err != nil || len(again.Repairs) > 0 {
			t.Errorf("%s: a second repair finds %+v, %v", name, again, err)
		}
		e, err := open().GetEnvelope(t.Context(), signed.Key())
		if err != nil || e.SHA256 != signed.SHA256 || e.Overwritten != nil {
			t.Errorf("%s: envelope %v, %v", name, e.Overwritten, err)
		}
		report, err := open().VerifyStructure(t.Context(), signed.Envelope, nil)
		if err != nil || len(report.Findings) > 0 {
			t.Errorf("%s: %v, %v", name, report.Findings, err)
		}
	}
}
