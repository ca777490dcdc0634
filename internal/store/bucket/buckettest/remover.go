package buckettest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// RemoverBucket is a bucket from which keys may be deleted.
type RemoverBucket interface {
	bucket.Bucket
	bucket.Remover
}

// RunRemover tests the deletions of a bucket; open returns a new and empty one for each test.
func RunRemover(t *testing.T, open func(t *testing.T) RemoverBucket) {
	tests := []struct {
		name string
		run  func(*testing.T, RemoverBucket)
	}{
		{"what is deleted is gone, and nothing else", testDelete},
		{"a key can be put again", testPutAfterDelete},
		{"many at once may delete one key", testConcurrentDelete},
		{"deletes and puts in one folder at once lose nothing", testDeleteDuringPuts},
		{"bad keys are refused by delete", testDeleteBadKeys},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
}

// BatchBucket is a bucket from which many keys may be deleted together.
type BatchBucket interface {
	bucket.Bucket
	bucket.BatchRemover
}

// RunBatchRemover tests the deletions of many keys together; open returns a new and empty bucket
// for each test.
func RunBatchRemover(t *testing.T, open func(t *testing.T) BatchBucket) {
	t.Run("keys that are deleted together are gone, and nothing else", func(t *testing.T) {
		testDeleteBatch(t, open(t))
	})
	t.Run("each key that is deleted together has an outcome", func(t *testing.T) {
		testDeleteBatchBadKeys(t, open(t))
	})
}

func remove(t *testing.T, b bucket.Remover, key string) {
	t.Helper()
	if err := b.Delete(t.Context(), key); err != nil {
		t.Fatalf("delete %s: %v", key, err)
	}
}

func testDelete(t *testing.T, b RemoverBucket) {
	for _, key := range []string{"a/one", "a/one.more", "a/two", "b"} {
		put(t, b, key, []byte(key))
	}
	for range 2 {
		remove(t, b, "a/one")
		remove(t, b, "b")
		remove(t, b, "never/was")
		remove(t, b, "a") // a folder
		remove(t, b, "a/two/below")
	}
	for _, key := range []string{"a/one", "b"} {
		if _, err := b.Stat(t.Context(), key); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("stat %s: %v, want ErrNotFound", key, err)
		}
		if _, err := b.Get(t.Context(), key); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("get %s: %v, want ErrNotFound", key, err)
		}
	}
	if got := list(t, b, ""); len(got) != 2 || got[0].Key != "a/one.more" || got[1].Key != "a/two" {
		t.Errorf("list: %v", got)
	}
}

func testPutAfterDelete(t *testing.T, b RemoverBucket) {
	for i := range 3 {
		want := fmt.Sprintf("round %d", i)
		put(t, b, "again/key", []byte(want))
		if got := get(t, b, "again/key"); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
		remove(t, b, "again/key")
	}
	if got := list(t, b, ""); len(got) != 0 {
		t.Errorf("list: %v", got)
	}
}

func testConcurrentDelete(t *testing.T, b RemoverBucket) {
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		put(t, b, key, []byte("x"))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := b.Delete(t.Context(), key); err != nil {
					t.Errorf("delete: %v", err)
				}
			})
		}
		wg.Wait()
	}
	if got := list(t, b, ""); len(got) != 0 {
		t.Errorf("list: %v", got)
	}
}

func testDeleteDuringPuts(t *testing.T, b RemoverBucket) {
	const n = 32
	for i := range n {
		put(t, b, fmt.Sprintf("f/%d/old", i%4*100+i), nil)
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := b.Delete(t.Context(), fmt.Sprintf("f/%d/old", i%4*100+i)); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
		wg.Go(func() {
			if err := b.Put(t.Context(), fmt.Sprintf("f/%d/new", i%4*100+i), nil); err != nil {
				t.Errorf("put: %v", err)
			}
		})
	}
	wg.Wait()
	if got := len(list(t, b, "")); got != n {
		t.Errorf("list: %d keys, want %d", got, n)
	}
}

func testDeleteBadKeys(t *testing.T, b RemoverBucket) {
	for _, key := range []string{"", "/", "../up", "a//b", ".hidden", "a/../b", "a/"} {
		if err := b.Delete(t.Context(), key); !errors.Is(err, bucket.ErrInvalidKey) {
			t.Errorf("delete %q: %v, want ErrInvalidKey", key, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Delete(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("delete with a cancelled context: %v", err)
	}
}

func testDeleteBatch(t *testing.T, b BatchBucket) {
	size := b.BatchSize()
	var keys []string
	for i := range 40 {
		key := fmt.Sprintf("f/%d/key-%d", i%3, i)
		put(t, b, key, []byte(key))
		put(t, b, key+".more", []byte("more"))
		keys = append(keys, key)
	}
	keys = append(keys, "f/never-was", "never/was")
	for range 2 {
		if failed := b.DeleteBatch(t.Context(), keys); len(failed) > 0 {
			t.Errorf("delete together: %v", failed)
		}
	}
	left := list(t, b, "")
	for _, i := range left {
		if !strings.HasSuffix(i.Key, ".more") {
			t.Errorf("left: %s", i.Key)
		}
	}
	if len(left) != 40 {
		t.Errorf("%d keys are left, want 40", len(left))
	}
	put(t, b, keys[0], []byte("again"))
	if got := get(t, b, keys[0]); string(got) != "again" {
		t.Errorf("put after it was deleted: %q", got)
	}
	if now := b.BatchSize(); now != size {
		t.Errorf("it deletes %d keys at a time after that, and %d before", now, size)
	}
}

func testDeleteBatchBadKeys(t *testing.T, b BatchBucket) {
	put(t, b, "a/good", nil)
	failed := b.DeleteBatch(t.Context(), []string{"a//bad", "a/good", "../up"})
	for _, key := range []string{"a//bad", "../up"} {
		if !errors.Is(failed[key], bucket.ErrInvalidKey) {
			t.Errorf("delete %q: %v, want ErrInvalidKey", key, failed[key])
		}
	}
	if got := list(t, b, ""); len(failed) != 2 || len(got) != 0 {
		t.Errorf("failed: %v, left: %v", failed, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.DeleteBatch(ctx, []string{"a"})["a"]; !errors.Is(err, context.Canceled) {
		t.Errorf("delete together with a cancelled context: %v", err)
	}
}
