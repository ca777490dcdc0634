//go:build api

package s3_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// days is how long the newest version of a key is retained, in days from now and rounded; 0 when
// it is not.
func days(t *testing.T, c *minio.Client, bucket, key string) (mode string, days float64) {
	t.Helper()
	info, err := c.StatObject(t.Context(), bucket, key, minio.StatObjectOptions{})
	if err != nil {
		t.Fatalf("retention of %s: %v", key, err)
	}
	text := info.Metadata.Get("X-Amz-Object-Lock-Retain-Until-Date")
	if text == "" {
		return "", 0
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatalf("retention of %s: %v", key, err)
	}
	return info.Metadata.Get("X-Amz-Object-Lock-Mode"), time.Until(until).Round(time.Hour).Hours() / 24
}

func wantRetained(t *testing.T, err error, says string) {
	t.Helper()
	if !errors.Is(err, bucket.ErrRetained) || !strings.Contains(err.Error(), says) ||
		!strings.Contains(hintOf(err), "next prune") {
		t.Errorf("delete: %v (hint %q), want ErrRetained with %q and a hint", err, hintOf(err), says)
	}
}

// TestAPIS3RetainedKeysCannotBeDeleted: after a refused deletion the key can still be read.
func TestAPIS3RetainedKeysCannotBeDeleted(t *testing.T) {
	onEach(t, s3test.Options{Versions: true},
		s3Retained)
}

func s3Retained(t *testing.T, s *s3test.Server) {
	c := s.Client(t)
	for _, mode := range []s3.LockMode{s3.LockGovernance, s3.LockCompliance} {
		name := "retained-" + string(mode)
		s.NewLockedBucket(t, name)
		b := openLocked(t, s, name, mode, 30)
		stays := func(what, says string) {
			t.Helper()
			wantRetained(t, b.Delete(t.Context(), "k/key"), says)
			if data, err := readAll(t, b, "k/key"); err != nil || string(data) != what {
				t.Errorf("after the refusal: %q, %v, want %q", data, err, what)
			}
		}
		if err := b.Put(t.Context(), "k/key", []byte("retained")); err != nil {
			t.Fatal(err)
		}
		if got, n := days(t, c, name, "p/k/key"); got != strings.ToUpper(string(mode)) || n < 37 ||
			n > 38 {
			t.Errorf("retained for %v days by %s", n, got)
		}
		stays("retained", "(Object Lock, "+string(mode)+")")
		overwrite(t, c, name, "p/k/key", "overwritten")
		stays("overwritten", "") // versitygw does not say until when
		mark(t, c, name, "p/k/key")
		wantRetained(t, b.Delete(t.Context(), "k/key"), "")
		if _, err := readAll(t, b, "k/key"); err != nil {
			t.Errorf("after the refusal: %v", err)
		}
		// What nothing uses again is retained as it was asked for; what changes is not.
		for key, want := range map[string]float64{"snapshots/uid/x.json": 30, "operations/x/y": 30,
			"mgmtd.json": 37.5} {
			if err := b.Put(t.Context(), key, nil); err != nil {
				t.Fatal(err)
			}
			if _, n := days(t, c, name, "p/"+key); n < want-0.1 || n > want+0.1 {
				t.Errorf("%s is retained for %v days, want %v", key, n, want)
			}
		}
		tag, err := b.PutIf(t.Context(), "owners/x.json", []byte("one"), "")
		if err == nil {
			_, err = b.PutIf(t.Context(), "owners/x.json", []byte("two"), tag)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"p/owners/x.json", "p/conditional.json"} {
			if _, n := days(t, c, name, key); n != 0 {
				t.Errorf("%s is retained for %v days", key, n)
			}
		}
		if err := b.Delete(t.Context(), "owners/x.json"); err != nil {
			t.Error(err)
		}
		// A legal hold is no retention, but prevents a deletion as well.
		overwrite(t, c, name, "p/held", "held")
		on := minio.LegalHoldEnabled
		if err := c.PutObjectLegalHold(t.Context(), name, "p/held",
			minio.PutObjectLegalHoldOptions{Status: &on}); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), "held"); !errors.Is(err, bucket.ErrRetained) ||
			!strings.Contains(hintOf(err), "legal hold") {
			t.Errorf("delete of what is held: %v", err)
		}
	}
}

// TestAPIS3RetainProlongsOnlyWhatIsTooShort: keys are retained again when their retention would
// end too early, and only then; their mode does not change.
func TestAPIS3RetainProlongsOnlyWhatIsTooShort(t *testing.T) {
	onEach(t,
		s3test.Options{Versions: true}, s3Retain)
}

func s3Retain(t *testing.T, s *s3test.Server) {
	s.NewLockedBucket(t, "retain")
	p := newProxy(t, s)
	short := openLocked(t, s, "retain", s3.LockGovernance, 1)
	long := newS3(t, s3.Options{Bucket: "retain", Prefix: "p", Endpoint: p.URL,
		CredentialsFile: s.CredentialsFile, ObjectLock: s3.LockCompliance, RetentionDays: 10})
	if err := short.Put(t.Context(), "a", []byte("a")); err != nil {
		t.Fatal(err)
	}
	overwrite(t, p.client, "retain", "p/never", "not retained yet")
	puts := func(key, text string, want int32, mode string, least float64) {
		t.Helper()
		p.set(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				p.hits.Add(1)
			}
			return false
		})
		until, err := long.Retain(t.Context(), key, layout.SHA256Hex([]byte(text)))
		if err != nil {
			t.Fatal(err)
		}
		got, n := days(t, p.client, "retain", "p/"+key)
		if p.hits.Load() != want || got != mode || n < least || n > least+0.1 ||
			time.Until(until) < 10*24*time.Hour {
			t.Errorf("%s: %d writes, retained for %v days by %s", key, p.hits.Load(), n, got)
		}
	}
	if _, n := days(t, p.client, "retain", "p/a"); n != 2 {
		t.Errorf("for a day: %v days", n)
	}
	puts("a", "a", 1, "GOVERNANCE", 12.5)
	puts("a", "a", 0, "GOVERNANCE", 12.5)
	puts("never", "not retained yet", 1, "COMPLIANCE", 12.5)
	if err := long.Put(t.Context(), "new", nil); err != nil {
		t.Fatal(err)
	}
	puts("new", "", 0, "COMPLIANCE", 12.5)
	// never for less than before
	if until, err := short.Retain(t.Context(), "a", layout.SHA256Hex([]byte("a"))); err != nil ||
		time.Until(until) < 12*24*time.Hour {
		t.Errorf("retain for less: %v, %v", until, err)
	}
	if _, err := long.Retain(t.Context(), "none", ""); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("retain nothing: %v, want ErrNotFound", err)
	}
	mark(t, p.client, "retain", "p/new")
	if _, err := long.Retain(t.Context(), "new", ""); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("retain what was deleted: %v, want ErrNotFound", err)
	}
	p.set(nil)
	s.NewLockedBucket(t, "checksum")
	st := openIn(t, openLocked(t, s, "checksum", s3.LockGovernance, 1))
	shards, _ := putSnapshot(t, st)
	// What was put with a checksum, and is not that of its name, is not ours.
	o := minio.PutObjectOptions{UserMetadata: map[string]string{
		"x-amz-checksum-sha256": "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="},
		DisableContentSha256: true}
	core := minio.Core{Client: p.client}
	if _, err := core.PutObject(t.Context(), "checksum", "p/"+string(shards[0]),
		strings.NewReader("hello world"), 11, "", "", o); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Retain(t.Context(), shards); err == nil {
		t.Error("bytes of somebody else were retained")
	} else if _, ok := errors.AsType[*bucket.CorruptError](err); !ok {
		t.Errorf("%v, want *CorruptError", err)
	}
}

// TestAPIS3ExistingKeyIsRetainedLikeANewOne: a plain store may write a key that exists already.
func TestAPIS3ExistingKeyIsRetainedLikeANewOne(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3ExistingIsRetained)
}

func s3ExistingIsRetained(t *testing.T, s *s3test.Server) {
	s.NewLockedBucket(t, "again")
	c := s.Client(t)
	putSnapshot(t, openIn(t, openLocked(t, s, "again", s3.LockGovernance, 1)))
	shards, signed := putSnapshot(t, openIn(t, openLocked(t, s, "again", s3.LockGovernance, 20)))
	for _, key := range append(shards, signed.Tree, store.Key(signed.Key().String())) {
		if _, n := days(t, c, "again", "p/"+string(key)); n < 20 {
			t.Errorf("%s is retained for %v days", key, n)
		}
	}
}

// TestAPIS3WritesNothingIntoABucketWithoutObjectLock: when Object Lock is asked for, the first
// write is an error.
func TestAPIS3WritesNothingIntoABucketWithoutObjectLock(t *testing.T) {
	onEach(t, s3test.Options{Versions: true},
		s3NoObjectLock)
}

func s3NoObjectLock(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	s.NewBucket(t, "plain")
	s.NewVersionedBucket(t, "versioned")
	for _, name := range []string{"plain", "versioned"} {
		for denied := range 2 {
			o := s3.Options{Bucket: name, Endpoint: p.URL, CredentialsFile: s.CredentialsFile,
				ObjectLock: s3.LockGovernance, RetentionDays: 7}
			p.set(func(w http.ResponseWriter, r *http.Request) bool {
				if denied == 0 || !r.URL.Query().Has("object-lock") {
					return false
				}
				p.hits.Add(1)
				answer(w, r, http.StatusForbidden, "AccessDenied")
				return true
			})
			_, err := store.Open(t.Context(), store.Options{Bucket: newS3(t, o), Plain: true, Create: true})
			if usage, ok := errors.AsType[*bucket.UsageError](err); !ok ||
				!strings.Contains(usage.Error(), "has none") ||
				!strings.Contains(usage.Hint(), "with Object Lock") {
				t.Errorf("%s, may not ask: %v: %v, want *UsageError", name, denied == 1, err)
			}
			p.wantHits(t, int32(denied))
			if left := versions(t, p.client, name, ""); denied == 0 && len(left) > 0 {
				t.Errorf("written: %v", left)
			}
		}
	}
}
