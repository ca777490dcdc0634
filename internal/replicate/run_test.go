package replicate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// TestACopyHasTheBytesOfItsOrigin: every key of the origin but mgmtd.json is in the copy, with the
// same bytes; a second run writes nothing.
func TestACopyHasTheBytesOfItsOrigin(t *testing.T) {
	for name, encrypted := range map[string]bool{"encrypted": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, encrypted)
			p.hourly(t, sourceA, 3)
			p.hourly(t, sourceB, 2)
			if r := p.copy(t); len(r.Copied) != 5 || r.Missing > 0 || len(r.Findings) > 0 {
				t.Errorf("%s, %v", r, r.Findings)
			}
			if diff := cmp.Diff(content(p.from), content(p.to)); diff != "" {
				t.Errorf("keys (-origin +copy):\n%s", diff)
			}
			for _, key := range content(p.from) {
				if key != "mgmtd.json" && read(t, p.from, key) != read(t, p.to, key) {
					t.Errorf("%s has other bytes", key)
				}
			}
			if got := p.whole(t, p.to); got != "a1 a2 a3 b1 b2" {
				t.Errorf("the copy has %s", got)
			}
			before := p.to.Keys("")
			if r := p.copy(t); len(r.Copied) > 0 || r.Present != 5 {
				t.Errorf("the second run: %s", r)
			}
			if diff := cmp.Diff(before, p.to.Keys("")); diff != "" {
				t.Errorf("the second run wrote (-before +after):\n%s", diff)
			}
			p.hourly(t, sourceA, 1)
			if r := p.copy(t); len(r.Copied) != 1 || r.Keys != 2 { // a shard and a pack
				t.Errorf("the third run: %s", r)
			}
		})
	}
}

// TestACopyMayDieAtEveryCall: what a run leaves that dies at any call of either storage are whole
// snapshots, and the next run comes to the same end, also after hours and a prune of the copy.
func TestACopyMayDieAtEveryCall(t *testing.T) {
	p := newPair(t, false)
	p.hourly(t, sourceA, 2)
	p.copy(t)
	p.hourly(t, sourceA, 2)
	p.hourly(t, sourceB, 1)
	start, began := p.to, p.time()
	run := func(to *faultbucket.Versioned, side string, at int, after bool) (int, error) {
		from, mortal := faultbucket.NewMortal(p.from), faultbucket.NewMortal(to)
		dying := mortal
		if side == "origin" {
			dying = from
		}
		dying.DieAt(at, after)
		_, err := p.copyBetween(t.Context(), from, mortal, nil)
		return dying.Calls(), err
	}
	for _, side := range []string{"origin", "copy"} {
		t.Run(side, func(t *testing.T) {
			to := start.Clone()
			calls, err := run(to, side, 0, false)
			if err != nil || calls < 10 {
				t.Fatalf("%d calls, %v", calls, err)
			}
			want := content(to)
			for at := 1; at <= calls; at++ {
				for _, after := range []bool{false, true} {
					for _, pause := range []time.Duration{0, 10 * time.Hour} {
						p.at(began)
						to := start.Clone()
						if _, err := run(to, side, at, after); !errors.Is(err, faultbucket.ErrDied) {
							t.Fatalf("call %d: %v, want a crash", at, err)
						}
						p.whole(t, to)
						p.pass(pause)
						if pause > 0 {
							if _, err := p.prune(t.Context(), to, 9); err != nil {
								t.Fatalf("prune after call %d: %v", at, err)
							}
						}
						if _, err := run(to, side, 0, false); err != nil {
							t.Fatalf("after a crash at call %d (after: %v): %v", at, after, err)
						}
						p.whole(t, to)
						if diff := cmp.Diff(want, content(to)); diff != "" {
							t.Fatalf("after a crash at call %d (after: %v) and another run (-want +got):\n%s", at,
								after, diff)
						}
					}
				}
			}
		})
	}
}

// TestOnlyWhatIsTrustedAndWholeIsCopied: an envelope that no trusted key signed and a snapshot
// without one of its packs are passed over and reported. The number of the latter stays a gap,
// which stops a prune of the copy, until a record of the origin explains it.
func TestOnlyWhatIsTrustedAndWholeIsCopied(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 5)
	tree, err := p.origin(t).GetTree(t.Context(), list[1].Tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range tree.Shards { // its own one
		if err := p.from.Delete(t.Context(), string(key)); err != nil {
			t.Fatal(err)
		}
	}
	other := newPair(t, true) // of somebody who can write to the bucket
	other.at(p.time())
	foreign := other.take(t, sourceA)
	p.from.Overwrite(foreign.Key().String(), []byte(read(t, other.from, foreign.Key().String())))
	p.from.Overwrite("snapshots/"+sourceB+"/20260301T000000.000Z-0123456789ab.json", []byte("{}"))

	r := p.copy(t)
	if got := p.whole(t, p.to); got != "a1 a3 a4 a5" {
		t.Errorf("the copy has %s", got)
	}
	count := map[object.Severity]int{}
	for _, f := range r.Findings {
		if f.Code != object.CodeNotCopied {
			t.Errorf("%+v", f)
		}
		count[f.Severity]++
	}
	if r.Missing != 1 || r.Untrusted != 2 || count[object.Error] != 1 || count[object.Warning] != 2 {
		t.Errorf("%s, findings %v", r, r.Findings)
	}
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 9); !isBlocked(err) {
		t.Errorf("a prune of the copy beside the gap: %v", err)
	}
	if err := p.from.Delete(t.Context(), foreign.Key().String()); err != nil {
		t.Fatal(err)
	}
	if err := p.from.Delete(t.Context(), p.from.Keys("snapshots/" + sourceB)[0]); err != nil {
		t.Fatal(err)
	}
	o := retention.Options{Store: p.origin(t), Now: p.time,
		Delete: []store.EnvelopeKey{list[1].Key()}, Damaged: true}
	plan, err := retention.NewPlan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := retention.Execute(t.Context(), o, plan); err != nil {
		t.Fatal(err)
	}
	if r := p.copy(t); r.Missing > 0 {
		t.Errorf("%s, %v", r, r.Findings)
	}
	if _, err := p.prune(t.Context(), p.to, 9); err != nil {
		t.Errorf("a prune of the copy after the origin explained the gap: %v", err)
	}
}

func isBlocked(err error) bool {
	_, ok := errors.AsType[*retention.BlockedError](err)
	return ok
}

// TestACopyHasItsOwnRetention: what a prune removes from the copy is not copied again, what a run
// leaves out is no gap, and what the origin removes stays in the copy.
func TestACopyHasItsOwnRetention(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 6)
	last := func(o *Options) { o.Last = 4 }
	if r, err := p.copyBetween(t.Context(), p.from, p.to, last); err != nil || r.LeftOut != 2 {
		t.Fatalf("%s, %v", r, err)
	}
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 2); err != nil {
		t.Fatal(err)
	}
	if got := p.whole(t, p.to); got != "a5 a6" {
		t.Errorf("after a prune the copy has %s", got)
	}
	p.hourly(t, sourceA, 1)
	if r := p.copy(t); len(r.Copied) != 1 || r.Removed != 4 {
		t.Errorf("after a prune of the copy: %s", r)
	}
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.from, 1); err != nil {
		t.Fatal(err)
	}
	p.copy(t)
	if got := p.whole(t, p.to); got != "a5 a6 a7" {
		t.Errorf("after a prune of the origin the copy has %s", got)
	}
	st := p.opened(t, p.to)
	pruned, err := st.Pruned(t.Context())
	if err != nil || pruned.Explains(sourceA, 5) || !pruned.Explains(sourceA, 4) {
		t.Errorf("records of the copy: %+v, %v", pruned, err)
	}
}

// TestARunSaysHowFarItIs: of the envelopes, the content and the snapshots, with totals.
func TestARunSaysHowFarItIs(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 3)
	last := map[string][2]int64{}
	_, err := p.copyBetween(t.Context(), p.from, p.to, func(o *Options) {
		o.Progress = func(what string, done, total int64) { last[what] = [2]int64{done, total} }
	})
	want := map[string][2]int64{"envelopes read": {3, 3}, "keys copied": {6, 6},
		"snapshots copied": {3, 3}}
	if diff := cmp.Diff(want, last); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestACopyThatIsFarBehindGetsTheNewestFirst: until the run has come to its end, a prune of the
// copy removes nothing beside the gap.
func TestACopyThatIsFarBehindGetsTheNewestFirst(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceB, 2)
	p.hourly(t, sourceA, catchUp)
	envelopes := 0
	h := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op == "put" && strings.HasPrefix(key, "snapshots/") {
			if envelopes++; envelopes == 3 {
				return errDied
			}
		}
		return nil
	}}
	if _, err := p.copyBetween(t.Context(), p.from, h, nil); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	if got := p.whole(t, p.to); got != "a1 a10" {
		t.Errorf("the copy has %s", got)
	}
	p.pass(24 * time.Hour)
	if _, err := p.prune(t.Context(), p.to, 9); !isBlocked(err) {
		t.Errorf("a prune beside the gap: %v", err)
	}
	p.copy(t)
	p.pass(retention.SweepEnds) // for what the first run left behind
	p.copy(t)
	if got := p.whole(t, p.to); got != "a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 b1 b2" {
		t.Errorf("the copy has %s", got)
	}
	if _, err := p.prune(t.Context(), p.to, 9); err != nil {
		t.Error(err)
	}
}

// TestContentThatIsInTheCopyIsNotReadAgain: what the parent of a snapshot names, or one of the
// newest ones, was compared when it came.
func TestContentThatIsInTheCopyIsNotReadAgain(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, proofs+2)
	p.copy(t)
	tree, err := p.origin(t).GetTree(t.Context(), list[0].Tree)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	h := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op == "get" && strings.HasPrefix(key, "packs/") {
			got = append(got, key)
		}
		return nil
	}}
	p.hourly(t, sourceA, 1)
	p.takers[sourceA].last, p.takers[sourceA].pack = &list[0], tree.Packs[0]
	p.hourly(t, sourceA, 1) // as if the first one were its parent
	if r, err := p.copyBetween(t.Context(), p.from, h, nil); err != nil || len(r.Copied) != 2 {
		t.Fatalf("%s, %v", r, err)
	}
	if len(got) > 0 {
		t.Errorf("read %v", got)
	}
	p.whole(t, p.to)
}

// TestAPinOfACopyStaysThere: a copy of the copy would not know who signed it.
func TestAPinOfACopyStaysThere(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 1)
	p.copy(t)
	st := p.opened(t, p.to)
	if err := st.PutPin(t.Context(), list[0].Key(), "audit", p.time()); err != nil {
		t.Fatal(err)
	}
	if _, err := st.PutVerification(t.Context(), list[0], store.Verification{Time: p.time(),
		Level: store.LevelFull, Outcome: store.OutcomeOK, Writer: "test"}); err != nil {
		t.Fatal(err)
	}
	third := faultbucket.NewVersioned()
	third.Now = p.time
	r, err := p.copyBetween(t.Context(), p.to, third, nil)
	if err != nil || len(r.Copied) != 1 || r.Pins > 0 || r.Verifications > 0 {
		t.Errorf("%s, %d pins, %d results, %v", r, r.Pins, r.Verifications, err)
	}
}

// TestACopyNeedsNoRightToDelete: somebody who takes over the host that copies cannot
// delete the copy.
func TestACopyNeedsNoRightToDelete(t *testing.T) {
	p := newPair(t, true)
	denied := 0
	h := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op != "delete" {
			return nil
		}
		denied++
		return &store.BucketError{Op: op, Key: key, Class: store.ErrDenied}
	}}
	for range 3 {
		p.hourly(t, sourceA, 6)
		p.pass(24 * time.Hour)
		if _, err := p.prune(t.Context(), p.from, 1); err != nil { // there is something to explain
			t.Fatal(err)
		}
		if r, err := p.copyBetween(t.Context(), p.from, h, nil); err != nil || len(r.Copied) == 0 {
			t.Fatalf("%s, %v", r, err)
		}
	}
	if denied < 4 || len(p.to.Keys("prunes/")) != 3 {
		t.Errorf("%d deletions, prune records %v", denied, p.to.Keys("prunes/"))
	}
	p.whole(t, p.to)
	if _, err := p.prune(t.Context(), p.to, 1); err != nil {
		t.Errorf("a prune with other credentials: %v", err)
	}
}

// TestPinsAndResultsOfVerifiesTravel: those that count in the origin count in the copy. Damage of
// the origin's bytes is none of the copy's.
func TestPinsAndResultsOfVerifiesTravel(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 3)
	origin := p.origin(t)
	verified := func(e store.Signed, level store.VerifyLevel, outcome store.VerifyOutcome) {
		t.Helper()
		v := store.Verification{Level: level, Outcome: outcome, Time: p.time(), Writer: "test"}
		if outcome == store.OutcomeDamaged {
			v.Findings = 1
		}
		if _, err := origin.PutVerification(t.Context(), e, v); err != nil {
			t.Fatal(err)
		}
	}
	verified(list[0], store.LevelFull, store.OutcomeOK)
	verified(list[1], store.LevelStructure, store.OutcomeDamaged)
	verified(list[2], store.LevelFull, store.OutcomeDamaged)
	p.copy(t)
	if err := origin.PutPin(t.Context(), list[1].Key(), "audit", p.time()); err != nil {
		t.Fatal(err)
	}
	if r := p.copy(t); r.Pins != 1 {
		t.Errorf("a pin of later: %s", r)
	}
	st := p.opened(t, p.to)
	if pin, err := st.GetPin(t.Context(), list[1].Key()); err != nil || pin.Reason != "audit" {
		t.Errorf("pin %+v, %v", pin, err)
	}
	for i, want := range []store.VerifyOutcome{store.OutcomeOK, "", store.OutcomeDamaged} {
		results, damaged, err := st.Verifications(t.Context(), list[i].Key())
		if err != nil || len(damaged) > 0 {
			t.Fatal(damaged, err)
		}
		if v, _ := st.DecidingVerification(list[i], results); v.Outcome != want {
			t.Errorf("snapshot %d: %q, want %q", i+1, v.Outcome, want)
		}
	}
	// and those of the copy itself
	if _, err := st.PutVerification(t.Context(), list[1], store.Verification{Time: p.time(),
		Level: store.LevelStructure, Outcome: store.OutcomeOK, Writer: "test"}); err != nil {
		t.Error(err)
	}
}

// TestNothingElseIsWrittenIntoACopy: snapshots, ownership and operations have one home.
func TestNothingElseIsWrittenIntoACopy(t *testing.T) {
	p := newPair(t, true)
	p.hourly(t, sourceA, 1)
	p.copy(t)
	st := p.opened(t, p.to)
	_, packs := st.NewPackWriter(t.Context(), p.time())
	_, shard := st.PutShard(t.Context(), []byte("{}"))
	_, tree := st.PutTree(t.Context(), store.Tree{})
	_, envelope := st.PutEnvelope(t.Context(), store.Envelope{})
	_, owner := st.PutOwner(t.Context(), store.Owner{}, nil)
	for what, err := range map[string]error{"pack": packs, "shard": shard, "tree": tree,
		"envelope": envelope, "owner": owner, "operation": st.CanRecord(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "copy") {
			t.Errorf("%s: %v", what, err)
		}
	}
	id := p.origin(t).ID()
	if st.Origin() != id || st.OriginID() != id || st.ID() == id {
		t.Errorf("the copy has id %s and origin %s", st.ID(), st.Origin())
	}
	// a copy of the copy has the same origin
	third := faultbucket.NewVersioned()
	if r, err := p.copyBetween(t.Context(), p.to, third, nil); err != nil || len(r.Copied) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	if got := p.opened(t, third).Origin(); got != id {
		t.Errorf("the copy of the copy has origin %s", got)
	}
	for what, place := range map[string]bucket.Bucket{"itself": p.from,
		"another store": newOrigin(t, p)} {
		if _, err := p.copyBetween(t.Context(), p.from, place, nil); !isUsage(err) {
			t.Errorf("into %s: %v", what, err)
		}
	}
}

func isUsage(err error) bool {
	_, ok := errors.AsType[*store.UsageError](err)
	return ok
}

func newOrigin(t *testing.T, p *pair) bucket.Bucket {
	t.Helper()
	o := p.options(faultbucket.NewVersioned())
	o.Create = true
	if _, err := store.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o.Bucket
}
