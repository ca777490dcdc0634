package snapshot_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestEveryEarlierStoreIsContinuedAndPruned takes a snapshot into a copy of each earlier store, and
// prunes it: the numbers go on, the chain is whole, and what the rules and pins retain can be read.
func TestEveryEarlierStoreIsContinuedAndPruned(t *testing.T) {
	files, err := filepath.Glob("testdata/stores/*.json")
	if err != nil || len(files) < 4 {
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
	tree, err := st.GetTree(ctx, now.Tree)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, string(tree.Packs[0]))); errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
