package replicate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// somebody opens a store with keys that nobody trusts.
func (p *pair) somebody(t *testing.T, b bucket.Bucket) *store.Store {
	t.Helper()
	o := p.options(b)
	o.Keys = newKeys(t)
	st, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestNothingThatNobodyTrustedSignedIsCopied: envelopes, pins and results of verifies by an unknown
// key, and those that a trusted key signed for another store, stay where they are.
func TestNothingThatNobodyTrustedSignedIsCopied(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 2)
	unknown := p.somebody(t, p.from)
	forged := list[1].Envelope
	forged.ID, forged.Time, forged.Sequence = store.NewSnapshotID(), p.time(), 3
	if _, err := unknown.PutEnvelope(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	good := store.Verification{Time: p.time(), Level: store.LevelFull, Outcome: store.OutcomeOK,
		Writer: "test"}
	if err := unknown.PutPin(t.Context(), list[0].Key(), "forged", p.time()); err != nil {
		t.Fatal(err)
	}
	if _, err := unknown.PutVerification(t.Context(), list[0], good); err != nil {
		t.Fatal(err)
	}
	// Another store of the same operator has a pin and a result for the very same snapshot.
	other := newPair(t, true)
	other.keys = p.keys
	elsewhere := other.origin(t)
	for _, folder := range []string{"trees/", "snapshots/"} {
		for _, key := range p.from.Keys(folder) {
			other.from.Overwrite(key, []byte(read(t, p.from, key)))
		}
	}
	if err := elsewhere.PutPin(t.Context(), list[1].Key(), "elsewhere", p.time()); err != nil {
		t.Fatal(err)
	}
	if _, err := elsewhere.PutVerification(t.Context(), list[1], good); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"pins/", "checks/"} {
		for _, key := range other.from.Keys(folder) {
			p.from.Overwrite(key, []byte(read(t, other.from, key)))
		}
	}
	r := p.copy(t)
	if got := p.whole(t, p.to); got != "a1 a2" || r.Untrusted != 1 || r.Missing > 0 {
		t.Errorf("the copy has %s; %s, %v", got, r, r.Findings)
	}
	if junk := append(p.to.Keys("pins/"), p.to.Keys("checks/")...); len(junk) > 0 || r.Pins > 0 ||
		r.Verifications > 0 {
		t.Errorf("%d pins and %d results were copied: %v", r.Pins, r.Verifications, junk)
	}
}

// TestWhatSomebodyWroteOverInTheOriginIsCopiedAsItWas: the older version counts.
func TestWhatSomebodyWroteOverInTheOriginIsCopiedAsItWas(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 2)
	want := read(t, p.from, list[0].Key().String())
	p.from.Overwrite(list[0].Key().String(), []byte("junk"))
	p.from.Overwrite(string(list[1].Tree), []byte("junk"))
	p.copy(t)
	if got := p.whole(t, p.to); got != "a1 a2" {
		t.Errorf("the copy has %s", got)
	}
	if read(t, p.to, list[0].Key().String()) != want {
		t.Error("the envelope has other bytes")
	}
}

// TestAKeyThatIsTakenInTheCopyIsReported: somebody was there first, with other bytes. All other
// snapshots are copied.
func TestAKeyThatIsTakenInTheCopyIsReported(t *testing.T) {
	for name, tt := range map[string]struct {
		key  func(p *pair, t *testing.T, e store.Signed) string
		want string // what is in the copy
	}{
		"content": {func(p *pair, t *testing.T, e store.Signed) string {
			t.Helper()
			tree, err := p.origin(t).GetTree(t.Context(), e.Tree)
			if err != nil {
				t.Fatal(err)
			}
			return string(tree.Shards[0])
		}, "a1 a3"},
		"tree":     {func(_ *pair, _ *testing.T, e store.Signed) string { return string(e.Tree) }, "a1 a3"},
		"envelope": {func(_ *pair, _ *testing.T, e store.Signed) string { return e.Key().String() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, true)
			list := p.hourly(t, sourceA, 3)
			key := tt.key(p, t, list[1])
			if _, err := store.OpenCopy(t.Context(), p.options(p.to), p.origin(t)); err != nil {
				t.Fatal(err)
			}
			p.to.Overwrite(key, []byte("junk"))
			r := p.copy(t)
			if len(r.Copied) != 2 || r.Missing != 1 || len(r.Findings) != 1 ||
				r.Findings[0].Code != object.CodeCopyDiffers || r.Findings[0].Severity != object.Error {
				t.Errorf("%s, %v", r, r.Findings)
			}
			if tt.want == "" {
				return // it is in the list, and unreadable
			}
			if got := p.whole(t, p.to); got != tt.want {
				t.Errorf("the copy has %s", got)
			}
		})
	}
}

// TestAnEnvelopeThatNobodyTrustsProtectsNoContent: a prune of the copy does not follow it either.
func TestAnEnvelopeThatNobodyTrustsProtectsNoContent(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 2)
	p.copy(t)
	p.pass(24 * time.Hour)
	if err := p.opened(t, p.to).RemoveSnapshot(t.Context(), list[1].Key()); err != nil {
		t.Fatal(err)
	}
	forged := list[1].Envelope
	forged.StoreID, forged.ID, forged.Time = "", store.NewSnapshotID(), p.time()
	forger := faultbucket.NewVersioned() // the origin's id, another key, written into the copy
	for _, key := range append(p.from.Keys("trees/"), "mgmtd.json") {
		forger.Overwrite(key, []byte(read(t, p.from, key)))
	}
	signed, err := p.somebody(t, forger).PutEnvelope(t.Context(), forged)
	if err != nil {
		t.Fatal(err)
	}
	p.to.Overwrite(signed.Key().String(), []byte(read(t, forger, signed.Key().String())))
	if r := p.copy(t); len(r.Copied) > 0 || r.Missing != 1 ||
		r.Findings[0].Code != object.CodeCopyWaits {
		t.Errorf("%s, %v", r, r.Findings)
	}
}

// TestOtherBytesOfAResultInTheCopyDoNotEndTheRun: they count for nothing there.
func TestOtherBytesOfAResultInTheCopyDoNotEndTheRun(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 1)
	if _, err := p.origin(t).PutVerification(t.Context(), list[0], store.Verification{Time: p.time(),
		Level: store.LevelFull, Outcome: store.OutcomeOK, Writer: "test"}); err != nil {
		t.Fatal(err)
	}
	written := 0
	h := &hooked{Bucket: p.to, before: func(op, key string) error {
		if op == "put" && strings.HasPrefix(key, "checks/") {
			written++
			p.to.Overwrite(key, []byte("junk"))
		}
		return nil
	}}
	if _, err := p.copyBetween(t.Context(), p.from, h, nil); err != nil || written != 1 {
		t.Errorf("%d results were written over: %v", written, err)
	}
}

// TestJunkInTheOriginFailsNoRun: what cannot be read, and was never a snapshot, is a warning. Where
// a number is missing, or this host has read it before, it is one.
func TestJunkInTheOriginFailsNoRun(t *testing.T) {
	p := newPair(t, true)
	list := p.hourly(t, sourceA, 3)
	p.copy(t)
	for i := range 25 {
		p.from.Overwrite(fmt.Sprintf("snapshots/%s/20260301T0130%02d.000Z-0123456789ab.json", sourceA, i),
			[]byte("x"))
	}
	list = append(list, p.hourly(t, sourceA, 2)...)
	r := p.copy(t)
	if len(r.Copied) != 2 || r.Missing > 0 || r.Behind != 0 || r.Untrusted != 25 ||
		len(r.Findings) != most+1 || r.Findings[0].Severity != object.Warning ||
		!strings.Contains(r.Findings[most].Message, "15 more") {
		t.Errorf("%s, behind %d, %v", r, r.Behind, r.Findings)
	}
	junk := store.EnvelopeKey{Source: sourceA, ID: "0123456789ab",
		Time: time.Date(2026, 3, 1, 1, 30, 7, 0, time.UTC)}
	known := func(_ string, key store.EnvelopeKey) (int64, bool) { return 6, key == junk }
	r, err := p.copyBetween(t.Context(), p.from, p.to, func(o *Options) { o.Known = known })
	if err != nil || r.Missing != 1 || r.Behind != 1 || r.Untrusted != 24 {
		t.Errorf("one that this host knows: %s, %v", r, err)
	}
	key := list[3].Key().String()
	for _, b := range []*faultbucket.Versioned{p.from, p.to} {
		b.Forget(key)
	}
	p.from.Overwrite(key, []byte("x"))
	if r := p.copy(t); r.Missing != 26 { // which of them has the number is not known
		t.Errorf("a gap in the numbers: %s", r)
	}
	p.removedOnRecord(t, p.from, list[3])
	if r := p.copy(t); r.Missing != 0 || r.Untrusted != 26 {
		t.Errorf("a gap that is explained: %s", r)
	}
}
