package retention

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

func TestPruneRemovesNoContentWhenAnEnvelopeCannotBeRead(t *testing.T) {
	damages := map[string]func(t *testing.T, b *clocked, s store.Signed){
		"damaged envelope": func(t *testing.T, b *clocked, s store.Signed) {
			replace(t, b, s.Key().String(), []byte("{}"))
		},
		"envelope of a later version": func(t *testing.T, b *clocked, s store.Signed) {
			replace(t, b, s.Key().String(), []byte(`{"payload":"{\"format\":2}","signature":""}`))
		},
		"tree gone": func(t *testing.T, b *clocked, s store.Signed) {
			replace(t, b, string(s.Tree),
				nil)
		},
		"tree damaged": func(t *testing.T, b *clocked, s store.Signed) {
			replace(t, b, string(s.Tree),
				[]byte("x"))
		},
	}
	for name, with := range faultbucket.Refusals {
		damages["envelope: "+name] = func(_ *testing.T, b *clocked, s store.Signed) {
			b.refuse(with, s.Key().String())
		}
		damages["tree: "+name] = func(_ *testing.T, b *clocked, s store.Signed) {
			b.refuse(with, string(s.Tree))
		}
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			b := newClocked(t)
			st := openPlain(t, b)
			list := (&taker{st: st, source: sourceA}).hourly(t, b, 5)
			(&taker{st: st, source: sourceB}).hourly(t, b, 3)
			b.pass(24 * time.Hour)
			damage(t, b, list[4])
			before := contents(t, st)
			r, err := prune(t.Context(), options(st, b, Policy{Last: 2}))
			if _, blocked := errors.AsType[*BlockedError](err); !blocked {
				t.Fatalf("error %v, want a *BlockedError", err)
			}
			if contents(t, st) != before {
				t.Error("content was removed")
			}
			if len(r.Removed) == 0 {
				t.Error("no snapshot was removed")
			}
			if !slices.ContainsFunc(r.Findings, func(f object.Finding) bool {
				return f.Code == object.CodeEnvelopeUnreadable &&
					f.Severity == object.Error
			}) {
				t.Errorf("findings %v", r.Findings)
			}
			plan, err := planAll(t.Context(), options(st, b, Policy{Last: 2}))
			if err != nil || !plan.Blocked {
				t.Errorf("plan: blocked %v, %v", plan != nil && plan.Blocked, err)
			}
		})
	}
}

// TestPruneOfAStoreThatDoesNotAnswerRemovesNothing: one key that it does not give is another thing
// than a storage that gives none.
func TestPruneOfAStoreThatDoesNotAnswerRemovesNothing(t *testing.T) {
	for name, with := range faultbucket.Outages {
		t.Run(name, func(t *testing.T) {
			b := newClocked(t)
			st := openPlain(t, b)
			list := (&taker{st: st, source: sourceA}).hourly(t, b, 5)
			b.pass(24 * time.Hour)
			b.refuse(with, list[4].Key().String())
			r, err := prune(t.Context(), options(st, b, Policy{Last: 2}))
			if stored, listErr := st.Snapshots(t.Context(), ""); !errors.Is(err, with.Class) ||
				listErr != nil || len(stored) != 5 {
				t.Errorf("%v, error %v; %d are left, %v", r, err, len(stored), listErr)
			}
		})
	}
}

// TestAPinThatTheStorageDoesNotGivePins: what it says does not matter.
func TestAPinThatTheStorageDoesNotGivePins(t *testing.T) {
	for name, with := range faultbucket.Refusals {
		t.Run(name, func(t *testing.T) {
			b := newClocked(t)
			st := openPlain(t, b)
			list := (&taker{st: st, source: sourceA}).hourly(t, b, 5)
			if err := st.PutPin(t.Context(), list[1].Key(), "audit", b.time()); err != nil {
				t.Fatal(err)
			}
			b.pass(24 * time.Hour)
			b.refuse(with, strings.Replace(list[1].Key().String(), "snapshots/", "pins/", 1))
			r := mustPrune(t, options(st, b, Policy{Last: 1}))
			if got := left(t, st); got != "a2 a5" {
				t.Errorf("%s are left", got)
			}
			if !slices.ContainsFunc(r.Snapshots, func(v Verdict) bool {
				return v.Key == list[1].Key() && slices.Contains(v.Reasons,
					Reason{Pinned, ", though the pin cannot be read"})
			}) {
				t.Errorf("reasons %v", r.Snapshots)
			}
		})
	}
}

// TestPruneRemovesNoContentBesideAGap: a hidden snapshot may be found again: the content that it
// names stays until an operator accepts the gap.
func TestPruneRemovesNoContentBesideAGap(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	list := (&taker{st: st, source: sourceA}).hourly(t, b, 6)
	b.pass(24 * time.Hour)
	replace(t, b, list[2].Key().String(), nil)
	before := contents(t, st)
	o := options(st, b, Policy{Last: 2})
	plan, err := planAll(t.Context(), o)
	if err != nil || !plan.Blocked {
		t.Errorf("plan: %+v, %v", plan, err)
	}
	for range 2 {
		r, err := prune(t.Context(), o)
		if _, blocked := errors.AsType[*BlockedError](err); !blocked {
			t.Fatalf("error %v, want a *BlockedError", err)
		}
		if !slices.ContainsFunc(r.Findings, func(f object.Finding) bool {
			return f.Code == object.CodeSnapshotMissing && f.Severity == object.Error &&
				strings.Contains(f.Message, "number 3 is not there")
		}) {
			t.Errorf("findings %v", r.Findings)
		}
	}
	if contents(t, st) != before || left(t, st) != "a5 a6" {
		t.Errorf("%s are left, and %d of %d keys", left(t, st), contents(t, st), before)
	}
	accept := o
	accept.AcceptGaps = true
	b.pass(time.Hour)
	if r := mustPrune(t, accept); r.Freed.Keys == 0 {
		t.Error("nothing was freed")
	}
	mustPrune(t, o) // it is on record
	whole(t, st)
}

// TestPruneRemovesNoContentBesideAnUntrustedEnvelope: an envelope without a trusted signature may
// have replaced one that counted.
func TestPruneRemovesNoContentBesideAnUntrustedEnvelope(t *testing.T) {
	b := newClocked(t)
	open := func(k *store.Keys) *store.Store {
		t.Helper()
		st, err := store.Open(t.Context(), store.Options{Bucket: b, Keys: k, Create: true})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := open(newKeys(t, t.TempDir()))
	(&taker{st: st, source: sourceA}).hourly(t, b, 4)
	forged := (&taker{st: open(newKeys(t, t.TempDir())), source: sourceA}).hourly(t, b, 1)[0]
	b.pass(24 * time.Hour)
	before := contents(t, st)
	r, err := prune(t.Context(), options(st, b, Policy{Last: 1}))
	if _, blocked := errors.AsType[*BlockedError](err); !blocked || contents(t, st) != before {
		t.Fatalf("error %v, want a *BlockedError; %d of %d keys are left", err, contents(t, st), before)
	}
	if !slices.ContainsFunc(r.Findings, func(f object.Finding) bool {
		return f.Code == object.CodeEnvelopeUntrusted &&
			f.Severity == object.Error
	}) {
		t.Errorf("findings %v", r.Findings)
	}
	o := options(st, b, Policy{})
	o.Delete, o.Damaged = []store.EnvelopeKey{forged.Key()}, true
	if r := mustPrune(t, o); len(r.Removed) != 1 || r.Freed.Keys < 2 {
		t.Errorf("removed %v, freed %+v", r.Removed, r.Freed)
	}
	whole(t, st)
}

// replace changes a key behind the store's back; nil removes it.
func replace(t *testing.T, b *clocked, key string, data []byte) {
	t.Helper()
	if err := b.Bucket.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if data != nil {
		if err := b.Bucket.Put(t.Context(), key, data); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPruneLeavesWhatTheStorageRetains(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	list := (&taker{st: st, source: sourceA}).hourly(t, b, 6)
	b.pass(24 * time.Hour)
	b.retained[list[1].Key().String()] = true
	b.retained[string(list[4].Tree)] = true // not that of the last
	r := mustPrune(t, options(st, b, Policy{Last: 1}))
	if got := left(t, st); got != "a2 a6" {
		t.Errorf("%s are left", got)
	}
	whole(t, st) // what the retained one names stays
	if r.Retained.Keys != 2 || !slices.ContainsFunc(r.Findings,
		func(f object.Finding) bool { return f.Code == object.CodeRetained }) {
		t.Errorf("retained %+v, findings %v", r.Retained, r.Findings)
	}
	clear(b.retained)
	if r := mustPrune(t, options(st, b, Policy{Last: 1})); left(t, st) != "a6" ||
		r.Retained.Keys != 0 || contents(t, st) != 5 {
		t.Errorf("later %s are left, with %d keys of content", left(t, st), contents(t, st))
	}
}

// TestPruneWarnsOfSnapshotsThatAreStillToCome: beyond the difference that clocks may have.
func TestPruneWarnsOfSnapshotsThatAreStillToCome(t *testing.T) {
	for ahead, want := range map[time.Duration]bool{maxClockSkew: false,
		maxClockSkew + time.Second: true} {
		b := newClocked(t)
		st := openPlain(t, b)
		taken := (&taker{st: st, source: sourceA}).take(t, b.time().Add(ahead), nil)
		r := mustPrune(t, options(st, b, Policy{}))
		warned := slices.ContainsFunc(r.Findings, func(f object.Finding) bool {
			return f.Code == object.CodeClock && strings.Contains(f.Message, taken.Key().String())
		})
		if warned != want {
			t.Errorf("%s ahead: findings %v", ahead, r.Findings)
		}
	}
}

func TestPruneSeesThatClocksAreApart(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	(&taker{st: st, source: sourceA}).hourly(t, b, 3)
	b.pass(8 * time.Hour)
	o := options(st, b, Policy{Last: 1})
	// by which all is in the grace
	o.Now = func() time.Time { return b.time().Add(-100 * time.Hour) }
	r := mustPrune(t, o)
	if len(r.Removed) > 0 || !slices.ContainsFunc(r.Findings,
		func(f object.Finding) bool { return f.Code == object.CodeClock }) {
		t.Errorf("behind: removed %v, findings %v", r.Removed, r.Findings)
	}
	b2 := newClocked(t)
	st2 := openPlain(t, b2)
	(&taker{st: st2, source: sourceA}).hourly(t, b2, 3)
	o = options(st2, b2, Policy{Last: 1})
	o.Now = func() time.Time { return b2.time().Add(100 * time.Hour) }
	if r = mustPrune(t, o); len(r.Removed) > 0 || left(t, st2) != "a1 a2 a3" {
		t.Errorf("ahead: removed %v", r.Removed)
	}
}

func TestDeleteRefusesWhatHasToStay(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	list := (&taker{st: st, source: sourceA}).hourly(t, b, 5)
	b.pass(time.Hour)
	if err := st.PutPin(t.Context(), list[0].Key(), "", b.time()); err != nil {
		t.Fatal(err)
	}
	replace(t, b, list[1].Key().String(), []byte("{}"))
	o := options(st, b, Policy{})
	o.Grace = 3 * time.Hour
	remove := func(damaged bool, n ...int) error {
		o := o
		o.Damaged = damaged
		for _, i := range n {
			o.Delete = append(o.Delete, list[i].Key())
		}
		_, err := prune(t.Context(), o)
		return err
	}
	for what, refused := range map[string]error{
		"newest": remove(false, 4), "pinned": remove(false, 0), "grace": remove(false, 3),
		"damaged": remove(false, 1), "one of two": remove(false, 2, 4),
	} {
		if _, ok := errors.AsType[*RefusedError](refused); !ok {
			t.Errorf("%s: %v, want a *RefusedError", what, refused)
		}
	}
	b.pass(3 * time.Hour)
	if err := remove(true, 1); err != nil {
		t.Errorf("damaged: %v", err)
	}
	if err := remove(false, 2); err != nil {
		t.Errorf("superseded: %v", err)
	}
	if err := st.RemovePin(t.Context(), list[0].Key()); err != nil {
		t.Fatal(err)
	}
	if err := remove(false, 0); err != nil {
		t.Errorf("no longer pinned: %v", err)
	}
	if got := left(t, st); got != "a4 a5" {
		t.Errorf("%s are left", got)
	}
	whole(t, st)
}

// TestDeleteReportsWhatTheStorageRetains: the deletion of named snapshots reports which of them the
// storage retains. It is a refusal when the storage retains all of them.
func TestDeleteReportsWhatTheStorageRetains(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	list := (&taker{st: st, source: sourceA}).hourly(t, b, 6)
	b.pass(24 * time.Hour)
	before := contents(t, st)
	b.retained[list[1].Key().String()], b.retained[list[2].Key().String()] = true, true
	b.retained[string(list[0].Tree)] = true // content that is retained is no error
	remove := func(n ...int) (*Result, error) {
		o := options(st, b, Policy{})
		for _, i := range n {
			o.Delete = append(o.Delete, list[i].Key())
		}
		return prune(t.Context(), o)
	}
	wantsIDs := func(err error, is bool, n ...int) {
		t.Helper()
		for _, i := range n {
			if strings.Contains(err.Error(), string(list[i].ID)) != is {
				t.Errorf("%v: names %s: want %t", err, list[i].ID, is)
			}
		}
	}
	r, err := remove(1, 2)
	if refused, ok := errors.AsType[*RefusedError](err); !ok ||
		!strings.Contains(refused.Hint(), "docs/retention.md") {
		t.Fatalf("all of them: %v, want a *RefusedError with a hint", err)
	}
	wantsIDs(err, true, 1, 2)
	if len(r.Removed) > 0 || r.Freed.Keys > 0 || r.Retained.Keys != 2 ||
		left(t, st) != "a1 a2 a3 a4 a5 a6" || contents(t, st) != before {
		t.Errorf("refused, and %s are left, with %d of %d keys; %+v", left(t, st), contents(t, st),
			before, r)
	}
	r, err = remove(0, 1, 3)
	if _, ok := errors.AsType[*RetainedError](err); !ok ||
		!strings.Contains(err.Error(), "2 of 3 snapshots are deleted") {
		t.Fatalf("one of three: %v, want a *RetainedError", err)
	}
	if _, refused := errors.AsType[*RefusedError](err); refused {
		t.Error("it says that nothing was deleted")
	}
	wantsIDs(err, true, 1)
	wantsIDs(err, false, 0, 2, 3)
	// Of a1 nothing goes: a2 names what they share, and its own is in it, or retained. Of a4 goes
	// what a3 and a5 do not name.
	if len(r.Removed) != 2 || r.Freed.Keys <= 2 || r.Retained.Keys != 2 ||
		left(t, st) != "a2 a3 a5 a6" || !foundOne(r, object.CodeRetained) {
		t.Errorf("%s are left; %+v", left(t, st), r)
	}
	whole(t, st)
	clear(b.retained)
	if _, err := remove(1, 2); err != nil || left(t, st) != "a5 a6" {
		t.Errorf("later: %v, %s are left", err, left(t, st))
	}
	whole(t, st)
}
