package retention

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store"
)

func TestPruneRemovesWhatNoRuleRetains(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	a, bb := &taker{st: st, source: sourceA}, &taker{st: st, source: sourceB}
	a.hourly(t, b, 10)
	bb.hourly(t, b, 3)
	b.pass(24 * time.Hour)
	o := options(st, b, Policy{Last: 2})
	before := contents(t, st)
	plan, err := planAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if contents(t, st) != before || left(t, st) != "a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 b1 b2 b3" {
		t.Fatal("the plan changed something")
	}
	r := mustPrune(t, o)
	if got := left(t, st); got != "a9 a10 b2 b3" {
		t.Errorf("%s are left", got)
	}
	// What is left names its own and what it took over: 2 trees, 3 shards, 3 packs of each source.
	if got := contents(t, st); got != 16 {
		t.Errorf("%d keys of content are left, want 16", got)
	}
	if r.Freed != plan.Frees {
		t.Errorf("it freed %+v, and the plan was %+v", r.Freed, plan.Frees)
	}
	whole(t, st)
	again := mustPrune(t, o)
	if len(again.Removed) > 0 || again.Freed != (Amount{}) {
		t.Errorf("the second time it freed %+v", again.Freed)
	}
	list, err := st.StoredSnapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The gaps that it left are no finding.
	pruned, err := st.Pruned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{sourceA, sourceB} {
		var chain []store.Signed
		for _, s := range list {
			if s.Key.Source == source {
				e, err := st.GetEnvelope(t.Context(), s.Key)
				if err != nil {
					t.Fatal(err)
				}
				chain = append(chain, e)
			}
		}
		if found := store.CheckChain(chain, pruned.Removed[source]); len(found) > 0 {
			t.Errorf("chain: %v", found)
		}
		if found := store.CheckChain(chain[1:], pruned.Removed[source]); len(found) != 1 {
			t.Errorf("chain without its oldest: %v, want a gap", found)
		}
	}
}

// TestPruneRemovesWhatKilledWritesLeft: a write that was killed leaves a file that no list shows. A
// prune removes it after the grace, also while it removes no content.
func TestPruneRemovesWhatKilledWritesLeft(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	a := &taker{st: st, source: sourceA}
	taken := a.hourly(t, b, 2)
	folder := filepath.Join(b.String(), "packs", "ab")
	age := map[string]time.Duration{".tmp-OLD": 25 * time.Hour, ".tmp-YOUNG": time.Hour}
	b.pass(24 * time.Hour)
	for name, age := range age {
		file := filepath.Join(folder, name)
		err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(file, []byte("half"), 0o600),
			os.Chtimes(file, time.Time{}, b.time().Add(-age)))
		if err != nil {
			t.Fatal(err)
		}
	}
	// With a gap in the numbers no content goes.
	if err := b.Delete(t.Context(), taken[0].Key().String()); err != nil {
		t.Fatal(err)
	}
	a.take(t, b.time(), func(e *store.Envelope) { e.Sequence += 5 })
	plan, err := planAll(t.Context(), options(st, b, Policy{Last: 9}))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Execute(t.Context(), options(st, b, Policy{Last: 9}), plan)
	if _, blocked := errors.AsType[*BlockedError](err); !blocked {
		t.Fatalf("the gap does not block: %v", err)
	}
	if r.Swept != (Amount{Keys: 1, Bytes: 4}) ||
		!strings.Contains(r.String(), "removed 1 files with 4 bytes that killed writes had left") {
		t.Errorf("swept %+v: %s", r.Swept, r)
	}
	for name, gone := range map[string]bool{".tmp-OLD": true, ".tmp-YOUNG": false} {
		if _, err := os.Lstat(filepath.Join(folder, name)); errors.Is(err, fs.ErrNotExist) != gone {
			t.Errorf("%s: %v, want gone: %t", name, err, gone)
		}
	}
}

func TestPlanGivesEachSnapshotItsReasons(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	expires := func(d time.Duration) func(*store.Envelope) {
		return func(e *store.Envelope) { e.Expires = b.time().Add(d) }
	}
	team := store.ScopeOf(sourceA, []string{"team"}, "", "team")
	partial := func(e *store.Envelope) { e.Scope, e.Partial = &team, true }
	list := []store.Signed{}
	for _, change := range []func(*store.Envelope){nil, expires(time.Hour), expires(100 * time.Hour),
		nil, nil, nil, nil, partial, partial} {
		b.pass(time.Hour)
		list = append(list, w.take(t, b.time(), change))
	}
	if err := st.PutPin(t.Context(), list[3].Key(), "before the upgrade", b.time()); err != nil {
		t.Fatal(err)
	}
	b.pass(5 * time.Hour)
	verified, inUse := list[4].Key(), list[5].Key()
	reasons := func(p Policy, change func(*Options)) map[int64][]string {
		o := options(st, b, p)
		o.Verified = func(k store.EnvelopeKey) bool { return k == verified || k == list[0].Key() }
		o.InUse = func(context.Context) (map[string]store.SnapshotID, error) {
			return map[string]store.SnapshotID{"op": inUse.ID}, nil
		}
		o.HiddenInUse = func(context.Context) (map[string]store.SnapshotID, error) {
			return map[string]store.SnapshotID{"other": list[1].ID}, nil
		}
		if change != nil {
			change(&o)
		}
		plan, err := planAll(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		got := map[int64][]string{}
		for _, v := range plan.Snapshots {
			for _, r := range v.Reasons {
				got[v.Envelope.Sequence] = append(got[v.Envelope.Sequence], r.String())
			}
		}
		return got
	}
	const hidden = "in use by operation other, though somebody hid its records"
	// The ninth came at 09:00, so that the eighth, of the same scope, is safe until 15:00; it is
	// 14:00 now.
	want := map[int64][]string{
		1: {"no rule"}, 2: {hidden}, 3: {"until 2026-03-05T07:00:00Z"}, 4: {"pinned: before the upgrade",
			"no rule"}, 5: {"newest verified", "no rule"}, 6: {"in use by operation op", "no rule"},
		7: {"newest", "no rule"},
		8: {"grace until 2026-03-01T15:00:00Z", "no rule"}, 9: {"newest", "no rule"},
	}
	if diff := cmp.Diff(want, reasons(Policy{}, nil)); diff != "" {
		t.Errorf("without a rule (-want +got):\n%s", diff)
	}
	want = map[int64][]string{
		2: {hidden}, 3: {"until 2026-03-05T07:00:00Z"}, 4: {"pinned: before the upgrade"},
		5: {"newest verified"}, 6: {"in use by operation op"},
		7: {"newest", "last"},
		8: {"grace until 2026-03-01T15:00:00Z"}, 9: {"newest", "last"},
	}
	if diff := cmp.Diff(want, reasons(Policy{Last: 1}, nil)); diff != "" {
		t.Errorf("keep-last=1 (-want +got):\n%s", diff)
	}
	for n, r := range reasons(Policy{Last: 1}, func(o *Options) { o.Source = sourceB }) {
		if !slices.Contains(r, "not asked") {
			t.Errorf("of another source, %d: %v", n, r)
		}
	}
}

// TestGraceCountsFromTheNewerSnapshot: the grace counts from when a newer snapshot came, not from
// when the snapshot itself did.
func TestGraceCountsFromTheNewerSnapshot(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	w.take(t, b.time(), nil)
	b.pass(1000 * time.Hour)
	w.take(t, b.time(), nil)
	o := options(st, b, Policy{Last: 1})
	o.Grace = 3 * time.Hour
	b.pass(3 * time.Hour)
	if mustPrune(t, o); left(t, st) != "a1 a2" {
		t.Fatalf("at the end of the grace %s are left", left(t, st))
	}
	b.pass(time.Second)
	if mustPrune(t, o); left(t, st) != "a2" {
		t.Errorf("a second after the grace %s are left", left(t, st))
	}
	for _, bad := range []time.Duration{time.Second, MinGrace - 1, -1} {
		o.Grace = bad
		if _, err := prune(t.Context(), o); err == nil {
			t.Errorf("a grace of %s was taken", bad)
		}
	}
}

// TestPruneLeavesTheParentOfARunInProgress: the parent of a run is the newest snapshot when the run
// begins. Another run may end meanwhile, and a prune may remove all but the newest.
func TestPruneLeavesTheParentOfARunInProgress(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w, other := &taker{st: st, source: sourceA}, &taker{st: st, source: sourceA, sequence: 1}
	w.take(t, b.time(), nil)
	b.pass(100 * time.Hour)
	began := b.time()
	o := options(st, b, Policy{Last: 1})
	o.Grace = MinGrace
	w.storing = func(_ time.Time, publish func() error) error {
		other.take(t, began.Add(time.Minute), nil) // names nothing of the parent
		b.pass(store.MaxRun)
		if r := mustPrune(t, o); len(r.Removed) > 0 {
			t.Errorf("removed %v", r.Removed)
		}
		return publish()
	}
	w.take(t, began, nil)
	whole(t, st)
	b.pass(MinGrace)
	mustPrune(t, o)
	whole(t, st)
	// the newest by what it says, and the newest to the storage
	if got := left(t, st); got != "a2 a2" {
		t.Errorf("%s are left", got)
	}
}

// TestPruneLeavesYoungContent: no envelope names what a run in progress has written.
func TestPruneLeavesYoungContent(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	w.take(t, b.time(), nil)
	if _, err := st.PutShard(t.Context(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	b.pass(DefaultGrace)
	if r := mustPrune(t, options(st, b, Policy{})); r.Freed.Keys != 0 || r.Waits.Keys != 1 {
		t.Errorf("at the end of the grace: freed %+v, waits %+v", r.Freed, r.Waits)
	}
	b.pass(time.Second)
	if r := mustPrune(t, options(st, b, Policy{})); r.Freed.Keys != 1 {
		t.Errorf("after the grace: freed %+v", r.Freed)
	}
	whole(t, st)
}

// TestSnapshotsOfAnOperationStayUntilItIsSettledAndTheyExpire: no rule counts them, and none is
// the newest of anything.
func TestSnapshotsOfAnOperationStayUntilItIsSettledAndTheyExpire(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	of := store.OperationScope(sourceA, "move-1")
	inFlight := func() store.Signed {
		b.pass(time.Minute)
		w.lastTree = store.Tree{} // it reuses nothing
		return w.take(t, b.time(), func(e *store.Envelope) {
			e.Scope, e.Partial, e.Expires = &of, true, b.time().Add(24*time.Hour)
		})
	}
	b.pass(time.Hour)
	w.take(t, b.time(), nil)
	inFlight()
	last := inFlight()
	o := options(st, b, Policy{Last: 1})
	// An operation names the last one, and so does a restore from it.
	used := map[string]store.SnapshotID{"move-1": last.ID, "restore": last.ID}
	o.InUse = func(context.Context) (map[string]store.SnapshotID, error) { return used, nil }
	b.pass(48 * time.Hour)
	mustPrune(t, o)
	if got := left(t, st); got != "a1 a2 a3" {
		t.Errorf("while the operation runs, %s are left", got)
	}
	clear(used)
	used["move-1"] = "" // the record of it that can be read names no snapshot
	mustPrune(t, o)
	if got := left(t, st); got != "a1 a2 a3" {
		t.Errorf("while the operation names no snapshot, %s are left", got)
	}
	clear(used)
	mustPrune(t, o)
	if got := left(t, st); got != "a1" {
		t.Errorf("afterwards %s are left", got)
	}
	inFlight()
	b.pass(DefaultGrace + time.Hour)
	mustPrune(t, o)
	if got := left(t, st); got != "a1 a4" {
		t.Errorf("before it expires, %s are left", got)
	}
	whole(t, st)
}

// TestSnapshotsOfOneScopeNeverReplaceThoseOfAnother: one schedule takes the namespaces of a team
// each hour, another one those of another team each night. One rule counts for both.
func TestSnapshotsOfOneScopeNeverReplaceThoseOfAnother(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	in := func(team string) func(*store.Envelope) {
		scope := store.ScopeOf(sourceA, []string{team}, "", team)
		return func(e *store.Envelope) { e.Scope, e.Partial = &scope, true }
	}
	var nightly []store.EnvelopeKey
	for hour := range 3 * 24 {
		b.pass(time.Hour)
		w.take(t, b.time(), in("team-a"))
		if hour%24 == 3 {
			taken := w.take(t, b.time(), in("team-b"))
			nightly = append(nightly, taken.Key())
		}
	}
	unknown := w.take(t, b.time(), func(e *store.Envelope) { e.Partial = true })
	b.pass(24 * time.Hour)
	mustPrune(t, options(st, b, Policy{Daily: 30}))
	keys, err := st.Snapshots(t.Context(), sourceA)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range append(nightly, unknown.Key()) {
		if !slices.Contains(keys, k) {
			t.Errorf("%s is gone", k)
		}
	}
	if len(keys) != len(nightly)+1+4 { // and one of each day of the other team
		t.Errorf("%d are left", len(keys))
	}
	whole(t, st)

	o := options(st, b, Policy{Daily: 30})
	o.DropScopes = []string{"team-b"}
	mustPrune(t, o)
	if keys, err = st.Snapshots(t.Context(), sourceA); err != nil {
		t.Fatal(err)
	}
	for _, k := range nightly {
		if slices.Contains(keys, k) {
			t.Errorf("%s of a dropped scope is still there", k)
		}
	}
	o.DropScopes = []string{store.ScopeWhole}
	if _, err := NewPlan(t.Context(), o); err == nil {
		t.Error("all whole snapshots may be dropped")
	}
}
