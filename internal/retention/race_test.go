package retention

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// hooked is a bucket that runs a function right before a key is read, or that does not find a key
// which it lists.
type hooked struct {
	*clocked
	before func(key string)
	lost   func(key string) bool
}

func (h *hooked) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if h.before != nil {
		h.before(key)
	}
	if h.lost != nil && h.lost(key) {
		return nil, &store.BucketError{Op: "get", Key: key, Class: store.ErrNotFound}
	}
	return h.clocked.Get(ctx, key)
}

func (h *hooked) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if h.lost != nil && h.lost(key) {
		return bucket.Info{}, &store.BucketError{Op: "stat", Key: key, Class: store.ErrNotFound}
	}
	return h.clocked.Stat(ctx, key)
}

func foundOne(r *Result, code object.Code) bool {
	return r != nil && slices.ContainsFunc(r.Findings,
		func(f object.Finding) bool { return f.Code == code })
}

// once returns a Step that calls do right before the snapshots are removed.
func once(do func()) func(string, func() error) error {
	return func(name string, fn func() error) error {
		if name == "snapshots" {
			do()
		}
		return fn()
	}
}

// TestPruneAsksAgainBeforeEachRemoval: a snapshot stays when it is pinned, or needed by an
// operation, after the plan was made.
func TestPruneAsksAgainBeforeEachRemoval(t *testing.T) {
	for _, way := range []struct {
		code object.Code
		mark func(t *testing.T, st *store.Store, used map[string]store.SnapshotID, s store.Signed)
	}{
		{object.CodePinned, func(t *testing.T, st *store.Store, _ map[string]store.SnapshotID,
			s store.Signed) {
			if err := st.PutPin(t.Context(), s.Key(), "just in time", pruneTime); err != nil {
				t.Fatal(err)
			}
		}},
		{object.CodeInUse, func(_ *testing.T, _ *store.Store, used map[string]store.SnapshotID,
			s store.Signed) {
			used["op"] = s.ID
		}},
	} {
		t.Run(string(way.code), func(t *testing.T) {
			b := newClocked(t)
			st := openPlain(t, b)
			list := (&taker{st: st, source: sourceA}).hourly(t, b, 20)
			b.pass(24 * time.Hour)
			var mu sync.Mutex
			used := map[string]store.SnapshotID{}
			inUse := func(context.Context) (map[string]store.SnapshotID, error) {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(used), nil
			}
			o := options(st, b, Policy{Last: 2})
			o.InUse = inUse
			o.Progress = func(what string, done, _ int64) {
				if what == "snapshots removed" && done == 1 { // others are under way
					mu.Lock()
					defer mu.Unlock()
					way.mark(t, st, used, list[requests+1])
				}
			}
			r := mustPrune(t, o)
			if got := left(t, st); got != "a10 a19 a20" || !foundOne(r, way.code) {
				t.Errorf("%s are left, findings %v", got, r.Findings)
			}
			if len(r.Removed) != 17 || !slices.IsSortedFunc(r.Removed, func(a, b store.EnvelopeKey) int {
				return strings.Compare(a.String(), b.String())
			}) {
				t.Errorf("removed: %v", r.Removed)
			}
			whole(t, st)
			// The deletion of a named snapshot is refused.
			o = options(st, b, Policy{})
			o.Delete = []store.EnvelopeKey{list[18].Key()}
			clear(used)
			o.InUse = inUse
			o.Step = once(func() { way.mark(t, st, used, list[18]) })
			_, err := prune(t.Context(), o)
			if _, refused := errors.AsType[*RefusedError](err); !refused ||
				left(t, st) != "a10 a19 a20" {
				t.Errorf("delete: %v, %s are left", err, left(t, st))
			}
		})
	}
}

// TestPruneBlocksWhileASharedTreeIsMissing: two snapshots name one tree, which is missing. Another
// prune removes one of them while this one reads the tree: what the other snapshot needs is still
// unknown.
func TestPruneBlocksWhileASharedTreeIsMissing(t *testing.T) {
	for _, faster := range []int{0, 1} {
		b := newClocked(t)
		w := &taker{st: openPlain(t, b), source: sourceA}
		list := w.hourly(t, b, 1)
		b.pass(time.Hour)
		list = append(list, w.take(t, b.time(), func(e *store.Envelope) { e.Tree = list[0].Tree }))
		(&taker{st: w.st, source: sourceB}).hourly(t, b, 1)
		b.pass(24 * time.Hour)
		replace(t, b, string(list[0].Tree), nil)
		before := contents(t, w.st)
		h := &hooked{clocked: b, before: func(key string) {
			if key == string(list[0].Tree) {
				replace(t, b, list[faster].Key().String(), nil)
			}
		}}
		o := options(openPlain(t, h), b, Policy{})
		o.AcceptGaps = true // of the one that the other prune took
		r, err := prune(t.Context(), o)
		if _, blocked := errors.AsType[*BlockedError](err); !blocked || contents(t, w.st) != before {
			t.Errorf("%d of %d keys are left, %v", contents(t, w.st), before, err)
		}
		if r == nil || !slices.ContainsFunc(r.Findings,
			func(f object.Finding) bool {
				return strings.Contains(f.Message,
					list[1-faster].Key().String())
			}) {
			t.Errorf("nothing is said of the one that is there: %+v", r)
		}
	}
	// When both are gone there is nothing to know.
	b := newClocked(t)
	w := &taker{st: openPlain(t, b), source: sourceA}
	list := w.hourly(t, b, 2)
	b.pass(24 * time.Hour)
	h := &hooked{clocked: b, before: func(key string) {
		if key == string(list[0].Tree) {
			replace(t, b, key, nil)
			replace(t, b, list[0].Key().String(), nil)
		}
	}}
	o := options(openPlain(t, h), b, Policy{})
	o.AcceptGaps = true
	mustPrune(t, o)
	whole(t, w.st)
}

// TestPruneDoesNotBelieveThatAListedKeyIsGone: a storage that lists a key and does not find it is
// not believed: the content that its snapshot names is no garbage.
func TestPruneDoesNotBelieveThatAListedKeyIsGone(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	list := (&taker{st: st, source: sourceA}).hourly(t, b, 4)
	if err := st.PutPin(t.Context(), list[0].Key(), "", b.time()); err != nil {
		t.Fatal(err)
	}
	b.pass(24 * time.Hour)
	before := contents(t, st)
	for name, lost := range map[string]func(key string) bool{
		"newest envelope": func(key string) bool { return key == list[3].Key().String() },
		"envelope and its tree": func(key string) bool {
			return key == list[3].Key().String() ||
				key == string(list[3].Tree)
		},
		"tree": func(key string) bool { return key == string(list[3].Tree) },
	} {
		_, err := prune(t.Context(), options(openPlain(t, &hooked{clocked: b, lost: lost}), b, Policy{}))
		if _, blocked := errors.AsType[*BlockedError](err); !blocked || contents(t, st) != before {
			t.Fatalf("%s: %d of %d keys are left, %v", name, contents(t, st), before, err)
		}
	}
	lost := func(key string) bool { return strings.HasPrefix(key, "pins/") }
	mustPrune(t, options(openPlain(t, &hooked{clocked: b, lost: lost}), b, Policy{Last: 1}))
	if got := left(t, st); got != "a1 a4" {
		t.Errorf("with a pin that is not found %s are left", got)
	}
	whole(t, st)
}

// TestPruneThatSleptRemovesNothingByAnOldRecord: a prune that slept between its inventory and its
// record lists the store again: otherwise its record would drop what another prune recorded
// meanwhile. One that slept after its record removes nothing, since another prune may have replaced
// that record. Both would leave gaps that no record explains.
func TestPruneThatSleptRemovesNothingByAnOldRecord(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	(&taker{st: st, source: sourceA}).hourly(t, b, 5)
	b.pass(24 * time.Hour)
	slow, planned := options(st, b, Policy{Last: 5}), false
	slow.Verified = func(store.EnvelopeKey) bool {
		if !planned {
			planned = true
			mustPrune(t, options(st, b, Policy{Last: 2}))
			b.pass(2 * time.Hour)
		}
		return false
	}
	mustPrune(t, slow)
	if mustPrune(t, options(st, b, Policy{Last: 2})); left(t, st) != "a4 a5" {
		t.Errorf("%s are left", left(t, st))
	}
	o := options(st, b, Policy{Last: 1})
	o.Step = once(func() { b.pass(2 * time.Hour) })
	r := mustPrune(t, o)
	if len(r.Removed) > 0 || !foundOne(r, object.CodeSlow) {
		t.Errorf("by an old record it removed %v; findings %v", r.Removed, r.Findings)
	}
	o.Policy, o.Delete = Policy{}, []store.EnvelopeKey{r.Snapshots[1].Key}
	_, err := prune(t.Context(), o)
	if _, refused := errors.AsType[*RefusedError](err); !refused || left(t, st) != "a4 a5" {
		t.Errorf("by an old record it deleted, %v; %s are left", err, left(t, st))
	}
	if mustPrune(t, options(st, b, Policy{Last: 1})); left(t, st) != "a5" {
		t.Errorf("then %s are left", left(t, st))
	}
}

// TestPruneWhoseRecordIsGoneRemovesNothing: another prune replaced it while this one slept, or
// somebody deleted it.
func TestPruneWhoseRecordIsGoneRemovesNothing(t *testing.T) {
	for _, slept := range []bool{true, false} {
		b := newClocked(t)
		st := openPlain(t, b)
		(&taker{st: st, source: sourceA}).hourly(t, b, 5)
		b.pass(24 * time.Hour)
		h := &hooked{clocked: b}
		done := false
		h.lost = func(key string) bool {
			if done || !strings.HasPrefix(key, "prunes/") {
				return false
			}
			if done = true; slept {
				b.pass(2 * time.Hour)
				mustPrune(t, options(st, b, Policy{Last: 4}))
			}
			return !slept
		}
		r, err := prune(t.Context(), options(openPlain(t, h), b, Policy{Last: 1}))
		if slept && (err != nil || !foundOne(r, object.CodeSlow)) ||
			!slept && !errors.Is(err, store.ErrRecordGone) {
			t.Errorf("slept %v: %v", slept, err)
		}
		if want := map[bool]string{true: "a2 a3 a4 a5", false: "a1 a2 a3 a4 a5"}[slept]; !done ||
			left(t, st) != want {
			t.Errorf("slept %v: %s are left", slept, left(t, st))
		}
	}
}

// TestExecuteRemovesNoMoreThanThePlanNames: an old plan is checked against a new inventory
// and is not extended: snapshots that became removable since wait for the next prune.
func TestExecuteRemovesNoMoreThanThePlanNames(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	list := w.hourly(t, b, 4)
	b.pass(24 * time.Hour)
	o := options(st, b, Policy{Last: 2})
	plan, err := NewPlan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	w.hourly(t, b, 2)
	if err := st.PutPin(t.Context(), list[0].Key(), "", b.time()); err != nil {
		t.Fatal(err)
	}
	b.pass(24 * time.Hour)
	r, err := Execute(t.Context(), o, plan)
	if err != nil {
		t.Fatal(err)
	}
	if got := left(t, st); got != "a1 a3 a4 a5 a6" {
		t.Errorf("%s are left", got)
	}
	for _, v := range r.Snapshots {
		waits := slices.Contains(v.Reasons, Reason{Kind: NotPlanned})
		if n := v.Envelope.Sequence; waits != (n == 3 || n == 4) {
			t.Errorf("snapshot %d: %v", n, v.Reasons)
		}
	}
	whole(t, st)
	if mustPrune(t, o); left(t, st) != "a1 a5 a6" {
		t.Errorf("after the next prune %s are left", left(t, st))
	}
}

// TestExecuteRefusesAnotherPlanThanTheApprovedOne: a plan that was approved is not executed when
// other snapshots would be removed by now; content may differ.
func TestExecuteRefusesAnotherPlanThanTheApprovedOne(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	w := &taker{st: st, source: sourceA}
	w.hourly(t, b, 4)
	b.pass(24 * time.Hour)
	o := options(st, b, Policy{Last: 2})
	shown, err := planAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Approved = shown.Digest()
	w.hourly(t, b, 1)
	b.pass(24 * time.Hour)
	_, err = prune(t.Context(), o)
	if _, changed := errors.AsType[*PlanChangedError](err); !changed ||
		left(t, st) != "a1 a2 a3 a4 a5" {
		t.Errorf("%v, %s are left", err, left(t, st))
	}
	again, err := planAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Approved = again.Digest()
	if _, err := st.PutShard(t.Context(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if mustPrune(t, o); left(t, st) != "a4 a5" {
		t.Errorf("%s are left", left(t, st))
	}
}

// TestPruneReadsTheRecordThatReplacedAnother: a record may be replaced while it is read; the newer
// one contains it.
func TestPruneReadsTheRecordThatReplacedAnother(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	(&taker{st: st, source: sourceA}).hourly(t, b, 3)
	b.pass(24 * time.Hour)
	mustPrune(t, options(st, b, Policy{Last: 2}))
	b.pass(2 * time.Hour)
	replaced := false
	h := &hooked{clocked: b}
	h.before = func(key string) {
		if strings.HasPrefix(key, "prunes/") && !replaced {
			replaced = true
			mustPrune(t, options(st, b, Policy{}))
		}
	}
	known, err := openPlain(t, h).Pruned(t.Context())
	if err != nil || len(known.Removed[sourceA]) != 1 || !replaced {
		t.Errorf("it knows of %v, %v; replaced %v", known.Removed, err, replaced)
	}
}

// TestRulesRemoveSeveralSnapshotsAtOnce: each removal waits for another one that is under way.
func TestRulesRemoveSeveralSnapshotsAtOnce(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	(&taker{st: st, source: sourceA}).hourly(t, b, 5)
	b.pass(24 * time.Hour)
	o, meet := options(st, b, Policy{Last: 1}), make(chan struct{})
	o.InUse = func(ctx context.Context) (map[string]store.SnapshotID, error) {
		select {
		case meet <- struct{}{}:
		case <-meet:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}
	plan, err := NewPlan(t.Context(), options(st, b, Policy{Last: 1}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Execute(ctx, o, plan); err != nil || left(t, st) != "a5" {
		t.Errorf("%v; %s are left", err, left(t, st))
	}
}
