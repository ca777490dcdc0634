//go:build api

package s3_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// TestAPIS3BatchNeedsOneRequestWithoutVersions: a bucket that became versioned later is noticed by
// its answer, and keeps no version of the keys.
func TestAPIS3BatchNeedsOneRequestWithoutVersions(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3BatchRequests)
}

func s3BatchRequests(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	b, direct := p.bucket(t, "plain")
	batch := func(name string, n int) (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprintf("%s/%d/key", name, i))
			if err := direct.Put(t.Context(), keys[i], []byte(keys[i])); err != nil {
				t.Fatal(err)
			}
		}
		return keys
	}
	remove := func(keys []string) int32 {
		t.Helper()
		before := p.all.Load()
		if failed := b.DeleteBatch(t.Context(), keys); len(failed) > 0 {
			t.Fatalf("delete together: %v", failed)
		}
		return p.all.Load() - before
	}
	remove(batch("first", 3))
	if n := remove(append(batch("second", 100), "never/was")); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	old := batch("old", 3)
	if err := p.client.EnableVersioning(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	remove(append(batch("new", 3), old...))
	if left := versions(t, p.client, "plain", "p/"); len(left) != 1 ||
		left[0].Key != "p/conditional.json" {
		t.Errorf("left: %v", left)
	}
}

// TestAPIS3BatchRemovesAllVersions: with delete markers, and nothing of keys that only begin like
// them, with a list for each folder and one request for each step.
func TestAPIS3BatchRemovesAllVersions(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3BatchVersions)
}

func s3BatchVersions(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	s.NewVersionedBucket(t, "versions")
	b, direct := p.open(t, "versions")
	var keys []string
	for i := range 12 {
		key := fmt.Sprintf("k/%d/key-%d", i%2, i/2)
		keys = append(keys, key)
		for _, key := range []string{key, key + ".more"} {
			if err := direct.Put(t.Context(), key, []byte("first")); err != nil {
				t.Fatal(err)
			}
			overwrite(t, p.client, "versions", "p/"+key, "second")
			mark(t, p.client, "versions", "p/"+key)
			if i%3 > 0 { // else the marker is what is there now
				overwrite(t, p.client, "versions", "p/"+key, "third")
			}
		}
	}
	before := len(versions(t, p.client, "versions", "p/k/"))
	if failed := b.DeleteBatch(t.Context(), []string{"never/was"}); len(failed) > 0 {
		t.Fatal(failed)
	}
	requests := p.all.Load()
	if failed := b.DeleteBatch(t.Context(), keys); len(failed) > 0 {
		t.Fatalf("delete together: %v", failed)
	}
	// Two folders; delete markers, older bytes, newest bytes.
	if n := p.all.Load() - requests; n != 2+3 {
		t.Errorf("%d requests, want 5", n)
	}
	left := versions(t, p.client, "versions", "p/k/")
	for _, v := range left {
		for _, key := range keys {
			if v.Key == "p/"+key {
				t.Errorf("left: %s, marker %v", v.Key, v.IsDeleteMarker)
			}
		}
	}
	if len(left) != before/2 {
		t.Errorf("%d of %d versions are left", len(left), before)
	}
}

// TestAPIS3RetainedKeysOfABatchStay: the other ones go.
func TestAPIS3RetainedKeysOfABatchStay(t *testing.T) {
	onEach(t, s3test.Options{Versions: true}, s3BatchRetained)
}

func s3BatchRetained(t *testing.T, s *s3test.Server) {
	c := s.Client(t)
	s.NewLockedBucket(t, "locked")
	b := openLocked(t, s, "locked", s3.LockCompliance, 1)
	free := newS3(t, s3.Options{Bucket: "locked", Prefix: "p", Endpoint: s.Endpoint,
		CredentialsFile: s.CredentialsFile})
	keys := []string{"k/one", "k/retained", "k/two", "l/over"}
	for _, key := range keys {
		into := free
		if key == "k/retained" || key == "l/over" {
			into = b
		}
		if err := into.Put(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	// The newest bytes are not retained, and the older ones are: the key can still be read.
	overwrite(t, c, "locked", "p/l/over", "newer")
	mark(t, c, "locked", "p/l/over")
	failed := b.DeleteBatch(t.Context(), keys)
	for key, says := range map[string]string{"k/retained": "(Object Lock, compliance)", "l/over": ""} {
		wantRetained(t, failed[key], says)
		want := map[string]string{"k/retained": "k/retained", "l/over": "newer"}[key]
		if data, err := readAll(t, b, key); err != nil || string(data) != want {
			t.Errorf("%s: after the refusal: %q, %v, want %q", key, data, err, want)
		}
		delete(failed, key)
	}
	if len(failed) > 0 {
		t.Errorf("failed: %v", failed)
	}
	for _, key := range []string{"k/one", "k/two"} {
		if _, err := b.Stat(t.Context(), key); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", key, err)
		}
	}
}
