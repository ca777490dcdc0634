package snapshot_test

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestEveryEarlierStoreIsContinuedAndPruned takes a snapshot into a copy of each earlier store, and
// prunes it: the numbers go on, the chain is whole, and what the rules and pins retain can be read.
// Of each scope the newest stays. No rule removes a partial snapshot whose scope nobody wrote: that
// goes by its ttl or by hand.
func TestEveryEarlierStoreIsContinuedAndPruned(t *testing.T) {
	files, err := filepath.Glob("testdata/stores/*.json")
	if err != nil || len(files) < 6 {
		t.Fatalf("stores %q, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), name)
			if err := os.CopyFS(root, os.DirFS(strings.TrimSuffix(file, ".json"))); err != nil {
				t.Fatal(err)
			}
			continueStore(t, root, strings.HasSuffix(name, "-plain"))
		})
	}
}

func continueStore(t *testing.T, root string, plain bool) {
	t.Helper()
	ctx := t.Context()
	m := newStoreMaker(t, root, plain)
	m.now = m.now.Add(30 * time.Hour)
	st := m.open(true)
	keys, err := st.Snapshots(ctx, "")
	if err != nil || len(keys) < 2 {
		t.Fatalf("%v, %v", keys, err)
	}
	newest, passed, err := st.Newest(ctx, keys[0].Source, store.Which{})
	if err != nil || newest == nil {
		t.Fatal(newest, passed, err)
	}
	before := readEnvelopes(t, st, keys)
	now := m.snapshot(st, readRecorded(t, "1.jsonl", "4999"), 0)
	if now.Sequence != newest.Sequence+1 || now.Parent == nil || now.Parent.SHA256 != newest.SHA256 {
		t.Errorf("number %d after %d, parent %+v", now.Sequence, newest.Sequence, now.Parent)
	}
	makeOld(t, root)
	pins, err := st.Pins(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	o := retention.Options{Store: st, Policy: retention.Policy{Last: 1}}
	plan, err := retention.NewPlan(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := retention.Execute(ctx, o, plan); err != nil {
		t.Fatal(err)
	}
	left, err := st.Snapshots(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	there := map[store.EnvelopeKey]bool{}
	for _, key := range left {
		there[key] = true
		e, err := st.GetEnvelope(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if report, err := st.VerifyStructure(ctx, e.Envelope, nil); err != nil ||
			len(report.Findings) > 0 {
			t.Errorf("%s: %v, %v", key, report.Findings, err)
		}
	}
	for key := range pins {
		if !there[key] {
			t.Errorf("%s was pinned and is gone", key)
		}
	}
	if !there[now.Key()] || len(left) == len(keys)+1 {
		t.Errorf("%d of %d snapshots are left, the newest: %v", len(left), len(keys)+1,
			there[now.Key()])
	}
	newestOf := map[string]store.Signed{}
	for _, e := range before {
		if scope := e.ScopeID(); scope != "" {
			newestOf[scope] = e
		} else if goes := !e.Expires.IsZero(); there[e.Key()] == goes {
			t.Errorf("%s has no scope and expires %v; it is there: %v", e.ID, e.Expires,
				there[e.Key()])
		} else if !goes {
			newestOf[scope] = e
		}
	}
	for scope, e := range newestOf {
		if scope != store.ScopeWhole && !there[e.Key()] {
			t.Errorf("the newest snapshot of scope %q is gone", scope)
		}
	}
	deleteByHand(t, st, before, newestOf[""])
	tree, err := st.GetTree(ctx, now.Tree)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, string(tree.Packs[0]))); errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// readEnvelopes reads envelopes, in the order of their numbers.
func readEnvelopes(t *testing.T, st *store.Store, keys []store.EnvelopeKey) []store.Signed {
	t.Helper()
	var list []store.Signed
	for _, key := range keys {
		e, err := st.GetEnvelope(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b store.Signed) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return list
}

// deleteByHand deletes the partial snapshots without a scope and a ttl that are not the newest.
func deleteByHand(t *testing.T, st *store.Store, list []store.Signed, newest store.Signed) {
	t.Helper()
	for _, e := range list {
		if e.ScopeID() != "" || !e.Expires.IsZero() || e.ID == newest.ID {
			continue
		}
		o := retention.Options{Store: st, Delete: []store.EnvelopeKey{e.Key()}}
		plan, err := retention.NewPlan(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := retention.Execute(t.Context(), o, plan); err != nil || len(r.Removed) != 1 {
			t.Errorf("delete %s by hand: %+v, %v", e.ID, r, err)
		}
	}
}
