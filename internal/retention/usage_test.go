package retention

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

func measured(t *testing.T, st *store.Store) *Usage {
	t.Helper()
	u, err := Measure(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// sum adds up what is stored of some classes; of all without any.
func sum(a Amounts, classes ...store.Class) (total Amount) {
	for class, n := range a {
		for i := range max(1, len(classes)) {
			if len(classes) == 0 || classes[i] == class {
				total.Keys, total.Bytes = total.Keys+n.Keys, total.Bytes+n.Bytes
			}
		}
	}
	return total
}

// TestMeasureCountsEachKeyOnce: what is stored for the sources, what no snapshot names and what
// belongs to no source are all that is in the bucket.
func TestMeasureCountsEachKeyOnce(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	first := w.hourly(t, b, 3)[0]
	other := &taker{st: st, source: sourceB}
	other.hourly(t, b, 1)
	b.pass(time.Hour)
	unnamed := contents(t, st)
	other.take(t, b.time(), func(e *store.Envelope) { e.Tree = first.Tree })
	unnamed = contents(t, st) - unnamed // its own content, which its envelope does not name
	scope := store.ScopeOf(sourceA, []string{"team"}, "", "nightly")
	b.pass(24 * time.Hour)
	w.take(t, b.time(), func(e *store.Envelope) { e.Partial, e.Scope = true, &scope })
	if err := b.Put(t.Context(), "owners/x.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	u := measured(t, st)

	var keys, bytes int64
	if err := b.List(t.Context(), "", func(i bucket.Info) error {
		keys, bytes = keys+1, bytes+i.Size
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if all := sum(u.Stored); all.Keys != keys || all.Bytes != bytes {
		t.Errorf("stored %v, the bucket has %d keys of %d bytes", all, keys, bytes)
	}
	if u.Unnamed.Keys != int64(unnamed) || unnamed != 3 {
		t.Errorf("unnamed %v, want %d keys", u.Unnamed, unnamed)
	}
	a, o := u.Sources[0], u.Sources[1]
	parts := sum(a.Stored).Keys + sum(o.Stored).Keys + u.Unnamed.Keys + u.SeveralSources.Keys +
		sum(u.Stored, store.ClassOwner, store.ClassOther).Keys
	if parts != keys {
		t.Errorf("the parts have %d keys of %d", parts, keys)
	}
	if a.UID != sourceA || a.Name != "m" || a.Snapshots != 4 || o.Snapshots != 2 ||
		len(u.Findings) != 0 {
		t.Errorf("sources %+v, %+v, findings %v", a, o, u.Findings)
	}
	if len(a.Scopes) != 2 || a.Scopes[0].ID != store.ScopeWhole || a.Scopes[0].Snapshots != 3 ||
		a.Scopes[1].Schedule != "nightly" || a.Scopes[1].Snapshots != 1 {
		t.Errorf("scopes %+v", a.Scopes)
	}
	// Each snapshot names the pack and the shard of the one before. The other source names the tree of
	// the first one, with its pack and its shard.
	if a.Shared.Keys != 4 || u.SeveralSources.Keys != 3 {
		t.Errorf("shared %v, of several sources %v", a.Shared, u.SeveralSources)
	}
	if len(u.Days) != 2 || u.Days[0].Day != "2026-03-02" || u.Days[0].Written.Keys+
		u.Days[1].Written.Keys != keys {
		t.Errorf("days %+v", u.Days)
	}
}

// TestMeasureAloneIsWhatADeletionFrees: what no snapshot names any more after a removal is what was
// said before.
func TestMeasureAloneIsWhatADeletionFrees(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	list := w.hourly(t, b, 4)
	// two snapshots of one tree: neither frees anything but its envelope
	same := w.take(t, b.time().Add(time.Second), func(e *store.Envelope) { e.Tree = list[3].Tree })
	other := (&taker{st: st, source: sourceB}).take(t, b.time(), nil)
	u := measured(t, st)
	for i, s := range u.Snapshots {
		want := int64(2) // envelope and tree: its pack and its shard are named by the next one, too
		switch s.Key {
		case same.Key(), list[3].Key():
			want = 1
		case other.Key():
			want = 4
		}
		if s.Alone.Keys != want {
			t.Errorf("snapshot %d: alone %v, want %d keys", i, s.Alone, want)
		}
	}
	for _, gone := range []store.EnvelopeKey{list[1].Key(), other.Key()} {
		before := measured(t, st)
		at := slices.IndexFunc(before.Snapshots, func(s SnapshotUsage) bool { return s.Key == gone })
		if err := st.RemoveSnapshot(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		after := measured(t, st)
		freed := before.Snapshots[at].Size + after.Unnamed.Bytes - before.Unnamed.Bytes
		if alone := before.Snapshots[at].Alone.Bytes; freed != alone {
			t.Errorf("the removal of %s frees %d bytes, %d were said", gone, freed, alone)
		}
	}
}

// TestMeasureReportsWhatCannotBeRead: a damaged envelope and a tree that is gone are findings, and
// everything else is counted.
func TestMeasureReportsWhatCannotBeRead(t *testing.T) {
	spoil := map[string]func(b *clocked, envelope, tree string) error{
		"damaged and gone": func(b *clocked, envelope, tree string) error {
			return errors.Join(os.WriteFile(filepath.Join(b.String(), envelope), []byte("{"), 0o600),
				os.Remove(filepath.Join(b.String(), tree)))
		},
	}
	for name, with := range faultbucket.Refusals {
		spoil[name] = func(b *clocked, envelope, tree string) error {
			b.refuse(with, envelope)
			b.refuse(with, tree)
			return nil
		}
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) { testMeasureReports(t, spoil) })
	}
}

func testMeasureReports(t *testing.T, spoil func(b *clocked, envelope, tree string) error) {
	b := newClocked(t)
	st := openPlain(t, b)
	list := (&taker{st: st, source: sourceA}).hourly(t, b, 3)
	if err := spoil(b, list[0].Key().String(), string(list[2].Tree)); err != nil {
		t.Fatal(err)
	}
	u := measured(t, st)
	if len(u.Findings) != 2 || u.Sources[0].Unreadable != 2 || u.Sources[0].Snapshots != 3 {
		t.Fatalf("findings %v, source %+v", u.Findings, u.Sources[0])
	}
	for i, s := range []store.Signed{list[0], list[2]} {
		f := u.Findings[i]
		if f.Code != object.CodeEnvelopeUnreadable || !strings.HasPrefix(f.Message, s.Key().String()) ||
			f.Hint == "" {
			t.Errorf("finding %v", f)
		}
	}
	if u.Unnamed.Keys == 0 || sum(u.Sources[0].Stored, store.ClassPack).Keys != 2 {
		t.Errorf("unnamed %v, source %v", u.Unnamed, u.Sources[0].Stored)
	}
}

// TestMeasureFailsWhereTheStoreDoes: numbers of half a listing would be wrong.
func TestMeasureFailsWhereTheStoreDoes(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	(&taker{st: st, source: sourceA}).hourly(t, b, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if u, err := Measure(ctx, st); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", u, err)
	}
}
