package retention

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
)

// signingKeys makes keys in a folder, and returns options that sign with them.
func signingKeys(t *testing.T) store.KeyOptions {
	t.Helper()
	dir := t.TempDir()
	generated, err := store.Keygen(dir, pruneTime)
	if err != nil {
		t.Fatal(err)
	}
	return store.KeyOptions{Recipients: []string{generated.Recipient},
		SigningKeyFile:  filepath.Join(dir, store.SigningFile),
		TrustedKeyFiles: []string{filepath.Join(dir, store.SigningPubFile)}}
}

func openSigned(t *testing.T, b *clocked, o store.KeyOptions) *store.Store {
	t.Helper()
	k, err := store.LoadKeys(o)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Options{Bucket: b, Keys: k, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestOldSnapshotsStayTrustedThroughPrunesAfterATheft: the signing key was stolen and replaced.
// Day by day a prune with rules for days removes snapshots between those of the old key, then the
// last one before the theft. The storage retains one of them for a while. All that are left are
// trusted.
func TestOldSnapshotsStayTrustedThroughPrunesAfterATheft(t *testing.T) {
	b := newClocked(t)
	old, fresh := signingKeys(t), signingKeys(t)
	w := &taker{st: openSigned(t, b, old), source: sourceA}
	before := w.hourly(t, b, 60)
	last := before[len(before)-1]
	fresh.TrustedKeys = []store.TrustedKey{{File: old.TrustedKeyFiles[0], Limits: store.KeyLimits{
		LastTrusted: []store.LastTrusted{{Source: sourceA, Sequence: last.Sequence,
			Hash: last.SHA256}}}}}
	w.st = openSigned(t, b, fresh)
	w.hourly(t, b, 7)
	retained := before[30].Key()
	b.retained[retained.String()] = true
	for day, policy := range []Policy{{Last: 30, Daily: 20}, {Last: 3, Daily: 20},
		{Last: 1, Daily: 6}} {
		b.pass(12 * time.Hour)
		w.hourly(t, b, 2)
		b.pass(12 * time.Hour)
		mustPrune(t, options(openSigned(t, b, fresh), b, policy))
		st := openSigned(t, b, fresh)
		keys, err := st.Snapshots(t.Context(), sourceA)
		if err != nil {
			t.Fatal(err)
		}
		ofOldKey := 0
		for _, k := range keys {
			e, err := st.GetEnvelope(t.Context(), k)
			if err != nil || e.Trust != store.Trusted {
				t.Errorf("day %d: number %d is %s, %v", day, e.Sequence, e.Trust, err)
			}
			if e.Sequence <= last.Sequence {
				ofOldKey++
			}
		}
		if ofOldKey < 2 || !slices.Contains(keys, retained) {
			t.Errorf("day %d: %d of the old key are left of %s", day, ofOldKey, left(t, st))
		}
		if day == 2 && slices.Contains(keys, last.Key()) {
			t.Errorf("day %d: the last one before the theft is still there", day)
		}
	}
}
