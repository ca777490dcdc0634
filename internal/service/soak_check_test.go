package service

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// check checks every new envelope without faults, whatever was reported of it.
func (k *soak) check(r *rand.Rand) {
	k.t.Helper()
	ctx := k.t.Context()
	k.bucket.Heal()
	k.assertStore()
	keys, err := k.direct.Snapshots(ctx, "")
	if err != nil {
		k.t.Fatal(err)
	}
	there := map[string]bool{}
	for _, key := range keys {
		there[key.String()] = true
		if r.IntN(len(keys)) > 400 {
			continue // it has been checked before, or will be
		}
		e, err := k.direct.GetEnvelope(ctx, key)
		if err != nil || e.Trust != store.Trusted {
			k.t.Errorf("an envelope is not whole: %v", err)
			continue
		}
		if report, err := k.direct.VerifyStructure(ctx, e.Envelope, nil); err != nil ||
			len(report.Findings) > 0 {
			k.t.Errorf("%s is there and is not whole: %v, %v", key, report.Findings, err)
		}
	}
	for i := range k.taken { // those that were removed are none of them any more
		of := &k.taken[i]
		if !there[of.Key().String()] {
			k.t.Errorf("%s was taken and is not there", of.Key())
		}
		if !of.compared {
			of.compared = true
			if err := compareTaken(k.t, k.direct, *of); err != nil {
				k.t.Error(err)
			}
		}
	}
	for id, epoch := range k.epochs {
		if o, err := k.direct.GetOwner(ctx, id); err != nil || o.Epoch < epoch {
			k.t.Errorf("%s: epoch %d was written, there is %d, %v", id, epoch, o.Epoch, err)
		}
	}
	k.checkCatalog(there)
	k.checkMemory(r)
	k.checkFiles()
}

// checkCatalog makes the index from scratch: it must be equal to the store (I4).
func (k *soak) checkCatalog(there map[string]bool) {
	k.t.Helper()
	if rebuilt, err := k.s.rebuild(k.t.Context(), k.c, k.at); err != nil ||
		len(rebuilt.GetDamaged()) > 0 {
		k.t.Fatalf("rebuild: %v, %v", rebuilt, err)
	}
	records, err := k.c.Snapshots(k.t.Context(), catalog.SnapshotFilter{StoreID: k.direct.ID()})
	if err != nil || len(records) != len(there) {
		k.t.Errorf("the catalog knows %d snapshots of %d, %v", len(records), len(there), err)
	}
	for _, s := range records {
		if !there[s.Key] {
			k.t.Errorf("the catalog knows %s, which is not there", s.Key)
		}
	}
}

// checkMemory takes two snapshots between which nothing changes: the second must cost an envelope.
func (k *soak) checkMemory(r *rand.Rand) {
	k.t.Helper()
	source := k.sources[r.IntN(len(k.sources))]
	var wrote int64
	for range 2 {
		o := source.Options(k.direct)
		o.State, o.Now = k.c.SnapshotState(k.direct.ID(), source.UID), k.clock.Now
		result, err := snapshot.Create(k.t.Context(), o)
		if err != nil {
			k.t.Fatal(err)
		}
		wrote = result.Wrote - result.Size
	}
	if wrote != 0 {
		k.t.Errorf("a snapshot in which nothing changed wrote %d bytes", wrote)
	}
}

// checkFiles searches for files that no code cleans up, and for Secrets that are not encrypted
// (I6).
func (k *soak) checkFiles() {
	k.t.Helper()
	err := filepath.WalkDir(k.dir+"/store", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".tmp-") {
			k.t.Errorf("%s was left behind", path)
		}
		return err
	})
	if err != nil {
		k.t.Error(err)
	}
}
