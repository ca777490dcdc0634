//go:build api

package retention

import (
	"bytes"
	"context"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// dayOld is a bucket that reports everything as a day old, except the prune records, whose time is
// the storage's clock. MinIO does not allow to set the time of an object.
type dayOld struct{ *s3.Bucket }

func (b dayOld) at(i bucket.Info) bucket.Info {
	if !strings.HasPrefix(i.Key, "prunes/") {
		i.Modified = i.Modified.Add(-24 * time.Hour)
	}
	return i
}

func (b dayOld) Stat(ctx context.Context, key string) (bucket.Info, error) {
	i, err := b.Bucket.Stat(ctx, key)
	return b.at(i), err
}

func (b dayOld) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	return b.Bucket.List(ctx, prefix, func(i bucket.Info) error { return fn(b.at(i)) })
}

// prunedBucket is a bucket with incremental snapshots, which is pruned a day later.
type prunedBucket struct {
	t         *testing.T
	source    *snapshottest.Source
	catalog   *catalog.Catalog
	client    *minio.Client
	bucket    string
	st, later *store.Store
	taken     []store.Signed
}

func newPrunedBucket(t *testing.T, server *s3test.Server, name string, lock s3.LockMode,
	days int) *prunedBucket {
	t.Helper()
	p := &prunedBucket{t: t, source: snapshottest.New("prod", 3, 2), client: server.Client(t),
		bucket: name}
	b, err := s3.New(s3.Options{Bucket: name, Endpoint: server.Endpoint,
		CredentialsFile: server.CredentialsFile, ObjectLock: lock, RetentionDays: days})
	if err != nil {
		t.Fatal(err)
	}
	keys := newKeys(t, t.TempDir())
	for into, b := range map[**store.Store]bucket.Bucket{&p.st: b, &p.later: dayOld{b}} {
		if *into, err = store.Open(t.Context(), store.Options{Bucket: b, Keys: keys,
			Create: true}); err != nil {
			t.Fatal(err)
		}
	}
	p.catalog, err = catalog.Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"),
		catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.catalog.Close(); err != nil {
			t.Error(err)
		}
	})
	p.snapshot()
	p.source.Change()
	p.snapshot()
	p.snapshot()
	p.source.Change()
	p.snapshot()
	if p.taken[1].Tree != p.taken[2].Tree {
		t.Error("a snapshot of an unchanged source has a tree of its own")
	}
	named := p.named(p.last())
	if len(p.garbage()) < 4 || !slices.ContainsFunc(slices.Collect(maps.Keys(p.named(p.taken[0]))),
		func(k string) bool { return named[k] }) {
		t.Errorf("the newest snapshot shares nothing with the first, or all: %v, %v", named, p.garbage())
	}
	return p
}

func (p *prunedBucket) snapshot() {
	p.t.Helper()
	o := p.source.Options(p.st)
	o.State = p.catalog.SnapshotState(p.st.ID(), p.source.UID)
	taken, err := snapshot.Create(p.t.Context(), o)
	if err != nil || taken.NotRemembered != nil {
		p.t.Fatal(err, taken)
	}
	p.taken = append(p.taken, taken.Signed)
}

func (p *prunedBucket) last() store.Signed { return p.taken[len(p.taken)-1] }

// named returns the keys that a snapshot needs.
func (p *prunedBucket) named(e store.Signed) map[string]bool {
	p.t.Helper()
	tree, err := p.st.GetTree(p.t.Context(), e.Tree)
	if err != nil {
		p.t.Fatal(err)
	}
	named := map[string]bool{string(e.Tree): true}
	for _, k := range slices.Concat(tree.Shards, tree.Packs) {
		named[string(k)] = true
	}
	return named
}

// garbage returns the keys of content that only snapshots before the last one need.
func (p *prunedBucket) garbage() map[string]bool {
	p.t.Helper()
	all, named := map[string]bool{}, p.named(p.last())
	for _, e := range p.taken {
		maps.Copy(all, p.named(e))
	}
	maps.DeleteFunc(all, func(k string, _ bool) bool { return named[k] })
	return all
}

// envelopes returns the keys of the envelopes of all snapshots but the last.
func (p *prunedBucket) envelopes() map[string]bool {
	keys := map[string]bool{}
	for _, e := range p.taken[:len(p.taken)-1] {
		keys[e.Key().String()] = true
	}
	return keys
}

// amount adds up the sizes of keys, as the server reports them.
func (p *prunedBucket) amount(sets ...map[string]bool) (a Amount) {
	p.t.Helper()
	for _, keys := range sets {
		for k := range keys {
			info, err := p.client.StatObject(p.t.Context(), p.bucket, k, minio.StatObjectOptions{})
			if err != nil {
				p.t.Fatalf("%s: %v", k, err)
			}
			a.Keys, a.Bytes = a.Keys+1, a.Bytes+info.Size
		}
	}
	return a
}

// prune removes all snapshots but the last, and compares its plan with what it does.
func (p *prunedBucket) prune(frees Amount) *Result {
	p.t.Helper()
	o := Options{Store: p.later, Policy: Policy{Last: 1}}
	plan, err := planAll(p.t.Context(), o)
	if err != nil {
		p.t.Fatal(err)
	}
	if plan.Frees != frees || plan.Waits.Keys > 0 || plan.Blocked || len(plan.Findings) > 0 {
		p.t.Errorf("the plan frees %+v, want %+v: %+v", plan.Frees, frees, plan)
	}
	r := mustPrune(p.t, o)
	goes := func(list []Verdict) (keys []string) {
		for _, v := range list {
			if v.Goes() {
				keys = append(keys, v.Key.String())
			}
		}
		return keys
	}
	if diff := cmp.Diff(goes(plan.Snapshots), goes(r.Snapshots)); diff != "" {
		p.t.Errorf("what goes (-plan +prune):\n%s", diff)
	}
	return r
}

// want compares what a prune did, and the finding for what the storage retains.
func (p *prunedBucket) want(r *Result, removed map[string]bool, freed,
	retained Amount) {
	p.t.Helper()
	gone := map[string]bool{}
	for _, k := range r.Removed {
		gone[k.String()] = true
	}
	if diff := cmp.Diff(removed, gone); diff != "" {
		p.t.Errorf("removed snapshots (-want +got):\n%s", diff)
	}
	if r.Freed != freed || r.Retained != retained {
		p.t.Errorf("freed %+v, want %+v; retained %+v, want %+v", r.Freed, freed, r.Retained, retained)
	}
	said := slices.ContainsFunc(r.Findings, func(f object.Finding) bool {
		return f.Code == object.CodeRetained && f.Severity == object.Info &&
			strings.Contains(f.Message, "(Object Lock, ")
	})
	if said != (retained.Keys > 0) || len(r.Findings) > 1 {
		p.t.Errorf("retained %+v, findings %v", r.Retained, r.Findings)
	}
}

// wantFull fails unless a full verification finds the snapshots whole.
func (p *prunedBucket) wantFull(list ...store.Signed) {
	p.t.Helper()
	for _, e := range list {
		read, err := p.st.GetEnvelope(p.t.Context(), e.Key())
		if err != nil {
			p.t.Errorf("%s: %v", e.Key(), err)
			continue
		}
		report, err := p.st.VerifyStructure(p.t.Context(), read.Envelope, nil)
		if err != nil || len(report.Findings) > 0 {
			p.t.Errorf("%s: %v, %v", e.Key(), report.Findings, err)
			continue
		}
		s, err := snapshot.Open(p.t.Context(), p.st, read.Envelope, nil)
		if err != nil {
			p.t.Errorf("%s: %v", e.Key(), err)
			continue
		}
		checked, err := s.Verify(p.t.Context(), 100, nil)
		if err != nil || len(checked.Findings) > 0 || int64(checked.Objects) != e.Counts.Objects {
			p.t.Errorf("%s: %+v, %v", e.Key(), checked, err)
		}
	}
}

// versions are the ids of all versions in the bucket, delete markers included, by key.
func (p *prunedBucket) versions() map[string][]string {
	p.t.Helper()
	all := map[string][]string{}
	for v := range p.client.ListObjectsIter(p.t.Context(), p.bucket,
		minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
		if v.Err != nil {
			p.t.Fatal(v.Err)
		}
		all[v.Key] = append(all[v.Key], v.VersionID)
	}
	return all
}

// unlock ends the retention of all keys with a prefix, with the right to bypass governance, and
// waits for the end. It returns the error of a refusal.
func (p *prunedBucket) unlock(prefix string) (refused error) {
	p.t.Helper()
	n, governance, until := 0, minio.Governance, time.Now()
	for key, ids := range p.versions() {
		for _, id := range ids {
			if !strings.HasPrefix(key, prefix) || key == "conditional.json" {
				continue
			}
			n, until = n+1, time.Now().Add(2*time.Second) // versitygw takes no end that is past
			o := minio.PutObjectRetentionOptions{GovernanceBypass: true, Mode: &governance,
				RetainUntilDate: &until, VersionID: id}
			if err := p.client.PutObjectRetention(p.t.Context(), p.bucket, key, o); err != nil {
				refused = err
			}
		}
	}
	if n < 4 {
		p.t.Fatalf("%d keys begin with %q", n, prefix)
	}
	if refused == nil {
		time.Sleep(time.Until(until))
	}
	return refused
}

// TestAPIPruneLeavesWhatObjectLockRetains: a snapshot that Object Lock retains stays whole and is
// reported each time. When the retention is over it is removed, and nothing else is.
func TestAPIPruneLeavesWhatObjectLockRetains(t *testing.T) {
	for _, kind := range s3test.Kinds {
		server := s3test.Start(t, s3test.Options{Kind: kind, Versions: true})
		for _, mode := range []s3.LockMode{s3.LockGovernance, s3.LockCompliance} {
			t.Run(string(kind)+"/"+string(mode), func(t *testing.T) {
				server.NewLockedBucket(t, string(mode))
				p := newPrunedBucket(t, server, string(mode), mode, 1)
				envelopes, garbage := p.envelopes(), p.garbage()
				freesEnvelopes, freesGarbage, frees := p.amount(envelopes), p.amount(garbage),
					p.amount(envelopes, garbage)
				none, nothing := map[string]bool{}, Amount{}
				before := p.versions()
				p.want(p.prune(frees), none, nothing, freesEnvelopes)
				p.wantFull(p.taken...)

				err := p.unlock("snapshots/")
				if mode == s3.LockCompliance {
					if err == nil {
						t.Error("compliance was bypassed")
					}
					p.want(p.prune(frees), none, nothing, freesEnvelopes)
					p.wantFull(p.taken...)
					after := p.versions()
					maps.DeleteFunc(after, func(key string, _ []string) bool {
						return strings.HasPrefix(key,
							"prunes/")
					})
					if diff := cmp.Diff(before, after); diff != "" {
						t.Errorf("versions in the bucket (-before +after):\n%s", diff)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				// Envelopes are retained for less time than what they name.
				p.want(p.prune(frees), envelopes, freesEnvelopes, freesGarbage)
				p.wantFull(p.last())
				if err := p.unlock(""); err != nil {
					t.Fatal(err)
				}
				p.want(p.prune(freesGarbage), none, freesGarbage, nothing)
				p.wantFull(p.last())
				p.wantLeft(before)
				p.source.Change()
				p.snapshot()
				p.wantFull(p.taken[len(p.taken)-2:]...)
			})
		}
	}
}

// wantLeft fails unless the bucket has exactly the versions that it had before, but for those of
// the removed snapshots.
func (p *prunedBucket) wantLeft(before map[string][]string) {
	p.t.Helper()
	want, got := maps.Clone(before), p.versions()
	for _, removed := range []map[string]bool{p.envelopes(), goneOf(before, p.named(p.last()))} {
		for key := range removed {
			delete(want, key)
		}
	}
	maps.DeleteFunc(got, func(key string, _ []string) bool {
		return strings.HasPrefix(key,
			"prunes/")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("versions in the bucket (-want +got):\n%s", diff)
	}
}

// goneOf returns the keys of content that are not in named.
func goneOf(before map[string][]string, named map[string]bool) map[string]bool {
	gone := map[string]bool{}
	for key := range before {
		if _, err := store.ParseKey(key); err == nil && !named[key] {
			gone[key] = true
		}
	}
	return gone
}

// TestAPIPruneRemovesAllVersions: in a versioned bucket a prune removes all versions of a key,
// delete markers included, and no version of any other key.
func TestAPIPruneRemovesAllVersions(t *testing.T) {
	for _, kind := range s3test.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			server := s3test.Start(t, s3test.Options{Kind: kind, Versions: true})
			server.NewVersionedBucket(t, "versions")
			p := newPrunedBucket(t, server, "versions", "", 0)
			envelopes, garbage := p.envelopes(), p.garbage()
			// Somebody deleted each key and wrote it again, twice; in their order, so that the
			// newest envelope is that to the storage, too.
			for _, key := range slices.Sorted(maps.Keys(p.versions())) {
				if strings.Contains(key, "/") {
					p.rewrite(key)
				}
			}
			before := p.versions()
			if n := len(before[string(p.last().Tree)]); n < 4 {
				t.Fatalf("%d versions of a key that was written three times and deleted once", n)
			}
			frees := p.amount(envelopes, garbage)
			p.want(p.prune(frees), envelopes, frees, Amount{})
			p.wantLeft(before)
			p.wantFull(p.last())
			p.want(p.prune(Amount{}), map[string]bool{}, Amount{}, Amount{})
		})
	}
}

// rewrite deletes a key without naming a version, and writes its bytes again, twice.
func (p *prunedBucket) rewrite(key string) {
	p.t.Helper()
	o, err := p.client.GetObject(p.t.Context(), p.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	data, err := io.ReadAll(o)
	if err == nil {
		err = p.client.RemoveObject(p.t.Context(), p.bucket, key, minio.RemoveObjectOptions{})
	}
	for range 2 {
		if err == nil {
			_, err = p.client.PutObject(p.t.Context(), p.bucket, key, bytes.NewReader(data),
				int64(len(data)), minio.PutObjectOptions{DisableContentSha256: true})
		}
	}
	if err != nil {
		p.t.Fatalf("rewrite %s: %v", key, err)
	}
}
