package replicate

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
)

var errDied = errors.New("died")

// interrupted makes a run die at its first envelope, so that its content stays behind.
func (p *pair) interrupted(t *testing.T) {
	t.Helper()
	h := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op == "put" && strings.HasPrefix(key, "snapshots/") {
			return errDied
		}
		return nil
	}}
	if _, err := p.copyBetween(t.Context(), p.from, h, nil); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
}

// TestPruneLeavesWhatAnInterruptedCopyBrought: the record of the run protects its content, though
// no snapshot names it and it is older than the grace. After a week it does not.
func TestPruneLeavesWhatAnInterruptedCopyBrought(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 1)
	p.interrupted(t)
	brought := len(p.to.Keys("packs/"))
	p.pass(3 * 24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 1); err != nil {
		t.Fatal(err)
	}
	if n := len(p.to.Keys("packs/")); n != brought || n == 0 {
		t.Fatalf("%d of %d packs are left", n, brought)
	}
	if r := p.copy(t); r.Keys > 0 || len(r.Copied) != 1 {
		t.Errorf("the next run: %s, %v", r, r.Findings)
	}
	p.whole(t, p.to)
	if left := p.to.Keys("copying/"); len(left) != 1 {
		t.Errorf("records %v", left) // that of the interrupted run
	}
	p.hourly(t, sourceA, 1)
	p.interrupted(t)
	p.pass(8 * 24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 1); err != nil {
		t.Fatal(err)
	}
	if packs, left := p.to.Keys("packs/"), p.to.Keys("copying/"); len(packs) != 1 || len(left) > 0 {
		t.Errorf("after a week there are packs %v, records %v", packs, left)
	}
}

// TestPruneInTheMiddleOfACopyTakesNothingFromIt: a prune removes the snapshot whose content the run
// uses again, right after the run has found that content, or right before.
func TestPruneInTheMiddleOfACopyTakesNothingFromIt(t *testing.T) {
	for _, when := range []string{"put copying/", "list packs/", "list snapshots/", "stat trees/",
		"put shards/", "put snapshots/"} {
		t.Run(when, func(t *testing.T) {
			p := newPair(t, true)
			p.hourly(t, sourceA, 2)
			p.copy(t)
			p.pass(24 * time.Hour)
			p.hourly(t, sourceA, 1) // names the pack of number 2
			pruned := 0
			h := &hooked{Bucket: p.to}
			h.before = func(op, key string) error {
				if !strings.HasPrefix(op+" "+key, when) || pruned > 0 {
					return nil
				}
				pruned++
				st := p.opened(t, p.to)
				keys, err := st.Snapshots(t.Context(), "")
				if err != nil {
					t.Error(err)
				}
				for _, key := range keys { // as a prune would once they are old
					if err := st.RemoveSnapshot(t.Context(), key); err != nil {
						t.Error(err)
					}
				}
				if _, err := p.prune(t.Context(), p.to, 1); err != nil && !isBlocked(err) {
					t.Error(err)
				}
				return nil
			}
			r, err := p.copyBetween(t.Context(), p.from, h, nil)
			if err != nil || pruned != 1 {
				t.Fatalf("%v, %d prunes", err, pruned)
			}
			p.whole(t, p.to)
			for _, f := range r.Findings {
				if f.Code != object.CodeCopyWaits {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestACopyWaitsForAPruneThatMayRemoveWhatItUses: content that a removed snapshot left behind is
// not used while a prune may be about to remove it.
func TestACopyWaitsForAPruneThatMayRemoveWhatItUses(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 2)
	p.copy(t)
	p.pass(store.MaxRun + time.Minute)
	st := p.opened(t, p.to)
	if err := st.RemoveSnapshot(t.Context(), list[1].Key()); err != nil {
		t.Fatal(err)
	}
	r := p.copy(t)
	if len(r.Copied) > 0 || r.Missing != 1 || len(r.Findings) != 1 ||
		r.Findings[0].Code != object.CodeCopyWaits {
		t.Fatalf("at once: %s, %v", r, r.Findings)
	}
	p.pass(retention.SweepEnds - time.Minute)
	if r := p.copy(t); len(r.Copied) > 0 {
		t.Fatalf("too early: %s", r)
	}
	p.pass(time.Minute)
	if r := p.copy(t); len(r.Copied) != 1 || r.Keys > 0 {
		t.Errorf("after the prune must have ended: %s, %v", r, r.Findings)
	}
	p.whole(t, p.to)
}

// TestACopyUsesYoungContentAtOnce: no prune removes it.
func TestACopyUsesYoungContentAtOnce(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 1)
	p.copy(t)
	p.pass(store.MaxRun - time.Minute)
	if err := p.opened(t, p.to).RemoveSnapshot(t.Context(), list[0].Key()); err != nil {
		t.Fatal(err)
	}
	if r := p.copy(t); len(r.Copied) != 1 || r.Keys > 0 {
		t.Errorf("%s, %v", r, r.Findings)
	}
}

// TestTheRecordOfARunIsNotReliedUponNearItsEnd: a prune ignores it after a week, by its own clock.
func TestTheRecordOfARunIsNotReliedUponNearItsEnd(t *testing.T) {
	for pause, copied := range map[time.Duration]int{
		store.CopyingExpiry - recordMargin: 1, store.CopyingExpiry - recordMargin + time.Minute: 0} {
		p := newPair(t, true)
		p.hourly(t, sourceA, 1)
		p.interrupted(t)
		p.pass(pause)
		if r := p.copy(t); len(r.Copied) != copied || r.Missing != 1-copied {
			t.Errorf("after %s: %s, %v", pause, r, r.Findings)
		}
	}
}

// TestARunEndsBeforeItsRecordDoes: a run of a week is interrupted, and continues with a new record.
func TestARunEndsBeforeItsRecordDoes(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 2)
	slow := &hooked{Bucket: p.to}
	slow.before = func(op, key string) error {
		if op == "put" && strings.HasPrefix(key, "snapshots/") {
			p.pass(store.CopyingExpiry)
		}
		return nil
	}
	r, err := p.copyBetween(t.Context(), p.from, slow, nil)
	if err == nil || len(r.Copied) != 1 {
		t.Fatalf("%s, %v", r, err)
	}
	p.copy(t) // what the first run left is too old to be relied upon
	p.pass(retention.SweepEnds)
	if r := p.copy(t); len(r.Copied) != 1 {
		t.Errorf("a later run: %s, %v", r, r.Findings)
	}
	p.whole(t, p.to)
}

// TestPruneBesideTheEndOfALongCopy: the run has brought its content hours ago. It ends, and removes
// its record, after the prune has listed the snapshots and before it lists the records.
func TestPruneBesideTheEndOfALongCopy(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 1)
	reached, ends, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	long := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op == "put" && strings.HasPrefix(key, "snapshots/") {
			close(reached)
			<-ends
		}
		return nil
	}}
	go func() {
		defer close(ended)
		if _, err := p.copyBetween(t.Context(), p.from, long, nil); err != nil {
			t.Error(err)
		}
	}()
	<-reached
	p.pass(12 * time.Hour)
	lists := 0
	h := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op == "list" && key == "copying/" {
			if lists++; lists == 1 {
				close(ends)
				<-ended
			}
		}
		return nil
	}}
	if _, err := p.prune(t.Context(), h, 9); err != nil || lists == 0 {
		t.Fatalf("%v, the records were listed %d times", err, lists)
	}
	if got := p.whole(t, p.to); got != "a1" {
		t.Errorf("the copy has %s", got)
	}
}

// TestPruneDoesNotGuessWhatACopyIsBringing: the tree in the record of a run cannot be read.
func TestPruneDoesNotGuessWhatACopyIsBringing(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 1)
	p.interrupted(t)
	p.to.Forget(string(list[0].Tree))
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 9); !isBlocked(err) {
		t.Errorf("got %v", err)
	}
	p.copy(t)
	if _, err := p.prune(t.Context(), p.to, 9); err != nil {
		t.Errorf("after another run: %v", err)
	}
}

// TestASlowPruneOfACopyLeavesTheRest: a run that it does not know of may rely on what it listed.
func TestASlowPruneOfACopyLeavesTheRest(t *testing.T) {
	t.Run("key by key", func(t *testing.T) { slowPruneOfACopy(t, 1) })
	t.Run("in batches", func(t *testing.T) { slowPruneOfACopy(t, 2) })
}

func slowPruneOfACopy(t *testing.T, size int) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 12)
	p.copy(t)
	p.pass(24 * time.Hour)
	st := p.opened(t, p.to)
	for _, e := range list[1:] {
		if err := st.RemoveSnapshot(t.Context(), e.Key()); err != nil {
			t.Fatal(err)
		}
	}
	h := &hooked{Bucket: p.to, size: size}
	h.before = func(op, _ string) error {
		if op == "delete" {
			p.pass(retention.SweepLimit)
		}
		return nil
	}
	r, err := p.prune(t.Context(), h, 9)
	if garbage := int64(3 * 11); err != nil || r.Freed.Keys == 0 || r.Freed.Keys > garbage-8 {
		t.Fatalf("removed %d keys, %v", r.Freed.Keys, err)
	}
	slow := slices.ContainsFunc(r.Findings, func(f object.Finding) bool {
		return f.Code == object.CodeSlow
	})
	if !slow {
		t.Errorf("findings %v", r.Findings)
	}
	p.whole(t, p.to)
}

// TestATreeThatGoesMeanwhileIsCopiedLater: the envelope does not come without it.
func TestATreeThatGoesMeanwhileIsCopiedLater(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 1)
	h := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op+" "+key == "stat "+string(list[0].Tree) {
			p.to.Forget(key)
		}
		return nil
	}}
	r, err := p.copyBetween(t.Context(), p.from, h, nil)
	if err != nil || len(r.Copied) > 0 || r.Missing != 1 ||
		r.Findings[0].Code != object.CodeCopyWaits {
		t.Fatalf("%s, %v, %v", r, r.Findings, err)
	}
	if r := p.copy(t); len(r.Copied) != 1 {
		t.Errorf("the next run: %s, %v", r, r.Findings)
	}
}

// TestCopiesAndPrunesMayRunAtAnyTime interleaves runs, crashes, snapshots and prunes of both sides
// at random, with the clock going on: every snapshot of the copy is whole at any time.
// MGMTD_TEST_OPERATIONS is how many of them there are at least.
func TestCopiesAndPrunesMayRunAtAnyTime(t *testing.T) {
	const each = 60
	operations := uint64(4 * each)
	if text := os.Getenv("MGMTD_TEST_OPERATIONS"); text != "" {
		var err error
		if operations, err = strconv.ParseUint(text, 10, 32); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range (operations + each - 1) / each {
		w := &harness{pair: newPair(t, false), t: t, random: rand.New(rand.NewPCG(seed, 0))}
		w.hourly(t, sourceA, 2)
		w.copy(t)
		for range each {
			w.pass(time.Duration(w.random.IntN(180)) * time.Minute)
			w.act(0)
			w.whole(t, w.to)
		}
		if w.copied < 5 {
			t.Errorf("%d snapshots were copied", w.copied)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// harness does one thing in the middle of another one, three deep.
type harness struct {
	*pair
	t      *testing.T
	random *rand.Rand // one hook at a time draws
	copied int
}

// bucket returns the copy's bucket, before whose calls something else may happen. It dies after
// some calls unless dies is negative.
func (w *harness) bucket(depth, dies int) *hooked {
	var mu sync.Mutex // calls of one actor wait for what happens before one of them
	return &hooked{Bucket: w.to, before: func(op, _ string) error {
		if op == "get" { // there are too many for a run to end in time
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if dies == 0 {
			return errDied
		}
		dies--
		if depth < 2 && w.random.IntN(12) == 0 {
			w.pass(time.Duration(w.random.IntN(20)) * time.Minute)
			w.act(depth + 1)
		}
		return nil
	}}
}

func (w *harness) act(depth int) {
	ctx := w.t.Context()
	switch w.random.IntN(5) {
	case 0:
		if _, err := w.prune(ctx, w.bucket(depth, -1), 1+w.random.IntN(3)); err != nil &&
			!isBlocked(err) {
			w.t.Error(err)
		}
	case 1:
		_, _ = w.copyBetween(ctx, w.from, w.bucket(depth, w.random.IntN(40)), nil)
	case 2:
		if w.random.IntN(3) == 0 {
			if _, err := w.prune(ctx, w.from, 2); err != nil && !isBlocked(err) {
				w.t.Error(err)
			}
		}
		w.take(w.t, []string{sourceA, sourceB}[w.random.IntN(2)])
	default:
		r, err := w.copyBetween(ctx, w.from, w.bucket(depth, -1), nil)
		if err != nil {
			w.t.Error(err)
			return
		}
		w.copied += len(r.Copied)
	}
}
