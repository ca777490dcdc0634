//go:build api

package s3_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// versions returns all versions of the keys with a prefix, delete markers too.
func versions(t *testing.T, c *minio.Client, bucket, prefix string) (list []minio.ObjectInfo) {
	t.Helper()
	for v := range c.ListObjectsIter(t.Context(), bucket, minio.ListObjectsOptions{Prefix: prefix,
		Recursive: true, WithVersions: true}) {
		if v.Err != nil {
			t.Fatal(v.Err)
		}
		list = append(list, v)
	}
	return list
}

// overwrite does what nobody should: it writes a key that is there, without a condition.
func overwrite(t *testing.T, c *minio.Client, bucket, key, data string) {
	t.Helper()
	if _, err := c.PutObject(t.Context(), bucket, key, strings.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{DisableContentSha256: true}); err != nil {
		t.Fatal(err)
	}
}

// mark puts a delete marker on a key, as an ordinary deletion does in a bucket with versions.
func mark(t *testing.T, c *minio.Client, bucket, key string) {
	t.Helper()
	if err := c.RemoveObject(t.Context(), bucket, key, minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

// openIn opens a plain store in a bucket; it is made when there is none.
func openIn(t *testing.T, b bucket.Bucket) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Bucket: b, Plain: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// putSnapshot stores two shards, a tree and an envelope.
func putSnapshot(t *testing.T, s *store.Store) (shards []store.Key, signed store.Signed) {
	t.Helper()
	for _, text := range []string{`{"unit":"fleet/alpha"}`, `{"unit":"fleet/beta"}`} {
		stored, err := s.PutShard(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		shards = append(shards, stored.Key)
	}
	tree, err := s.PutTree(t.Context(), store.Tree{Shards: shards})
	if err == nil {
		signed, err = s.PutEnvelope(t.Context(), store.Envelope{
			ID: store.NewSnapshotID(), Time: time.Now(),
			Source: store.Source{UID: "6f1b2c3d-0000-4000-8000-000000000001", Name: "prod"}, Sequence: 1,
			ResourceVersion: "1", Tree: tree, Writer: "mgmtd test",
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return shards, signed
}

// TestAPIS3DeleteRemovesAllVersions: a deleted key leaves no version and no delete marker behind.
// Longer keys that begin with it retain all of theirs.
func TestAPIS3DeleteRemovesAllVersions(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3DeleteVersions)
}

func s3DeleteVersions(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	s.NewVersionedBucket(t, "versions")
	b, _ := p.open(t, "versions")
	mess := func(t *testing.T) {
		t.Helper()
		for _, key := range []string{"k/one", "k/one.more", "k/one-more", "k/two"} {
			if err := b.Put(t.Context(), key, []byte("first")); err != nil {
				t.Fatal(err)
			}
			overwrite(t, p.client, "versions", "p/"+key, "second")
			mark(t, p.client, "versions", "p/"+key)
			mark(t, p.client, "versions", "p/"+key)
			if err := b.Put(t.Context(), key, []byte("third")); err != nil {
				t.Fatalf("put on a delete marker: %v", err)
			}
			if err := b.Put(t.Context(), key, []byte("fourth")); !errors.Is(err, bucket.ErrExists) {
				t.Errorf("put of what was put on a delete marker: %v, want ErrExists", err)
			}
			if data, err := readAll(t, b, key); err != nil || string(data) != "third" {
				t.Errorf("get: %q, %v", data, err)
			}
		}
	}
	for name, hook := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"as it is": nil,
		"may not ask whether the bucket is versioned": func(w http.ResponseWriter, r *http.Request) bool {
			if !r.URL.Query().Has("versioning") {
				return false
			}
			p.hits.Add(1)
			answer(w, r, http.StatusForbidden, "AccessDenied")
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			mess(t)
			b, _ := p.open(t, "versions")
			p.set(hook)
			defer p.set(nil)
			before := len(versions(t, p.client, "versions", "p/k/one"))
			for range 2 {
				if err := b.Delete(t.Context(), "k/one"); err != nil {
					t.Fatal(err)
				}
			}
			// Five of each of the keys: three writes and two delete markers; a server may take two
			// markers for one.
			left := versions(t, p.client, "versions", "p/k/one")
			if len(left) != before*2/3 || len(left) < 8 {
				t.Errorf("%d of %d versions are left", len(left), before)
			}
			for _, v := range left {
				if v.Key == "p/k/one" {
					t.Errorf("left: %s, marker %v", v.Key, v.IsDeleteMarker)
				}
			}
			mark(t, p.client, "versions", "p/k/two")
			// also one that is not seen
			for _, key := range []string{"k/one.more", "k/one-more", "k/two"} {
				if err := b.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			if left := versions(t, p.client, "versions", "p/k/"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if hook != nil {
				p.wantHits(t, 1)
			}
		})
	}
}

// TestAPIS3DeleteNeedsOneRequestWithoutVersions: a bucket that became versioned later is
// noticed by its answer.
func TestAPIS3DeleteNeedsOneRequestWithoutVersions(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3DeleteRequests)
}

func s3DeleteRequests(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	b, direct := p.bucket(t, "plain")
	for _, key := range []string{"first", "a", "b", "c", "later"} {
		if err := direct.Put(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(key string) int32 {
		t.Helper()
		before := p.all.Load()
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		return p.all.Load() - before
	}
	remove("first")
	for _, key := range []string{"a", "b", "c", "none"} {
		if n := remove(key); n != 1 {
			t.Errorf("delete %s: %d requests, want 1", key, n)
		}
	}
	if err := p.client.EnableVersioning(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	if err := direct.Put(t.Context(), "new", []byte("new")); err != nil {
		t.Fatal(err)
	}
	remove("new")
	remove("later")
	if left := versions(t, p.client, "plain", "p/"); len(left) != 1 ||
		left[0].Key != "p/conditional.json" {
		t.Errorf("left: %v", left)
	}
}

// TestAPIS3DeletesNothingWhereVersionsAreUnknown: a delete marker over versions would hide bytes
// that still cost money. A server that does not know versions has none.
func TestAPIS3DeletesNothingWhereVersionsAreUnknown(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3VersionsNotKnown)
}

func s3VersionsNotKnown(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	for _, tt := range []struct {
		bucket string
		status int
		code   string
		class  error
	}{
		{"denied", http.StatusForbidden, "AccessDenied", bucket.ErrDenied},
		{"unknown", http.StatusNotImplemented, "NotImplemented", nil},
	} {
		p.set(nil)
		_, direct := p.bucket(t, tt.bucket)
		if err := direct.Put(t.Context(), "key", []byte("x")); err != nil {
			t.Fatal(err)
		}
		p.set(func(w http.ResponseWriter, r *http.Request) bool {
			if q := r.URL.Query(); !q.Has("versioning") && !q.Has("versions") {
				return false
			}
			p.hits.Add(1)
			answer(w, r, tt.status, tt.code)
			return true
		})
		b, _ := p.open(t, tt.bucket)
		err := b.Delete(t.Context(), "key")
		_, statErr := direct.Stat(t.Context(), "key")
		if !errors.Is(err, tt.class) || errors.Is(statErr, bucket.ErrNotFound) == (tt.class != nil) {
			t.Errorf("%s: delete: %v, then %v", tt.bucket, err, statErr)
		}
		if err != nil && !strings.Contains(hintOf(err), "ListBucketVersions") {
			t.Errorf("%s: hint %q", tt.bucket, hintOf(err))
		}
		p.wantHits(t, 2)
	}
}

// TestAPIS3ReadsAPreviousVersionOfDamagedContent: in a bucket with versions, nobody destroys
// content by overwriting or deleting it. It is read all the same, and a verify reports what
// happened.
func TestAPIS3ReadsAPreviousVersionOfDamagedContent(t *testing.T) {
	onEach(t, s3test.Options{Versions: true},
		s3OlderVersions)
}

func s3OlderVersions(t *testing.T, server *s3test.Server) {
	server.NewVersionedBucket(t, "older")
	c := server.Client(t)
	b := newS3(t, s3.Options{Bucket: "older", Endpoint: server.Endpoint,
		CredentialsFile: server.CredentialsFile})
	s := openIn(t, b)
	shards, signed := putSnapshot(t, s)
	check := func(want ...object.Code) {
		t.Helper()
		if got, err := s.GetShard(t.Context(), shards[0]); err != nil ||
			string(got) != `{"unit":"fleet/alpha"}` {
			t.Errorf("shard: %q, %v", got, err)
		}
		report, err := s.VerifyStructure(t.Context(), signed.Envelope, nil)
		if err != nil {
			t.Fatal(err)
		}
		var codes []object.Code
		for _, f := range report.Findings {
			codes = append(codes, f.Code)
			if !strings.Contains(f.Message, "an older version that is whole") {
				t.Errorf("finding: %s", f.Message)
			}
		}
		if !slices.Equal(codes, want) {
			t.Errorf("findings %v, want %v", report.Findings, want)
		}
	}
	check()
	shard := string(shards[0])
	overwrite(t, c, "older", shard, "garbage")
	check(object.CodeDamaged)
	overwrite(t, c, "older", shard, "more garbage")
	check(object.CodeDamaged)
	mark(t, c, "older", shard)
	check(object.CodeMissing)
	mark(t, c, "older", string(signed.Tree))
	check(object.CodeMissing, object.CodeMissing)
	// The operator puts things right.
	for _, key := range []string{shard, string(signed.Tree)} {
		for _, v := range versions(t, c, "older", key) {
			if v.IsDeleteMarker || v.Size < 20 {
				if err := c.RemoveObject(t.Context(), "older", key,
					minio.RemoveObjectOptions{VersionID: v.VersionID}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	check()
	// Nothing helps when no version is whole.
	if err := b.Delete(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
	overwrite(t, c, "older", shard, "garbage")
	overwrite(t, c, "older", shard, "more garbage")
	if _, err := s.GetShard(t.Context(), store.Key(shard)); err == nil {
		t.Error("garbage was read")
	} else if _, ok := errors.AsType[*bucket.CorruptError](err); !ok {
		t.Errorf("%v, want *CorruptError", err)
	}
}
