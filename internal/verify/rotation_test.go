package verify

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// pass verifies a subset of what the snapshots of the source of the fixture name.
func (f *fixture) pass(subset store.Subset, known ...store.Key) *PassResult {
	f.t.Helper()
	list, err := f.store.ListedSnapshots(f.t.Context(), "")
	if err != nil || len(list) == 0 {
		f.t.Fatal(list, err)
	}
	r, err := Pass(f.t.Context(), PassOptions{Store: f.store, Source: list[0].Key.Source,
		Subset: subset, Known: known})
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// onlyOlder returns a pack that e names and newest does not.
func (f *fixture) onlyOlder(e, newest store.Signed) store.Key {
	f.t.Helper()
	older, err := f.store.GetTree(f.t.Context(), e.Tree)
	if err != nil {
		f.t.Fatal(err)
	}
	tree, err := f.store.GetTree(f.t.Context(), newest.Tree)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, pack := range older.Packs {
		if !slices.Contains(tree.Packs, pack) {
			return pack
		}
	}
	f.t.Fatal("the newest snapshot names all packs of the older one")
	return ""
}

// TestPassesOfACycleFindDamageThatOnlyOlderSnapshotsNeed: the verify of the newest snapshot, at
// any level, does not.
func TestPassesOfACycleFindDamageThatOnlyOlderSnapshotsNeed(t *testing.T) {
	f := newFixture(t)
	older := f.take()
	f.source.Change()
	newest := f.takeFull()
	pack := f.onlyOlder(older, newest)
	file := filepath.Join(f.root, string(pack))
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rotten := slices.Clone(content)
	rotten[len(rotten)/2] ^= 1
	f.write(file, rotten)
	if r := f.run(f.options(newest, store.LevelFull)); r.Err() != nil {
		t.Fatalf("the newest snapshot is not whole: %v", r.Err())
	}
	const of = 5
	read, keys := 0, 0
	found := map[int]*PassResult{}
	for part := 1; part <= of; part++ {
		r := f.pass(store.Subset{Part: part, Of: of})
		read, keys = read+r.Read, r.Keys
		if r.Err() != nil {
			found[part] = r
		}
	}
	if read != keys || keys == 0 {
		t.Errorf("a cycle read %d of %d keys", read, keys)
	}
	if len(found) != 1 {
		t.Fatalf("damage found in parts %v", slices.Collect(maps.Keys(found)))
	}
	for part, r := range found {
		if !(store.Subset{Part: part, Of: of}).Contains(pack) || !slices.Equal(r.Damaged,
			[]store.Key{pack}) || codes(r.Findings) != "error damaged" {
			t.Errorf("part %d found %v, %v", part, r.Damaged, r.Findings)
		}
		if text := r.Findings[0].Message; !strings.Contains(text, string(older.ID)) ||
			strings.Contains(text, string(newest.ID)) {
			t.Errorf("the finding does not name the snapshot that needs the pack: %s", text)
		}
		// It is found in the next pass again, and repaired there.
		other := store.Subset{Part: part%of + 1, Of: of}
		if again := f.pass(other, r.Damaged...); len(again.Damaged) != 1 {
			t.Errorf("the next pass forgets the damage: %+v", again)
		}
		f.write(file, content)
		if again := f.pass(other, r.Damaged...); again.Err() != nil {
			t.Errorf("after the repair: %v", again.Err())
		}
	}
}

// TestEachPassFindsWhatIsMissingOrEmpty: in any subset, since it is listed.
func TestEachPassFindsWhatIsMissingOrEmpty(t *testing.T) {
	f := newFixture(t)
	older := f.take()
	f.source.Change()
	pack := f.onlyOlder(older, f.takeFull())
	file := filepath.Join(f.root, string(pack))
	for _, c := range []struct {
		name   string
		damage func() error
		code   object.Code
	}{
		{"empty", func() error { return os.Truncate(file, 0) }, object.CodeDamaged},
		{"missing", func() error { return os.Remove(file) }, object.CodeMissing},
	} {
		if err := c.damage(); err != nil {
			t.Fatal(err)
		}
		for part := 1; part <= 3; part++ {
			r := f.pass(store.Subset{Part: part, Of: 3})
			if len(r.Findings) != 1 || r.Findings[0].Code != c.code || r.Count != 1 {
				t.Errorf("%s, part %d: %v", c.name, part, r.Findings)
			}
		}
	}
}

// TestAPassReportsADamagedTreeAndEnvelope: what they name is not known, and they are damage.
func TestAPassReportsADamagedTreeAndEnvelope(t *testing.T) {
	f := newFixture(t)
	older := f.take()
	f.source.Change()
	f.takeFull()
	f.write(filepath.Join(f.root, string(older.Tree)), []byte("rotten"))
	r := f.pass(store.Subset{Part: 1, Of: 1})
	if codes(r.Findings) != "error damaged" || !strings.Contains(r.Findings[0].Message,
		string(older.ID)) {
		t.Errorf("tree: %v", r.Findings)
	}
	f.write(filepath.Join(f.root, older.Key().String()), []byte("rotten"))
	r = f.pass(store.Subset{Part: 1, Of: 1})
	if codes(r.Findings) != "error damaged" || r.Count != 1 || !strings.Contains(
		r.Findings[0].Message, older.Key().String()) {
		t.Errorf("envelope: %v", r.Findings)
	}
}

// takeFull takes a snapshot that names nothing of the ones before.
func (f *fixture) takeFull() store.Signed {
	f.t.Helper()
	list, err := f.store.ListedSnapshots(f.t.Context(), "")
	if err != nil || len(list) == 0 {
		f.t.Fatal(list, err)
	}
	if err := f.catalog.ForgetSnapshotState(f.t.Context(), f.store.ID(),
		list[0].Key.Source); err != nil {
		f.t.Fatal(err)
	}
	return f.take()
}

// write overwrites a file of the store, whatever its mode.
func (f *fixture) write(file string, data []byte) {
	f.t.Helper()
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		f.t.Fatal(err)
	}
}
