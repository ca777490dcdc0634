package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const verifySource = "6f1b2c3d-0000-4000-8000-000000000001"

// verifyServer is a daemon's server, which serves nothing, over a plain store in a folder.
func verifyServer(t *testing.T, root string) *Server {
	t.Helper()
	s := New(Config{
		CatalogFile: filepath.Join(t.TempDir(), "catalog.db"),
		Locations:   []Location{{Name: "disk", Store: StoreOptions{URL: "file://" + root, Plain: true}}},
		Metrics:     prometheus.NewRegistry(), Daemon: true, Version: "test",
		Verify: schedule.VerifyOptions{Every: 24 * time.Hour, Level: store.LevelStructure},
	})
	t.Cleanup(func() {
		if s.catalog != nil {
			if problems := s.catalog.Check(context.WithoutCancel(t.Context())); len(problems) > 0 {
				t.Error(problems)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// putStructure writes a snapshot with one pack and no shard to the store in a folder: its structure
// is whole, and it has no objects.
func putStructure(t *testing.T, root string, sequence int64) store.Signed {
	t.Helper()
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root), Plain: true,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return putStructureTo(t, st, sequence)
}

func putStructureTo(t *testing.T, st *store.Store, sequence int64) store.Signed {
	t.Helper()
	return putScoped(t, st, sequence)
}

// putScoped is putStructureTo for a snapshot of these namespaces.
func putScoped(t *testing.T, st *store.Store, sequence int64, namespaces ...string) store.Signed {
	t.Helper()
	ctx := t.Context()
	w, err := st.NewPackWriter(ctx, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	place, err := w.Add("core/Secret/ns/s.json", fmt.Appendf(nil, `{"kind":"Secret","n":%d}`,
		sequence))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	tree, err := st.PutTree(ctx, store.Tree{Packs: []store.Key{place.Key()}})
	if err != nil {
		t.Fatal(err)
	}
	scope := store.ScopeOf(verifySource, namespaces, "", "")
	e, err := st.PutEnvelope(ctx, store.Envelope{
		ID: store.NewSnapshotID(), Sequence: sequence, Time: time.Unix(1e9+sequence, 0),
		Source: store.Source{UID: verifySource, Name: "prod"}, Tree: tree,
		Scope: &scope, Partial: len(namespaces) > 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// verifyNow verifies and returns the result, with the findings.
func verifyNow(t *testing.T, s *Server, r verifyRequest) (store.VerifyOutcome, []string, error) {
	t.Helper()
	run, err := s.beginVerify(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	outcome, failed := run.Wait()
	var codes []string
	for e, err := range s.catalog.Events(t.Context(), run.Operation().ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Finding != nil {
			codes = append(codes, e.Finding.Severity.String()+" "+string(e.Finding.Code))
		}
	}
	return outcome, codes, failed
}

func recordedChecks(t *testing.T, root string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "checks", "*", "*", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// shown is the verification of the newest snapshot, as the list and the details show it.
func shown(t *testing.T, s *Server) *mgmtv1.Verification {
	t.Helper()
	list, err := (&snapshotService{s: s}).ListSnapshots(t.Context(), &mgmtv1.ListSnapshotsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&snapshotService{s: s}).GetSnapshot(t.Context(),
		&mgmtv1.GetSnapshotRequest{Id: latest})
	if err != nil {
		t.Fatal(err)
	}
	listed := list.GetSnapshots()[0].GetVerified()
	if verified := got.GetSnapshot().GetVerified(); verified.String() != listed.String() {
		t.Errorf("show: %v, list: %v", verified, listed)
	}
	return listed
}

// losePack moves the one pack of a store away, and returns a function that brings it back.
func losePack(t *testing.T, root string) (restore func()) {
	t.Helper()
	packs, err := filepath.Glob(root + "/packs/*/*")
	if err != nil || len(packs) != 1 {
		t.Fatal(packs, err)
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(packs[0], root+"/away")
	return func() { move(root+"/away", packs[0]) }
}

func TestVerifyOfAWholeSnapshotIsRecordedCountedAndShown(t *testing.T) {
	root := t.TempDir()
	putStructure(t, root, 1)
	s := verifyServer(t, root)
	outcome, findings, err := verifyNow(t, s, verifyRequest{level: store.LevelStructure, of: snapshotRef{ref: latest}})
	if outcome != store.OutcomeOK || err != nil || len(findings) != 1 ||
		findings[0] != "warning signature" || recordedChecks(t, root) != 1 {
		t.Fatalf("%q, %v, %v", outcome, findings, err)
	}
	m := s.metrics.verifies
	if got := testutil.ToFloat64(m.total.WithLabelValues("ok")); got != 1 {
		t.Errorf("counted %v", got)
	}
	if got := testutil.ToFloat64(m.lastSuccess.WithLabelValues("disk", "prod",
		"structure")); got < 1.7e9 {
		t.Errorf("last success %v", got)
	}
	if v := shown(t, s); v.GetResult() != mgmtv1.VerifyResult_VERIFY_RESULT_OK ||
		v.GetLevel() != mgmtv1.VerifyLevel_VERIFY_LEVEL_STRUCTURE {
		t.Errorf("shown: %v", v)
	}
}

func TestVerifyOfASnapshotThatLostAPackFindsDamage(t *testing.T) {
	root := t.TempDir()
	putStructure(t, root, 1)
	s := verifyServer(t, root)
	losePack(t, root)
	outcome, findings, err := verifyNow(t, s, verifyRequest{level: store.LevelFull})
	if outcome != store.OutcomeDamaged || FromStatus(err).Reason != ReasonFindings ||
		strings.Join(findings, ", ") != "warning signature, error missing" ||
		recordedChecks(t, root) != 1 {
		t.Fatalf("%q, %v, %v", outcome, findings, err)
	}
	if got := testutil.ToFloat64(s.metrics.verifies.findings.WithLabelValues("disk", "prod",
		"structure")); got != 1 {
		t.Errorf("findings %v", got)
	}
}

// TestI4VerificationIsReadFromTheStoreWithoutTheCatalog: another host reads the result from the
// store, and writes it into its own index.
func TestI4VerificationIsReadFromTheStoreWithoutTheCatalog(t *testing.T) {
	root := t.TempDir()
	e := putStructure(t, root, 1)
	losePack(t, root)
	if outcome, _, _ := verifyNow(t, verifyServer(t, root),
		verifyRequest{level: store.LevelFull}); outcome != store.OutcomeDamaged {
		t.Fatalf("outcome %q", outcome)
	}
	other := verifyServer(t, root)
	if v := shown(t, other); v.GetResult() != mgmtv1.VerifyResult_VERIFY_RESULT_DAMAGED ||
		v.GetLevel() != mgmtv1.VerifyLevel_VERIFY_LEVEL_STRUCTURE {
		t.Errorf("shown: %v", v)
	}
	if _, err := (&catalogService{s: other}).RebuildCatalog(t.Context(),
		&mgmtv1.RebuildCatalogRequest{}); err != nil {
		t.Fatal(err)
	}
	r, err := other.catalog.GetSnapshot(t.Context(), string(e.ID), catalog.SnapshotFilter{})
	if err != nil || r.Verified == nil || r.Verified.OK || r.Verified.Level != store.LevelStructure {
		t.Errorf("index: %+v, %v", r.Verified, err)
	}
}

// TestVerifyWithoutRecordIsKnownToItsCatalogOnly: a result that is not recorded in the store is in
// one catalog only.
func TestVerifyWithoutRecordIsKnownToItsCatalogOnly(t *testing.T) {
	root := t.TempDir()
	putStructure(t, root, 1)
	s, other := verifyServer(t, root), verifyServer(t, root)
	restore := losePack(t, root)
	if outcome, _, _ := verifyNow(t, s, verifyRequest{level: store.LevelFull}); outcome !=
		store.OutcomeDamaged {
		t.Fatalf("outcome %q", outcome)
	}
	restore()
	if outcome, _, err := verifyNow(t, other, verifyRequest{level: store.LevelStructure,
		noRecord: true}); outcome != store.OutcomeOK || err != nil || recordedChecks(t, root) != 1 {
		t.Errorf("%q, %v", outcome, err)
	}
	if v := shown(t, other); v.GetResult() != mgmtv1.VerifyResult_VERIFY_RESULT_OK {
		t.Errorf("shown by its catalog: %v", v)
	}
	if v := shown(t, s); v.GetResult() != mgmtv1.VerifyResult_VERIFY_RESULT_DAMAGED {
		t.Errorf("shown by the other one: %v", v)
	}
}

// deny is a read-only bucket that counts the writes it refuses.
type deny struct {
	bucket.Bucket
	puts int
}

func (d *deny) Put(_ context.Context, key string, _ []byte) error {
	d.puts++
	return &store.BucketError{Op: "put", Key: key, Class: store.ErrDenied,
		Err: errors.New("read-only")}
}

func TestVerifyOfAReadOnlyStoreSucceedsWithAWarning(t *testing.T) {
	root := t.TempDir()
	putStructure(t, root, 1)
	s := verifyServer(t, root)
	bucket := &deny{Bucket: directory.New(root)}
	s.buckets[s.cfg.Locations[0].Name] = bucket
	outcome, findings, err := verifyNow(t, s, verifyRequest{level: store.LevelStructure})
	if outcome != store.OutcomeOK || err != nil ||
		strings.Join(findings, ", ") != "warning signature, warning not-recorded" || bucket.puts != 1 {
		t.Errorf("%q, %v, %v after %d writes", outcome, findings, err, bucket.puts)
	}
	if v := shown(t, s); v.GetResult() != mgmtv1.VerifyResult_VERIFY_RESULT_OK {
		t.Errorf("shown: %v", v)
	}
}

// gone is a bucket that is unreachable when a pack is read.
type gone struct{ bucket.Bucket }

func (g gone) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if strings.HasPrefix(key, "packs/") {
		return nil, &store.BucketError{Op: "get", Key: key, Class: store.ErrUnreachable,
			Err: errors.New("connection refused")}
	}
	return g.Bucket.Get(ctx, key)
}

// TestVerifyOfAnUnreachableStoreHasNoOutcome: the snapshot is not reported as damaged, and the next
// one need not be full.
func TestVerifyOfAnUnreachableStoreHasNoOutcome(t *testing.T) {
	root := t.TempDir()
	putStructure(t, root, 1)
	s := verifyServer(t, root)
	s.buckets[s.cfg.Locations[0].Name] = gone{directory.New(root)}
	outcome, findings, err := verifyNow(t, s, verifyRequest{level: store.LevelStructure})
	if outcome != "" || FromStatus(err).Reason != ReasonStoreUnreachable || len(findings) != 0 ||
		recordedChecks(t, root) != 0 {
		t.Errorf("%q, %v, %v", outcome, findings, err)
	}
	if got := testutil.ToFloat64(s.metrics.verifies.total.WithLabelValues("failed")); got != 1 {
		t.Errorf("counted %v", got)
	}
	if v := shown(t, s); v != nil {
		t.Errorf("shown: %v", v)
	}
}

// TestVerifyOfADamagedEnvelopeIsCountedForItsSource: the name of the source is that of the index:
// the envelope cannot be read.
func TestVerifyOfADamagedEnvelopeIsCountedForItsSource(t *testing.T) {
	root := t.TempDir()
	e := putStructure(t, root, 1)
	s := verifyServer(t, root)
	if _, _, err := verifyNow(t, s, verifyRequest{level: store.LevelStructure}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, e.Key().String()), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	outcome, findings, err := verifyNow(t, s, verifyRequest{level: store.LevelStructure})
	if outcome != store.OutcomeDamaged || err == nil ||
		!strings.Contains(err.Error(), "1 of 1 keys") ||
		len(findings) != 1 || recordedChecks(t, root) != 1 {
		t.Errorf("%q, %v, %v", outcome, findings, err)
	}
	if got := testutil.ToFloat64(s.metrics.verifies.findings.WithLabelValues("disk", "prod",
		"structure")); got != 1 {
		t.Errorf("findings %v", got)
	}
}

// TestI8VerifyOfAForgedSnapshotRecordsNothing: a verify records no result of a forged snapshot, and
// the names in it make no series of metrics.
func TestI8VerifyOfAForgedSnapshotRecordsNothing(t *testing.T) {
	root, keys := t.TempDir(), t.TempDir()
	if err := Keygen(keys, nil); err != nil {
		t.Fatal(err)
	}
	recipient, err := os.ReadFile(filepath.Join(keys, "recipient.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// recipients are no secret
	loaded, err := store.LoadKeys(store.KeyOptions{Recipients: []string{string(recipient)}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root), Keys: loaded,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	putStructureTo(t, st, 1)
	s := verifyServer(t, root)
	s.cfg.Locations[0].Store = StoreOptions{URL: "file://" + root,
		Recipients: []string{string(recipient)}, SigningKeyFile: filepath.Join(keys, "signing.key")}
	for range 2 {
		outcome, findings, err := verifyNow(t, s, verifyRequest{level: store.LevelStructure})
		if outcome == store.OutcomeOK || err == nil || findings[0] != "error signature" ||
			recordedChecks(t, root) != 0 {
			t.Errorf("%q, %v, %v, %d records", outcome, findings, err, recordedChecks(t, root))
		}
		if n := testutil.CollectAndCount(s.metrics.verifies.findings); n != 0 {
			t.Errorf("%d series", n)
		}
		if v := shown(t, s); v != nil {
			t.Errorf("shown: %v", v)
		}
		packs, err := filepath.Glob(root + "/packs/*/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, pack := range packs { // for the second round: forged, and not whole
			if err := os.Remove(pack); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDaemonVerifiesTheNewestSnapshotAtStart: the daemon verifies the newest snapshots in its
// stores when it starts, and again when that is due.
func TestDaemonVerifiesTheNewestSnapshotAtStart(t *testing.T) {
	root := t.TempDir()
	e := putStructure(t, root, 1)
	s := verifyServer(t, root)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The pass ends after its operation: it searches for other scopes, which a stop ends.
	var state catalog.VerifyState
	for state.LastSuccess.IsZero() {
		var err error
		state, err = s.catalog.VerifyState(t.Context(), "disk/"+verifySource)
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	ops, err := s.catalog.Operations(t.Context(), catalog.OperationFilter{})
	if err != nil {
		t.Fatal(err)
	}
	// The one after it is a pass over what all snapshots name.
	ops = slices.DeleteFunc(ops, func(op catalog.Operation) bool { return op.SnapshotID == "" })
	if len(ops) != 1 || ops[0].Kind != catalog.KindVerify || ops[0].State != catalog.Succeeded ||
		ops[0].SnapshotID != string(e.ID) || ops[0].Location != "disk" {
		t.Errorf("operations: %+v", ops)
	}
	s.Stop()
	s.Drain()
	if n := recordedChecks(t, root); n != 1 {
		t.Errorf("%d checks", n)
	}
	if state.LastOperation != ops[0].ID {
		t.Errorf("state: %+v", state)
	}
}
