package replicate

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// removedOnRecord writes a record of a prune, and removes nothing.
func (p *pair) removedOnRecord(t *testing.T, b *faultbucket.Versioned, e store.Signed) {
	t.Helper()
	st := p.opened(t, b)
	before, err := st.Pruned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string][]int64{e.Source.UID: {e.Sequence}}
	if _, err := st.PutPruneRecord(t.Context(), before, store.Removal{Numbers: numbers},
		p.time()); err != nil {
		t.Fatal(err)
	}
}

// hidden takes an envelope out of the origin until show is called.
func (p *pair) hidden(t *testing.T, e store.Signed) (show func()) {
	t.Helper()
	data := read(t, p.from, e.Key().String())
	p.from.Forget(e.Key().String())
	return func() { p.from.Overwrite(e.Key().String(), []byte(data)) }
}

// TestASnapshotThatComesBackInTheOriginIsCopied: a prune of the origin recorded its removal, and
// the copy took that over as explained. Then somebody brought it back.
func TestASnapshotThatComesBackInTheOriginIsCopied(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 3)
	p.removedOnRecord(t, p.from, list[1])
	show := p.hidden(t, list[1])
	p.copy(t)
	if pruned, err := p.opened(t, p.to).Pruned(t.Context()); err != nil ||
		!pruned.Explains(sourceA, 2) {
		t.Fatalf("%+v, %v", pruned, err)
	}
	show()
	if r := p.copy(t); len(r.Copied) != 1 || r.Removed > 0 {
		t.Errorf("%s", r)
	}
	if got := p.whole(t, p.to); got != "a1 a2 a3" {
		t.Errorf("the copy has %s", got)
	}
}

// TestARecordDoesNotExplainWhatIsStillInTheOrigin: the prune of the origin died after its record,
// so the snapshot is there. It cannot be copied, and stays a gap.
func TestARecordDoesNotExplainWhatIsStillInTheOrigin(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 3)
	p.removedOnRecord(t, p.from, list[1])
	tree, err := p.origin(t).GetTree(t.Context(), list[1].Tree)
	if err != nil {
		t.Fatal(err)
	}
	p.from.Forget(string(tree.Shards[0]))
	if r := p.copy(t); r.Missing != 1 {
		t.Fatalf("%s", r)
	}
	if pruned, err := p.opened(t, p.to).Pruned(t.Context()); err != nil ||
		pruned.Explains(sourceA, 2) {
		t.Errorf("%+v, %v", pruned, err)
	}
}

// TestTwoSnapshotsWithOneNumber: a prune of the copy removed one of them. The other one, which came
// to the origin later, is copied.
func TestTwoSnapshotsWithOneNumber(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 3)
	p.copy(t)
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 1); err != nil {
		t.Fatal(err)
	}
	twin := list[0].Envelope
	twin.ID, twin.Time = store.NewSnapshotID(), p.time()
	if _, err := p.origin(t).PutEnvelope(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	r := p.copy(t)
	found := false
	for _, key := range r.Copied {
		found = found || key.ID == twin.ID
	}
	if !found {
		t.Errorf("%s", r)
	}
}

// TestLastCountsWhatIsThereAndEachScopeByItself: snapshots that are in the copy are among the
// newest, those of one scope do not push out those of another, and no pin comes without its
// snapshot.
func TestLastCountsWhatIsThereAndEachScopeByItself(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 3)
	show := p.hidden(t, list[0])
	p.copy(t)
	show()
	if err := p.origin(t).PutPin(t.Context(), list[0].Key(), "audit", p.time()); err != nil {
		t.Fatal(err)
	}
	scope := store.ScopeOf(sourceA, []string{"team"}, "", "")
	partial := list[2].Envelope
	partial.ID, partial.Time, partial.Sequence = store.NewSnapshotID(), p.time().Add(time.Hour), 4
	partial.Partial, partial.Scope = true, &scope
	if _, err := p.origin(t).PutEnvelope(t.Context(), partial); err != nil {
		t.Fatal(err)
	}
	r, err := p.copyBetween(t.Context(), p.from, p.to, func(o *Options) { o.Last = 2 })
	if err != nil || r.LeftOut != 1 || len(r.Copied) != 1 || r.Present != 2 || r.Pins > 0 {
		t.Errorf("%s, %d pins, %v", r, r.Pins, err)
	}
	if got := p.whole(t, p.to); got != "a2 a3 a4" {
		t.Errorf("the copy has %s", got)
	}
	if pins := p.to.Keys("pins/"); len(pins) > 0 {
		t.Errorf("pins %v", pins)
	}
	empty := faultbucket.NewVersioned()
	empty.Now = p.time
	r, err = p.copyBetween(t.Context(), p.from, empty, func(o *Options) { o.Last = 1 })
	if err != nil || r.LeftOut != 2 {
		t.Errorf("%s, %v", r, err)
	}
	if got := p.whole(t, empty); got != "a3 a4" {
		t.Errorf("the newest of each scope: %s", got)
	}
}

// TestWhatThisHostKnowsIsNotReadAgain: a copy with few of many snapshots costs no more than what is
// new, also when the origin has removed something. One that came back in the origin, or has the
// number of another one, is read.
func TestWhatThisHostKnowsIsNotReadAgain(t *testing.T) {
	const opened = 1 // envelope is read to prove which store the origin is
	p := newPair(t, true)
	known := map[string]map[store.EnvelopeKey]int64{}
	note := func(id string, list ...store.Signed) {
		if known[id] == nil {
			known[id] = map[store.EnvelopeKey]int64{}
		}
		for _, e := range list {
			known[id][e.Key()] = e.Sequence
		}
	}
	reads := map[string]int{}
	var mu sync.Mutex // envelopes are read at once
	counted := func(side string, b bucket.Bucket) bucket.Bucket {
		return &hooked{Bucket: b, before: func(op, key string) error {
			if op == "get" && strings.HasPrefix(key, "snapshots/") {
				mu.Lock()
				defer mu.Unlock()
				reads[side]++
			}
			return nil
		}}
	}
	run := func() *Result {
		t.Helper()
		clear(reads)
		r, err := p.copyBetween(t.Context(), counted("origin", p.from), counted("copy", p.to),
			func(o *Options) {
				o.Known = func(id string, k store.EnvelopeKey) (int64, bool) {
					n, ok := known[id][k]
					return n, ok
				}
				o.OnCopy = func(e store.Signed) error {
					note(e.HeldBy, e)
					return nil
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	take := func(n int) {
		t.Helper()
		note(p.origin(t).ID(), p.hourly(t, sourceA, n)...)
	}
	take(9)
	run()
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 2); err != nil {
		t.Fatal(err)
	}
	take(1)
	if r := run(); r.Removed != 7 || len(r.Copied) != 1 || reads["origin"] != opened+2 || reads["copy"] > proofs {
		t.Errorf("%s, reads %v", r, reads) // it is read to decide and to copy
	}
	if r := run(); r.Wrote() || r.Removed != 7 || reads["origin"] != opened ||
		reads["copy"] > 0 {
		t.Errorf("nothing new: %s, reads %v", r, reads)
	}
	twin := store.Envelope{ID: store.NewSnapshotID(), Time: p.time(), Sequence: 5, Writer: "test",
		Source: store.Source{UID: sourceA, Name: "m"}, ResourceVersion: "1",
		Tree: store.Key(p.from.Keys("trees/")[0])}
	if _, err := p.origin(t).PutEnvelope(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	if r := run(); len(r.Copied) != 1 || r.Copied[0].ID != twin.ID {
		t.Errorf("one with the number of another one: %s", r)
	}
	note(p.origin(t).ID(), store.Signed{Envelope: twin})
	twin.ID, twin.Sequence = store.NewSnapshotID(), 6
	note(p.origin(t).ID(), store.Signed{Envelope: twin})
	if _, err := p.origin(t).PutEnvelope(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	if r := run(); !slices.ContainsFunc(r.Copied, func(k store.EnvelopeKey) bool {
		return k.ID == twin.ID
	}) {
		t.Errorf("two with one number, both known: %s", r)
	}
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.from, 1); err != nil {
		t.Fatal(err)
	}
	if r := run(); reads["origin"] != opened || reads["copy"] > 0 {
		t.Errorf("after a prune of the origin: %s, reads %v", r, reads)
	}
}

// TestLastCountsWhatAPruneOfTheCopyLeft: it died after its record, so the snapshot is there.
func TestLastCountsWhatAPruneOfTheCopyLeft(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 2)
	p.copy(t)
	p.removedOnRecord(t, p.to, list[1])
	r, err := p.copyBetween(t.Context(), p.from, p.to, func(o *Options) {
		o.Last = 1
		o.Known = func(_ string, k store.EnvelopeKey) (int64, bool) {
			return 2, k == list[1].Key()
		}
	})
	if err != nil || r.Removed > 0 || r.Present != 2 || r.LeftOut > 0 {
		t.Errorf("%s, %v", r, err)
	}
}

// TestWhatIsUsedAgainIsRetainedOnceMore: with Object Lock on the copy, everything that a new
// snapshot names is retained at least as long as its envelope.
func TestWhatIsUsedAgainIsRetainedOnceMore(t *testing.T) {
	p := newPair(t, true)
	p.to.RetainFor = 72 * time.Hour
	p.hourly(t, sourceA, 1)
	p.copy(t)
	p.pass(48 * time.Hour)
	list := p.hourly(t, sourceA, 1) // names the pack of the first
	p.copy(t)
	st := p.opened(t, p.to)
	e, err := st.GetEnvelope(t.Context(), list[0].Key())
	if err != nil {
		t.Fatal(err)
	}
	r, err := st.RetainedUntil(t.Context(), e)
	if want := p.time().Add(p.to.RetainFor); err != nil || r.Until.Before(want) {
		t.Errorf("%s is retained until %s, want %s; %v", r.First, r.Until, want, err)
	}
}

// TestTwoSnapshotsWithOneNumberThatAPruneOfTheCopyRemoved stay away, both of them.
func TestTwoSnapshotsWithOneNumberThatAPruneOfTheCopyRemoved(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 1)
	twin := list[0].Envelope
	twin.ID, twin.Time = store.NewSnapshotID(), p.time().Add(time.Minute)
	if _, err := p.origin(t).PutEnvelope(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	p.hourly(t, sourceA, 2)
	p.copy(t)
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 1); err != nil {
		t.Fatal(err)
	}
	if r := p.copy(t); len(r.Copied) > 0 || r.Removed != 3 {
		t.Errorf("%s", r)
	}
}
