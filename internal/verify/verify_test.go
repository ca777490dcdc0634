package verify

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// fixture is a plain store in a folder with snapshots of a source in memory, and a catalog.
type fixture struct {
	t       *testing.T
	root    string
	source  *snapshottest.Source
	catalog *catalog.Catalog
	store   *store.Store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, root: filepath.Join(t.TempDir(), "store"), source: snapshottest.New("prod", 1,
		2)}
	var err error
	f.catalog, err = catalog.Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"),
		catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.catalog.Close(); err != nil {
			t.Error(err)
		}
	})
	f.store, err = store.Open(t.Context(), store.Options{Bucket: directory.New(f.root), Plain: true,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// take takes a snapshot, and puts it into the index of the catalog.
func (f *fixture) take() store.Signed {
	f.t.Helper()
	taken, err := snapshot.Create(f.t.Context(), f.source.Options(f.store))
	if err == nil {
		err = f.catalog.PutSnapshot(f.t.Context(), catalog.RecordOf(taken.Signed))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.source.Change()
	return taken.Signed
}

func (f *fixture) options(e store.Signed, level store.VerifyLevel) Options {
	return Options{Store: f.store, Catalog: f.catalog, Snapshot: e, Level: level, Percent: 100,
		Writer: "test"}
}

func (f *fixture) run(o Options) *Result {
	f.t.Helper()
	r, err := Run(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// codes are the severities and codes of findings, without that of the missing signature.
func codes(findings []object.Finding) string {
	var list []string
	for _, f := range findings {
		if f.Code != object.CodeSignature {
			list = append(list, f.Severity.String()+" "+string(f.Code))
		}
	}
	return strings.Join(list, ", ")
}

// remove removes the first file that a pattern matches.
func (f *fixture) remove(pattern string) {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(f.root, pattern))
	if err != nil || len(files) == 0 {
		f.t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		f.t.Fatal(err)
	}
}

func TestEachLevelChecksWhatItsNameSays(t *testing.T) {
	f := newFixture(t)
	e := f.take()
	for level, want := range map[store.VerifyLevel]struct{ keys, objects bool }{
		store.LevelStructure: {keys: true},
		store.LevelSample:    {objects: true},
		store.LevelFull:      {keys: true, objects: true},
	} {
		r := f.run(f.options(e, level))
		v := r.Verification
		if r.Err() != nil || v.Outcome != store.OutcomeOK || v.Level != level || v.Time.IsZero() {
			t.Errorf("%s: %v, %+v", level, r.Err(), v)
		}
		if (v.Keys > 0) != want.keys || (v.Objects == e.Counts.Objects) != want.objects {
			t.Errorf("%s: %d keys and %d objects were checked", level, v.Keys, v.Objects)
		}
	}
}

// TestDamageIsFoundAtEveryLevel: a missing pack, shard or tree is damage at every level.
func TestDamageIsFoundAtEveryLevel(t *testing.T) {
	for _, pattern := range []string{"packs/*/*", "shards/*/*", "trees/*/*"} {
		for _, level := range []store.VerifyLevel{store.LevelStructure, store.LevelSample,
			store.LevelFull} {
			f := newFixture(t)
			e := f.take()
			f.remove(pattern)
			r := f.run(f.options(e, level))
			if _, damaged := errors.AsType[*DamagedError](r.Err()); !damaged ||
				r.Verification.Outcome != store.OutcomeDamaged || r.Verification.Findings < 1 ||
				len(r.Verification.First) < 1 {
				t.Errorf("%s, level %s: %v, %+v", pattern, level, r.Err(), r.Verification)
			}
		}
	}
}

// TestRecordedResultIsFoundByLookup: damage is recorded in the store, and makes the next snapshot a
// full one. A later good result of the same level replaces it.
func TestRecordedResultIsFoundByLookup(t *testing.T) {
	f := newFixture(t)
	e := f.take()
	lookup := func(c *catalog.Catalog) Known {
		t.Helper()
		keys, err := f.store.VerificationKeys(t.Context(), f.source.UID)
		if err != nil {
			t.Fatal(err)
		}
		k, err := Lookup(t.Context(), c, f.store, e, keys[e.Key().String()])
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if k := lookup(f.catalog); k.Verification != nil || k.Untrusted {
		t.Fatalf("before: %+v", k)
	}
	o := f.options(e, store.LevelStructure)
	if found, err := Record(t.Context(), o, f.run(o)); err != nil || len(found) > 0 {
		t.Fatal(found, err)
	}
	for name, c := range map[string]*catalog.Catalog{"store": nil, "both": f.catalog} {
		if k := lookup(c); k.Verification == nil || !k.Verification.OK {
			t.Errorf("%s: %+v", name, k)
		}
	}
	if whole, err := Whole(t.Context(), f.catalog, f.store); err != nil || !whole[e.Key()] {
		t.Errorf("whole: %v, %v", whole, err)
	}
	f.remove("packs/*/*")
	o.CatalogOnly = true
	if _, err := Record(t.Context(), o, f.run(o)); err != nil {
		t.Fatal(err)
	}
	if k := lookup(nil); k.Verification == nil || !k.Verification.OK {
		t.Errorf("the store has a result that was for the catalog only: %+v", k)
	}
	if k := lookup(f.catalog); k.Verification == nil || k.Verification.OK {
		t.Errorf("after the damage: %+v", k)
	}
	if whole, err := Whole(t.Context(), f.catalog, f.store); err != nil || len(whole) > 0 {
		t.Errorf("whole after the damage: %v, %v", whole, err)
	}
}

// TestMissingNeighboursAreFindings: a missing parent, and a newer snapshot that the catalog
// remembers and the store lacks, are reported, and the snapshot is whole all the same.
func TestMissingNeighboursAreFindings(t *testing.T) {
	f := newFixture(t)
	first, second, third := f.take(), f.take(), f.take()
	for _, hidden := range []store.Signed{first, third} {
		if err := os.Remove(filepath.Join(f.root, hidden.Key().String())); err != nil {
			t.Fatal(err)
		}
	}
	r := f.run(f.options(second, store.LevelStructure))
	if got := codes(r.Findings); got != "info chain, warning chain" || r.Err() != nil {
		t.Errorf("%s, %v", got, r.Err())
	}
}

// TestI8UntrustedSnapshotIsNotOpenedOrRecorded: nothing inside a snapshot is read or recorded
// when its signature is not accepted (invariant I8).
func TestI8UntrustedSnapshotIsNotOpenedOrRecorded(t *testing.T) {
	f := newFixture(t)
	e := f.take()
	o := f.options(e, store.LevelFull)
	o.Untrusted = errors.New("signed by an unknown key")
	r := f.run(o)
	if !errors.Is(r.Err(), o.Untrusted) || r.Verification.Outcome != "" ||
		r.Verification.Objects != 0 ||
		r.Verification.Level != store.LevelStructure {
		t.Errorf("%v, %+v", r.Err(), r.Verification)
	}
	if _, err := Record(t.Context(), o, r); err != nil {
		t.Fatal(err)
	}
	if keys, err := f.store.VerificationKeys(t.Context(), ""); err != nil || len(keys) > 0 {
		t.Errorf("recorded: %v, %v", keys, err)
	}
}

// TestSnapshotThatIsRemovedMeanwhileIsNotDamaged: keys that are missing because a prune removed the
// snapshot meanwhile are no damage.
func TestSnapshotThatIsRemovedMeanwhileIsNotDamaged(t *testing.T) {
	f := newFixture(t)
	e := f.take()
	o := f.options(e, store.LevelStructure)
	f.remove("packs/*/*")
	o.Progress = func(string, int64, int64) {
		if err := f.store.RemoveSnapshot(t.Context(), e.Key()); err != nil {
			t.Error(err)
		}
	}
	_, err := Run(t.Context(), o)
	if removed, ok := errors.AsType[*RemovedError](err); !ok || removed.Key != e.Key() {
		t.Errorf("%v, want a *RemovedError", err)
	}
}

func TestPercentIsForSamplesOnly(t *testing.T) {
	for _, tt := range []struct {
		level store.VerifyLevel
		in    int
		want  int // 0 for an error
	}{
		{store.LevelStructure, 0, 100}, {store.LevelFull, 0, 100}, {store.LevelFull, 50, 0},
		{store.LevelSample, 0, snapshot.DefaultSample}, {store.LevelSample, 25, 25},
		{store.LevelSample, 101, 0}, {store.LevelSample, -1, 0},
	} {
		got, err := Percent(tt.level, tt.in)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("%s %d: %d, %v", tt.level, tt.in, got, err)
		}
	}
}

// TestADeletedResultIsKnownToTheHostThatRecordedIt: who deletes a result "damaged" from the store
// does not make the snapshot whole again for the host that found it.
func TestADeletedResultIsKnownToTheHostThatRecordedIt(t *testing.T) {
	f := newFixture(t)
	e := f.take()
	o := f.options(e, store.LevelStructure)
	if _, err := Record(t.Context(), o, f.run(o)); err != nil {
		t.Fatal(err)
	}
	before, err := filepath.Glob(filepath.Join(f.root, "checks/*/*/*"))
	if err != nil || len(before) != 1 {
		t.Fatal(before, err)
	}
	f.remove("packs/*/*")
	if _, err := Record(t.Context(), o, f.run(o)); err != nil {
		t.Fatal(err)
	}
	after, err := filepath.Glob(filepath.Join(f.root, "checks/*/*/*"))
	if err != nil || len(after) != 2 {
		t.Fatal(after, err)
	}
	for _, file := range after {
		if file != before[0] {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	keys, err := f.store.VerificationKeys(t.Context(), f.source.UID)
	if err != nil {
		t.Fatal(err)
	}
	k, err := Lookup(t.Context(), f.catalog, f.store, e, keys[e.Key().String()])
	if err != nil || k.Verification == nil || k.Verification.OK {
		t.Errorf("%+v, %v", k.Verification, err)
	}
	if whole, err := Whole(t.Context(), f.catalog, f.store); err != nil || len(whole) > 0 {
		t.Errorf("whole: %v, %v", whole, err)
	}
}
