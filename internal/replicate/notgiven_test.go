package replicate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// refusing fails each read of some keys of a bucket.
func refusing(b bucket.Bucket, with bucket.Error, keys ...string) *hooked {
	return &hooked{Bucket: b, before: func(op, key string) error {
		if op != "get" || !slices.Contains(keys, key) {
			return nil
		}
		err := with
		err.Op, err.Key = op, key
		return &err
	}}
}

// originOf has three snapshots, of which one has a pin and the result of a verify. It returns the
// keys of that one.
func (p *pair) originOf(t *testing.T, i int) (keys map[string]string) {
	t.Helper()
	e := p.hourly(t, sourceA, 3)[i]
	origin := p.origin(t)
	v, err := origin.PutVerification(t.Context(), e, store.Verification{Level: store.LevelFull,
		Outcome: store.OutcomeOK, Time: p.time(), Writer: "test"})
	if err == nil {
		err = origin.PutPin(t.Context(), e.Key(), "audit", p.time())
	}
	tree, treeErr := origin.GetTree(t.Context(), e.Tree)
	if err := errors.Join(err, treeErr); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"envelope": e.Key().String(), "tree": string(e.Tree),
		"shard": string(tree.Shards[0]), "pin": p.from.Keys("pins/")[0], "verification": v.Key}
}

// TestOneKeyThatTheStorageDoesNotGiveStopsNoCopy: all else of the origin is copied. What is wrong
// with a snapshot is a finding; a pin or the result of a verify just does not come along.
func TestOneKeyThatTheStorageDoesNotGiveStopsNoCopy(t *testing.T) {
	const left, all = "a1 a3", "a1 a2 a3"
	for what, want := range map[string]string{"envelope": left, "tree": left, "shard": left,
		"pin": all, "verification": all} {
		for name, with := range faultbucket.Refusals {
			t.Run(what+": "+name, func(t *testing.T) {
				p := newPair(t, true)
				from := refusing(p.from, with, p.originOf(t, 1)[what])
				r, err := p.copyBetween(t.Context(), from, p.to, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := p.whole(t, p.to); got != want {
					t.Errorf("the copy has %s, want %s", got, want)
				}
				if (r.Missing == 1) != (want == left) || (len(r.Findings) == 1) != (want == left) {
					t.Errorf("%s, findings %v", r, r.Findings)
				}
			})
		}
		for name, with := range faultbucket.Outages {
			t.Run(what+": "+name, func(t *testing.T) {
				p := newPair(t, true)
				from := refusing(p.from, with, p.originOf(t, 1)[what])
				if r, err := p.copyBetween(t.Context(), from, p.to, nil); !errors.Is(err, with.Class) {
					t.Errorf("%s, %v", r, err)
				}
			})
		}
	}
}

// TestOneKeyOfTheCopyThatTheStorageDoesNotGiveStopsNoCopy: what is new in the origin is copied all
// the same, beside what an interrupted run left, and a prune of the copy goes on.
func TestOneKeyOfTheCopyThatTheStorageDoesNotGiveStopsNoCopy(t *testing.T) {
	for _, what := range []string{"envelope", "envelope of another size", "tree", "verification",
		"record of a prune", "record of a run", "tree of a run"} {
		for name, with := range faultbucket.Refusals {
			t.Run(what+": "+name, func(t *testing.T) {
				p := newPair(t, true)
				keys := p.originOf(t, 2)
				p.copy(t)
				keys["envelope of another size"] = keys["envelope"]
				if what == "envelope of another size" { // it is compared with that of the origin
					p.to.Overwrite(keys[what], []byte("x"))
				}
				e := p.hourly(t, sourceA, 1)[0]
				for i, b := range []*faultbucket.Versioned{p.to, p.from} { // the copy lacks that of the origin
					p.removedOnRecord(t, b, store.Signed{Envelope: store.Envelope{Sequence: int64(i) + 7,
						Source: store.Source{UID: sourceB}}})
				}
				p.interrupted(t)
				p.pass(24 * time.Hour)
				keys["record of a run"], keys["tree of a run"] = p.to.Keys("copying/")[0], string(e.Tree)
				keys["record of a prune"] = p.to.Keys("prunes/")[0]
				to := refusing(p.to, with, keys[what])
				if !strings.HasSuffix(what, "of a run") { // without these the content may not be used
					if r, err := p.copyBetween(t.Context(), p.from, to, nil); err != nil || len(r.Copied) != 1 {
						t.Errorf("%s, %v, %v", r, r.Findings, err)
					}
				}
				r, err := p.prune(t.Context(), to, 1)
				if err != nil && !isBlocked(err) {
					t.Errorf("a prune of the copy: %v", err)
				}
				if r == nil || len(r.Removed) == 0 {
					t.Errorf("a prune of the copy removed nothing: %v, %v", r, err)
				}
			})
		}
	}
}
