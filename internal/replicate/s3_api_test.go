//go:build api

package replicate

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// places are real buckets, and a directory, to copy between.
type places struct {
	*pair
	t      *testing.T
	server *s3test.Server
}

func (p *places) s3(name, prefix string, change func(*s3.Options)) bucket.Bucket {
	p.t.Helper()
	o := s3.Options{Bucket: name, Prefix: prefix, Endpoint: p.server.Endpoint,
		CredentialsFile: p.server.CredentialsFile}
	if change != nil {
		change(&o)
	}
	b, err := s3.New(o)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// takeInto takes snapshots of a source into a bucket.
func (p *places) takeInto(b bucket.Bucket, source string, n int) {
	p.t.Helper()
	o := p.options(b)
	o.Create = true
	st, err := store.Open(p.t.Context(), o)
	if err != nil {
		p.t.Fatal(err)
	}
	for range n {
		p.pass(time.Second)
		if _, err := p.put(p.t.Context(), st, source); err != nil {
			p.t.Fatal(err)
		}
	}
}

// to copies and returns the result.
func (p *places) to(from, to bucket.Bucket) *Result {
	p.t.Helper()
	r, err := p.copyBetween(p.t.Context(), from, to, nil)
	if err != nil || r.Missing > 0 || len(r.Findings) > 0 {
		p.t.Fatalf("%v, %v, %v", r, r.Findings, err)
	}
	return r
}

// stored returns the bytes of all keys of a bucket that a copy has from its origin.
func (p *places) stored(b bucket.Bucket) map[string]string {
	p.t.Helper()
	all := map[string]string{}
	err := b.List(p.t.Context(), "", func(i bucket.Info) error {
		folder, _, _ := strings.Cut(i.Key, "/")
		if folder != "copying" && folder != "copied" && folder != "prunes" &&
			i.Key != "mgmtd.json" {
			all[i.Key] = ""
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for key := range all {
		all[key] = read(p.t, b, key)
	}
	return all
}

// same fails unless two buckets have the same snapshots, whole and byte for byte.
func (p *places) same(a, b bucket.Bucket, want string) {
	p.t.Helper()
	if got := p.whole(p.t, b); got != want {
		p.t.Errorf("%s has %s, want %s", b, got, want)
	}
	if diff := cmp.Diff(p.stored(a), p.stored(b)); diff != "" {
		p.t.Errorf("%s (-) and %s (+):\n%s", a, b, diff)
	}
}

// TestAPIACopyFromAndToS3: a directory is copied to S3, that copy to another bucket with Object
// Lock, and that one to a directory, each twice; and a run that dies at any call is continued.
func TestAPIACopyFromAndToS3(t *testing.T) {
	for _, kind := range s3test.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			p := &places{pair: newPair(t, true), t: t,
				server: s3test.Start(t, s3test.Options{Kind: kind, Versions: true})}
			p.at(time.Now().Truncate(time.Second))
			p.server.NewBucket(t, "first")
			p.server.NewLockedBucket(t, "locked")
			dir, back := directory.New(t.TempDir()), directory.New(t.TempDir())
			first := p.s3("first", "a", nil)
			locked := p.s3("locked", "b", func(o *s3.Options) {
				o.ObjectLock, o.RetentionDays = s3.LockGovernance, 30
			})
			p.takeInto(dir, sourceA, 2)
			p.takeInto(dir, sourceB, 1)
			for _, want := range []string{"a1 a2 b1", "a1 a2 a3 b1"} {
				for _, leg := range [][2]bucket.Bucket{{dir, first}, {first, locked}, {locked, back}} {
					if r := p.to(leg[0], leg[1]); r.Keys == 0 {
						t.Errorf("%s", r)
					}
					if r := p.to(leg[0], leg[1]); r.Wrote() {
						t.Errorf("once more: %s", r)
					}
				}
				p.same(dir, back, want)
				p.retained(locked)
				if len(want) < 9 {
					p.takeInto(dir, sourceA, 1)
				}
			}
			p.dieAnywhere(dir, first)
		})
	}
}

// retained fails unless everything that the snapshots of a bucket need is retained for 30 days.
func (p *places) retained(b bucket.Bucket) {
	p.t.Helper()
	st := p.opened(p.t, b)
	keys, err := st.Snapshots(p.t.Context(), "")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, k := range keys {
		e, err := st.GetEnvelope(p.t.Context(), k)
		if err != nil {
			p.t.Fatal(err)
		}
		r, err := st.RetainedUntil(p.t.Context(), e)
		if err != nil || !r.Asked || r.Short > 0 || r.Until.Before(time.Now().AddDate(0, 0, 29)) {
			p.t.Errorf("%s: %+v, %v", k, r, err)
		}
		if err := st.RemoveSnapshot(p.t.Context(), k); !errors.Is(err, store.ErrRetained) {
			p.t.Errorf("%s can be deleted: %v", k, err)
		}
	}
}

// dieAnywhere copies from S3 to S3 again and again, with a process that dies at a random call of
// one side, and another one that comes to the end.
func (p *places) dieAnywhere(origin, from bucket.Bucket) {
	p.t.Helper()
	p.server.NewBucket(p.t, "dying")
	seed := uint64(time.Now().UnixNano())
	p.t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	run := func(to bucket.Bucket, ofOrigin bool, at int, after bool) (int, error) {
		sides := [2]*faultbucket.Mortal{faultbucket.NewMortal(to), faultbucket.NewMortal(from)}
		dying := sides[0]
		if ofOrigin {
			dying = sides[1]
		}
		dying.DieAt(at, after)
		_, err := p.copyBetween(p.t.Context(), sides[1], sides[0], nil)
		return dying.Calls(), err
	}
	for _, ofOrigin := range []bool{false, true} {
		calls, err := run(p.s3("dying", map[bool]string{false: "whole-copy", true: "whole-origin"}[ofOrigin],
			nil), ofOrigin, 0, false)
		if err != nil || calls < 10 {
			p.t.Fatalf("%d calls, %v", calls, err)
		}
		for n := range 8 {
			to := p.s3("dying", string(rune('a'+n))+map[bool]string{true: "-origin"}[ofOrigin], nil)
			at, after := 1+random.IntN(calls), random.IntN(2) == 0
			if _, err := run(to, ofOrigin, at, after); !errors.Is(err, faultbucket.ErrDied) {
				p.t.Fatalf("call %d of %d: %v, want a crash", at, calls, err)
			}
			p.to(from, to)
			p.same(origin, to, "a1 a2 a3 b1")
		}
	}
}
