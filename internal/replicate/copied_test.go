package replicate

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// TestANumberThatTheCopyOnceHadIsNeverExplained: somebody takes snapshots out of the copy that the
// origin removes later. A prune of the copy removes nothing that they name, and where the storage
// has versions, they can be brought back.
func TestANumberThatTheCopyOnceHadIsNeverExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		take      func(p *pair, e store.Signed)
		versioned bool
	}{
		"hidden": {func(p *pair, e store.Signed) { p.to.Hide(e.Key().String()) }, true},
		"hidden with the record that it was copied": {func(p *pair, e store.Signed) {
			p.to.Hide(e.Key().String())
			for _, key := range p.to.Keys("copied/") {
				if strings.Contains(key, string(e.ID)) {
					p.to.Hide(key)
				}
			}
		}, true},
		"written over": {func(p *pair, e store.Signed) {
			p.to.Forget(e.Key().String())
			p.to.Overwrite(e.Key().String(), []byte("junk"))
		}, false},
		"gone": {func(p *pair, e store.Signed) { p.to.Forget(e.Key().String()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, true)
			list := p.hourly(t, sourceA, 6)
			p.copy(t)
			for _, e := range list[1:3] {
				tt.take(p, e)
			}
			p.pass(24 * time.Hour)
			if _, err := p.prune(t.Context(), p.from, 1); err != nil {
				t.Fatal(err)
			}
			p.copy(t)
			packs := len(p.to.Keys("packs/"))
			p.pass(24 * time.Hour)
			if _, err := p.prune(t.Context(), p.to, 100); !isBlocked(err) {
				t.Errorf("a prune of the copy: %v", err)
			}
			if left := len(p.to.Keys("packs/")); left != packs {
				t.Errorf("%d of %d packs are left", left, packs)
			}
			st := p.opened(t, p.to)
			pruned, err := st.Pruned(t.Context())
			if err != nil || pruned.Explains(sourceA, 2) || pruned.Explains(sourceA, 3) {
				t.Errorf("records of the copy: %+v, %v", pruned.Removed, err)
			}
			if !tt.versioned {
				return
			}
			plan, err := st.PlanRepair(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := st.RunRepair(t.Context(), plan, func(store.Repair) error { return nil }); err != nil {
				t.Error(err)
			}
			if got := p.whole(t, p.to); got != "a1 a2 a3 a4 a5 a6" {
				t.Errorf("after a repair the copy has %s", got)
			}
		})
	}
}

// TestASnapshotThatIsHiddenInTheCopyComesAgain while the origin has it.
func TestASnapshotThatIsHiddenInTheCopyComesAgain(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 3)
	p.copy(t)
	p.to.Hide(list[1].Key().String())
	if r := p.copy(t); len(r.Copied) != 1 || len(r.Findings) > 0 {
		t.Errorf("%s, %v", r, r.Findings)
	}
	if got := p.whole(t, p.to); got != "a1 a2 a3" {
		t.Errorf("the copy has %s", got)
	}
}

// TestACopyOfAnEarlierVersionExplainsNothing: nobody knows what it once had.
func TestACopyOfAnEarlierVersionExplainsNothing(t *testing.T) {
	p := newPair(t, false) // its mgmtd.json has no signature that the change breaks
	list := p.hourly(t, sourceA, 3)
	p.copy(t)
	marker := read(t, p.to, "mgmtd.json")
	earlier := strings.Replace(marker, `,\"recordsCopied\":true`, "", 1)
	if earlier == marker {
		t.Fatal(marker)
	}
	p.to.Overwrite("mgmtd.json", []byte(earlier))
	for _, key := range append(p.to.Keys("copied/"), list[1].Key().String()) {
		p.to.Forget(key)
	}
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.from, 1); err != nil {
		t.Fatal(err)
	}
	r := p.copy(t)
	if r.Explained || len(r.Findings) != 1 || r.Findings[0].Code != object.CodeSnapshotMissing {
		t.Errorf("%s, %v", r, r.Findings)
	}
}

// blind is a versioned bucket whose versions may not be listed.
type blind struct{ *faultbucket.Versioned }

func (b blind) ListVersions(context.Context, string, func(string, []bucket.Version) error) error {
	return &bucket.Error{Op: "list versions", Class: bucket.ErrDenied}
}

// TestWithoutTheRightToListVersionsNothingIsExplained: a record that somebody hides would not be
// seen.
func TestWithoutTheRightToListVersionsNothingIsExplained(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 3)
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.from, 1); err != nil {
		t.Fatal(err)
	}
	r, err := p.copyBetween(t.Context(), p.from, blind{p.to}, nil)
	if err != nil || r.Explained || len(r.Findings) != 1 ||
		r.Findings[0].Code != object.CodeSnapshotMissing {
		t.Errorf("%s, %v, %v", r, r.Findings, err)
	}
	if r := p.copy(t); !r.Explained || len(r.Findings) > 0 {
		t.Errorf("with the right: %s, %v", r, r.Findings)
	}
}

// TestANumberThatCannotBeReadIsThere: an envelope in the copy that says nothing, and of which there
// is no record, may have any number.
func TestANumberThatCannotBeReadIsThere(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 3)
	p.hourly(t, sourceB, 2)
	if _, err := store.OpenCopy(t.Context(), p.options(p.to), p.origin(t)); err != nil {
		t.Fatal(err)
	}
	p.to.Overwrite(list[0].Key().String(), []byte("junk"))
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.from, 1); err != nil {
		t.Fatal(err)
	}
	p.copy(t)
	pruned, err := p.opened(t, p.to).Pruned(t.Context())
	if err != nil || pruned.Explains(sourceA, 1) || pruned.Explains(sourceA, 2) ||
		!pruned.Explains(sourceB, 1) {
		t.Errorf("%+v, %v", pruned.Removed, err)
	}
}

// TestARunThatDiesBeforeTheEnvelopeHasCopiedNothing: the record that the snapshot came is there,
// and the next run brings it.
func TestARunThatDiesBeforeTheEnvelopeHasCopiedNothing(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 1)
	p.interrupted(t)
	if keys := p.to.Keys("copied/"); len(keys) != 1 {
		t.Fatalf("records %v", keys)
	}
	if r := p.copy(t); len(r.Copied) != 1 || len(r.Findings) > 0 {
		t.Errorf("%s, %v", r, r.Findings)
	}
}

// TestAPruneThatCannotReadTheRecordOfARunTakesNothingFromIt: somebody writes over the record right
// before the envelope comes. The run uses what an interrupted one left, which only the record
// protects.
func TestAPruneThatCannotReadTheRecordOfARunTakesNothingFromIt(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(p *pair, key string)
		blocks bool
		copied int
	}{
		"an older version is read": {func(p *pair, key string) {
			p.to.Overwrite(key, []byte("junk"))
		}, false, 1},
		"there is no other version": {func(p *pair, key string) {
			p.to.Forget(key)
			p.to.Overwrite(key, []byte("junk"))
		}, true, 1},
		"it is hidden": {func(p *pair, key string) { p.to.Hide(key) }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, true)
			p.hourly(t, sourceA, 1)
			p.interrupted(t)
			p.pass(24 * time.Hour)
			spoiled := false
			var mu sync.Mutex // several keys are asked for at once
			h := &hooked{Bucket: p.to, before: func(op, key string) error {
				mu.Lock()
				defer mu.Unlock()
				if !strings.HasPrefix(op+" "+key, "stat packs/") || spoiled {
					return nil
				}
				spoiled = true
				for _, key := range p.to.Keys("copying/") {
					tt.spoil(p, key)
				}
				if _, err := p.prune(t.Context(), p.to, 1); isBlocked(err) != tt.blocks {
					t.Errorf("the prune: %v", err)
				}
				return nil
			}}
			r, err := p.copyBetween(t.Context(), p.from, h, nil)
			if err != nil || len(r.Copied) != tt.copied || !spoiled {
				t.Errorf("%v, %v", r, err)
			}
			p.whole(t, p.to)
			if r := p.copy(t); len(r.Copied) != 1-tt.copied {
				t.Errorf("the next run: %s, %v", r, r.Findings)
			}
			if got := p.whole(t, p.to); got != "a1" {
				t.Errorf("the copy has %s", got)
			}
			if !tt.blocks {
				return
			}
			p.pass(store.CopyingExpiry)
			if _, err := p.prune(t.Context(), p.to, 1); err != nil {
				t.Errorf("a prune when the record has expired: %v", err)
			}
			if left := p.to.Keys("copying/"); len(left) > 0 {
				t.Errorf("records %v", left)
			}
		})
	}
}

// TestContentThatGoesMeanwhileIsCopiedLater: the envelope does not come without it.
func TestContentThatGoesMeanwhileIsCopiedLater(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 1)
	p.copy(t)
	pack := p.to.Keys("packs/")[0]
	p.hourly(t, sourceA, 1) // names it, too
	h := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op == "put" && strings.HasPrefix(key, "packs/") {
			p.to.Forget(pack)
		}
		return nil
	}}
	r, err := p.copyBetween(t.Context(), p.from, h, nil)
	if err != nil || len(r.Copied) > 0 || len(r.Findings) != 1 ||
		r.Findings[0].Code != object.CodeCopyWaits {
		t.Fatalf("%s, %v, %v", r, r.Findings, err)
	}
	if r := p.copy(t); len(r.Copied) != 1 {
		t.Errorf("the next run: %s, %v", r, r.Findings)
	}
	p.whole(t, p.to)
}

// TestASnapshotThatIsDamagedInTheOriginLeavesNoRecords: each run tries it again.
func TestASnapshotThatIsDamagedInTheOriginLeavesNoRecords(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 2)
	tree, err := p.origin(t).GetTree(t.Context(), list[0].Tree)
	if err != nil {
		t.Fatal(err)
	}
	p.from.Forget(string(tree.Shards[0]))
	for range 3 {
		p.pass(time.Hour)
		if r := p.copy(t); r.Missing != 1 {
			t.Errorf("%s", r)
		}
	}
	if left := p.to.Keys("copying/"); len(left) > 0 {
		t.Errorf("records %v", left)
	}
}

// TestALongBatchRetainsWhatItBroughtOnceMore: a later snapshot of the batch names it, too.
func TestALongBatchRetainsWhatItBroughtOnceMore(t *testing.T) {
	p := newPair(t, true)
	p.to.RetainFor = 30 * 24 * time.Hour
	list := p.hourly(t, sourceA, 2)
	slow := &waiting{Versioned: p.to, before: func(key string) {
		if key == list[0].Key().String() {
			p.pass(retainAgain + time.Minute)
		}
	}}
	if r, err := p.copyBetween(t.Context(), p.from, slow, nil); err != nil || len(r.Copied) != 2 {
		t.Fatalf("%s, %v", r, err)
	}
	tree, err := p.opened(t, p.to).GetTree(t.Context(), list[1].Tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range tree.Packs {
		until, err := p.to.RetainedUntil(t.Context(), string(key), key.SHA256())
		if least := p.time().Add(p.to.RetainFor); err != nil || until.Before(least) {
			t.Errorf("%s is retained until %s, want %s: %v", key, until, least, err)
		}
	}
}

// waiting is a versioned bucket that calls a function before each Put.
type waiting struct {
	*faultbucket.Versioned
	before func(key string)
}

func (w *waiting) Put(ctx context.Context, key string, data []byte) error {
	w.before(key)
	return w.Versioned.Put(ctx, key, data)
}
