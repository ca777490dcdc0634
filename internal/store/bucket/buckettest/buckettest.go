// Package buckettest is the contract of bucket.Bucket as tests, for all its implementations.
package buckettest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Run tests a bucket; open returns a new and empty one for each test.
func Run(t *testing.T, open func(t *testing.T) bucket.Bucket) {
	tests := []struct {
		name string
		run  func(*testing.T, bucket.Bucket)
	}{
		{"put then get gives the bytes", testRoundTrip},
		{"put never overwrites", testNoOverwrite},
		{"of concurrent puts one wins", testConcurrentPut},
		{"concurrent puts of many keys", testManyPuts},
		{"what is not there is not found", testNotFound},
		{"list is sorted by byte and by prefix", testList},
		{"an error of fn ends the list", testListStops},
		{"bad keys are refused", testBadKeys},
		{"a cancelled context ends every call", testCancelled},
		{"a cancelled context ends a read", testCancelledRead},
		{"has a name", func(t *testing.T, b bucket.Bucket) {
			if b.String() == "" {
				t.Error("String is empty")
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
}

func put(t *testing.T, b bucket.Bucket, key string, data []byte) {
	t.Helper()
	if err := b.Put(t.Context(), key, data); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func get(t *testing.T, b bucket.Bucket, key string) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", key, err)
	}
	return data
}

func list(t *testing.T, b bucket.Bucket, prefix string) []bucket.Info {
	t.Helper()
	var infos []bucket.Info
	err := b.List(t.Context(), prefix, func(i bucket.Info) error {
		infos = append(infos, i)
		return nil
	})
	if err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	return infos
}

func testRoundTrip(t *testing.T, b bucket.Bucket) {
	large := make([]byte, 6<<20) // more than the 5 MiB of a part of an S3 upload
	_, _ = rand.Read(large)
	keys := map[string][]byte{
		"a":                                    []byte("top"),
		"dir/empty":                            {},
		"dir/deep/er/still/file.tar.zst.age":   []byte("x"),
		"UPPER/-dash_under.dot..dots":          []byte("odd"),
		"dir/large":                            large,
		strings.Repeat("n", 255):               []byte("long name"),
		strings.Repeat("d/", 30) + "tail":      []byte("deep"),
		"snapshots/uid/20260102T150405.000Z-a": []byte("{}"),
	}
	for key, data := range keys {
		put(t, b, key, data)
	}
	for key, data := range keys {
		if !bytes.Equal(get(t, b, key), data) {
			t.Errorf("get %.40s: other bytes than were put", key)
		}
		info, err := b.Stat(t.Context(), key)
		if err != nil || info.Key != key || info.Size != int64(len(data)) {
			t.Errorf("stat %.40s: %v, %v", key, info, err)
		}
		if age := time.Since(info.Modified); age < -time.Hour || age > time.Hour {
			t.Errorf("stat %.40s: it says it was written %s ago", key, age)
		}
	}
	if n := len(list(t, b, "")); n != len(keys) {
		t.Errorf("list: %d keys, want %d", n, len(keys))
	}
}

func testNoOverwrite(t *testing.T, b bucket.Bucket) {
	put(t, b, "k/one", []byte("first"))
	for _, data := range []string{"first", "other", ""} {
		err := b.Put(t.Context(), "k/one", []byte(data))
		if err == nil && data == "first" {
			continue // an answer was lost, and what is there has our bytes
		}
		if !errors.Is(err, bucket.ErrExists) {
			t.Errorf("second put: %v, want ErrExists", err)
		}
	}
	if got := get(t, b, "k/one"); string(got) != "first" {
		t.Errorf("after second put: %q", got)
	}
	if got := list(t, b, ""); len(got) != 1 {
		t.Errorf("a refused put left something: %v", got)
	}
}

func testConcurrentPut(t *testing.T, b bucket.Bucket) {
	const writers, rounds = 8, 20
	for round := range rounds {
		key := fmt.Sprintf("race/%d/key", round)
		var wins atomic.Int32
		var winner atomic.Value
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				data := bytes.Repeat([]byte{byte('a' + w)}, 10_000)
				switch err := b.Put(t.Context(), key, data); {
				case err == nil:
					wins.Add(1)
					winner.Store(data)
				case !errors.Is(err, bucket.ErrExists):
					t.Errorf("put: %v", err)
				}
			})
		}
		wg.Wait()
		if n := wins.Load(); n != 1 {
			t.Fatalf("%d puts of one key succeeded, want 1", n)
		}
		if !bytes.Equal(get(t, b, key), winner.Load().([]byte)) {
			t.Fatal("the bytes are not those of the put that succeeded")
		}
	}
}

func testManyPuts(t *testing.T, b bucket.Bucket) {
	const n = 64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := b.Put(t.Context(), fmt.Sprintf("p/%x/%d", i%4, i), []byte{1}); err != nil {
				t.Errorf("put: %v", err)
			}
		})
	}
	wg.Wait()
	if got := len(list(t, b, "p/")); got != n {
		t.Errorf("list: %d keys, want %d", got, n)
	}
}

func testNotFound(t *testing.T, b bucket.Bucket) {
	put(t, b, "dir/key", nil)
	for _, key := range []string{"none", "dir", "dir/none", "other/key", "dir/key/below"} {
		if _, err := b.Get(t.Context(), key); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("get %s: %v, want ErrNotFound", key, err)
		}
		if _, err := b.Stat(t.Context(), key); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("stat %s: %v, want ErrNotFound", key, err)
		}
	}
}

func testList(t *testing.T, b bucket.Bucket) {
	keys := []string{"a-b/x", "a.b", "a/b", "a/b.c", "a/bc/d", "a/bc-d", "a0", "B", "z/y/x", "aa/b"}
	for i, key := range keys {
		put(t, b, key, make([]byte, i))
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/bc", "a/bc/", "a/bc/d", "a/bc/d/", "z",
		"z/y/x", "none", "none/x", "B"} {
		var want, got []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		for _, info := range list(t, b, prefix) {
			got = append(got, info.Key)
			if stat, err := b.Stat(t.Context(), info.Key); err != nil || stat != info {
				t.Errorf("list says %v, stat %v, %v", info, stat, err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("list %q (-want +got):\n%s", prefix, diff)
		}
	}
}

func testListStops(t *testing.T, b bucket.Bucket) {
	for i := range 5 {
		put(t, b, fmt.Sprintf("d/%d", i), nil)
	}
	stop := errors.New("stop")
	calls := 0
	err := b.List(t.Context(), "", func(bucket.Info) error {
		if calls++; calls == 2 {
			return stop
		}
		return nil
	})
	if err != stop || calls != 2 {
		t.Errorf("list: %v after %d calls, want the error of fn after 2", err, calls)
	}
}

func testBadKeys(t *testing.T, b bucket.Bucket) {
	bad := []string{
		"", "/", "/abs", "dir/", "a//b", ".", "..", "../up", "a/../b", "a/./b", ".hidden", "a/.tmp-x",
		"space here", "back\\slash", "nul\x00", "é",
		"new\nline", "per%2fcent", "co:lon", strings.Repeat("n", 256), strings.Repeat("d/", 600) + "x",
	}
	for _, key := range bad {
		if err := b.Put(t.Context(), key, nil); !errors.Is(err, bucket.ErrInvalidKey) {
			t.Errorf("put %.40q: %v, want ErrInvalidKey", key, err)
		}
		if _, err := b.Get(t.Context(), key); !errors.Is(err, bucket.ErrInvalidKey) {
			t.Errorf("get %.40q: %v, want ErrInvalidKey", key, err)
		}
		if _, err := b.Stat(t.Context(), key); !errors.Is(err, bucket.ErrInvalidKey) {
			t.Errorf("stat %.40q: %v, want ErrInvalidKey", key, err)
		}
	}
	if got := list(t, b, ""); len(got) != 0 {
		t.Errorf("refused puts left %v", got)
	}
	for _, prefix := range []string{"../", "/", "a/../"} {
		if got := list(t, b, prefix); len(got) != 0 {
			t.Errorf("list %q: %v, want nothing", prefix, got)
		}
	}
}

func testCancelled(t *testing.T, b bucket.Bucket) {
	put(t, b, "there", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := b.Get(ctx, "there")
	_, statErr := b.Stat(ctx, "there")
	errs := map[string]error{
		"put":  b.Put(ctx, "new", []byte("x")),
		"get":  getErr,
		"stat": statErr,
		"list": b.List(ctx, "", func(bucket.Info) error { return nil }),
	}
	for call, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", call, err)
		}
	}
	if _, err := b.Stat(t.Context(), "new"); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("a cancelled put left the key: %v", err)
	}
}

func testCancelledRead(t *testing.T, b bucket.Bucket) {
	put(t, b, "one", make([]byte, 1<<20))
	put(t, b, "two", nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := b.Get(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	listCtx, cancelList := context.WithCancel(t.Context())
	err = b.List(listCtx, "", func(bucket.Info) error {
		cancelList()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("list cancelled in the middle: %v", err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Errorf("read after cancel: %v, want context.Canceled", err)
	}
}
