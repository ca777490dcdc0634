//go:build api

package s3_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// TestAPIS3RetainsOurVersionAndNotTheOneOnTop: somebody who may only put chooses whether the server
// has a checksum of his bytes. They are not retained in place of ours.
func TestAPIS3RetainsOurVersionAndNotTheOneOnTop(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3RetainsOurs)
}

func s3RetainsOurs(t *testing.T, s *s3test.Server) {
	s.NewLockedBucket(t, "ours")
	c := s.Client(t)
	st := openIn(t, openLocked(t, s, "ours", s3.LockGovernance, 1))
	shards, signed := putSnapshot(t, st)
	long := openIn(t, openLocked(t, s, "ours", s3.LockGovernance, 30))
	for _, key := range []string{string(shards[0]), "mgmtd.json"} {
		overwrite(t, c, "ours", "p/"+key, "junk without a checksum")
	}
	if _, err := long.Retain(t.Context(), shards[1:]); err != nil {
		t.Errorf("retain of what is whole, beside a mgmtd.json that is not: %v", err)
	}
	if _, err := long.Retain(t.Context(), shards[:1]); err == nil {
		t.Error("what was overwritten was retained without an error")
	} else if _, ok := errors.AsType[*bucket.CorruptError](err); !ok {
		t.Errorf("%v, want *CorruptError", err)
	}
	for _, key := range []string{string(shards[0]), "mgmtd.json"} {
		for _, v := range versions(t, c, "ours", "p/"+key) {
			_, until, err := c.GetObjectRetention(t.Context(), "ours", "p/"+key, v.VersionID)
			retained := err == nil && until != nil && time.Until(*until) > 20*24*time.Hour
			// versitygw names the element of its answer otherwise, and has none for what is not retained
			retained = retained || err != nil && strings.Contains(err.Error(), "ObjectLockRetention")
			if retained == v.IsLatest {
				t.Errorf("%s, on top %v: retained until %v, %v", key, v.IsLatest, until, err)
			}
		}
	}
	retained, err := long.RetainedUntil(t.Context(), signed)
	if err != nil || !retained.Asked || retained.Short == 0 {
		t.Errorf("an envelope of one day, asked for 30: %+v, %v", retained, err)
	}
}

// TestAPIS3NoticesAServerThatIgnoresObjectLock: when the first write is not retained although it
// asked for it, that is an error; without the right to see a retention nothing can be said.
func TestAPIS3NoticesAServerThatIgnoresObjectLock(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3IgnoresLock)
}

func s3IgnoresLock(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	s.NewLockedBucket(t, "ignores")
	// The proxy is a server that knows no Object Lock: it takes the headers away.
	ignore := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("object-lock") {
			answer(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	}
	p.set(ignore)
	o := s3.Options{Bucket: "ignores", Prefix: "a", Endpoint: p.URL,
		CredentialsFile: s.CredentialsFile, ObjectLock: s3.LockGovernance, RetentionDays: 7}
	if err := newS3(t, o).Put(t.Context(), "key", []byte("x")); err != nil {
		t.Errorf("put that is retained: %v", err)
	}
	var usage *bucket.UsageError
	for _, denied := range []bool{false, true} {
		heads := 0
		p.set(func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case ignore(w, r):
				return true
			case r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/key"):
				heads++
				w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
				w.Header().Set("ETag", `"0123"`)
				w.Header().Set("Content-Length", "1")
				w.WriteHeader(http.StatusOK)
				return true
			case r.URL.Query().Has("retention") && denied:
				answer(w, r, http.StatusForbidden, "AccessDenied")
				return true
			case r.URL.Query().Has("retention"):
				answer(w, r, http.StatusNotFound, "NoSuchObjectLockConfiguration")
				return true
			}
			return false
		})
		o.Prefix = map[bool]string{false: "b", true: "c"}[denied]
		b := newS3(t, o)
		err := b.Put(t.Context(), "key", []byte("x"))
		if errors.As(err, &usage) == denied || denied && err != nil {
			t.Errorf("may not see retentions %v: %v", denied, err)
		}
		if err := b.Put(t.Context(), "other", []byte("x")); denied && (err != nil || heads != 1) {
			t.Errorf("another key: %v, %d heads", err, heads)
		}
	}
}
