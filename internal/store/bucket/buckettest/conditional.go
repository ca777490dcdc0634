package buckettest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// ConditionalBucket is a bucket that honours conditions on writes.
type ConditionalBucket interface {
	bucket.Bucket
	bucket.Conditional
}

// RunConditional tests the conditional writes of a bucket; open returns a new and empty one for
// each test.
func RunConditional(t *testing.T, open func(t *testing.T) ConditionalBucket) {
	tests := []struct {
		name string
		run  func(*testing.T, ConditionalBucket)
	}{
		{"a tag follows the bytes", testTags},
		{"a condition that does not hold changes nothing", testConflicts},
		{"of 16 writers one creates", testCreateRace},
		{"of 16 writers one replaces", testReplaceRace},
		{"no increment is lost", testIncrements},
		{"readers see whole records", testReadWhileReplaced},
		{"bad keys are refused", testConditionalBadKeys},
		{"a cancelled context ends every call", testConditionalCancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
}

func putIf(t *testing.T, b ConditionalBucket, key, data, tag string) string {
	t.Helper()
	newTag, err := b.PutIf(t.Context(), key, []byte(data), tag)
	if err != nil || newTag == "" {
		t.Fatalf("put %s if %q: tag %q, %v", key, tag, newTag, err)
	}
	return newTag
}

func wantTagged(t *testing.T, b ConditionalBucket, key, data, tag string) {
	t.Helper()
	got, gotTag, err := b.GetTagged(t.Context(), key)
	if err != nil || string(got) != data || gotTag != tag {
		t.Errorf("get %s: %q, tag %q, %v, want %q, tag %q", key, got, gotTag, err, data, tag)
	}
}

func testTags(t *testing.T, b ConditionalBucket) {
	if _, tag, err := b.GetTagged(t.Context(), "owners/a.json"); !errors.Is(err, bucket.ErrNotFound) ||
		tag != "" {
		t.Errorf("get of nothing: tag %q, %v, want ErrNotFound", tag, err)
	}
	first := putIf(t, b, "owners/a.json", "one", "")
	wantTagged(t, b, "owners/a.json", "one", first)
	second := putIf(t, b, "owners/a.json", "two", first)
	wantTagged(t, b, "owners/a.json", "two", second)
	if first == second {
		t.Error("other bytes have the same tag")
	}
	if got := get(t, b, "owners/a.json"); string(got) != "two" {
		t.Errorf("Get sees %q", got)
	}
	if got := list(t, b, ""); len(got) != 1 || got[0].Key != "owners/a.json" || got[0].Size != 3 {
		t.Errorf("list: %v, want the one key", got)
	}
	put(t, b, "owners/b.json", []byte("put"))
	_, tag, err := b.GetTagged(t.Context(), "owners/b.json")
	if err != nil {
		t.Fatal(err)
	}
	putIf(t, b, "owners/b.json", "", tag)
}

func testConflicts(t *testing.T, b ConditionalBucket) {
	first := putIf(t, b, "o/a", "one", "")
	second := putIf(t, b, "o/a", "two", first)
	for name, c := range map[string]struct{ key, tag string }{
		"must not be there, but is":        {"o/a", ""},
		"an old tag":                       {"o/a", first},
		"a tag of nothing":                 {"o/a", "0123456789abcdef0123456789abcdef"},
		"must be there, but is not":        {"o/none", second},
		"must be there, nor is its folder": {"new/none", second},
	} {
		if tag, err := b.PutIf(t.Context(), c.key, []byte("three"), c.tag); !errors.Is(err,
			bucket.ErrConflict) {
			t.Errorf("%s: tag %q, %v, want ErrConflict", name, tag, err)
		}
	}
	wantTagged(t, b, "o/a", "two", second)
	if got := list(t, b, ""); len(got) != 1 {
		t.Errorf("refused puts left something: %v", got)
	}
}

const writers, rounds = 16, 10

// race lets all writers put at once and returns the tag of the one that won.
func race(t *testing.T, b ConditionalBucket, key, tag string, round int) string {
	t.Helper()
	var wins atomic.Int32
	var winner, winnerTag atomic.Value
	var wg sync.WaitGroup
	start := make(chan struct{})
	for w := range writers {
		wg.Go(func() {
			data := fmt.Sprintf("%d by %d %s", round, w, strings.Repeat("x", 500))
			<-start
			switch newTag, err := b.PutIf(t.Context(), key, []byte(data), tag); {
			case err == nil:
				wins.Add(1)
				winner.Store(data)
				winnerTag.Store(newTag)
			case !errors.Is(err, bucket.ErrConflict):
				t.Errorf("put: %v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := wins.Load(); n != 1 {
		t.Fatalf("round %d: %d writers won, want 1", round, n)
	}
	wantTagged(t, b, key, winner.Load().(string), winnerTag.Load().(string))
	return winnerTag.Load().(string)
}

func testCreateRace(t *testing.T, b ConditionalBucket) {
	for round := range rounds {
		race(t, b, fmt.Sprintf("owners/%d.json", round), "", round)
	}
}

func testReplaceRace(t *testing.T, b ConditionalBucket) {
	tag := putIf(t, b, "owners/one.json", "begin", "")
	for round := range rounds {
		tag = race(t, b, "owners/one.json", tag, round)
	}
}

// testIncrements lets each writer sign what it adds, as records do: when an answer is lost, who
// wrote the same bytes as another cannot be distinguished from him.
func testIncrements(t *testing.T, b ConditionalBucket) {
	const each = 5
	putIf(t, b, "count", "begin", "")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var added []string
	for writer := range 4 {
		wg.Go(func() {
			for done, try := 0, 0; done < each; try++ {
				mine := fmt.Sprintf("%d.%d", writer, try)
				data, tag, err := b.GetTagged(t.Context(), "count")
				if err == nil {
					_, err = b.PutIf(t.Context(), "count", append(data, " "+mine...), tag)
				}
				switch {
				case err == nil:
					done++
					mu.Lock()
					added = append(added, mine)
					mu.Unlock()
				case !errors.Is(err, bucket.ErrConflict):
					t.Errorf("increment: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	there := strings.Fields(string(get(t, b, "count")))
	for _, mine := range added {
		if !slices.Contains(there, mine) {
			t.Errorf("%s was lost", mine)
		}
	}
}

func testReadWhileReplaced(t *testing.T, b ConditionalBucket) {
	tag := putIf(t, b, "k", strings.Repeat("0", 5000), "")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		for i := range 20 {
			tag = putIf(t, b, "k", strings.Repeat(string(rune('a'+i)), 5000), tag)
		}
	})
	for ctx.Err() == nil {
		data, _, err := b.GetTagged(t.Context(), "k")
		if err != nil || len(data) != 5000 || strings.Trim(string(data), string(data[:1])) != "" {
			t.Errorf("get while it is replaced: %d bytes, %v", len(data), err)
			break
		}
	}
	wg.Wait()
}

func testConditionalBadKeys(t *testing.T, b ConditionalBucket) {
	for _, key := range []string{"", "/abs", "dir/", "../up", "a/.lock", "é"} {
		if _, err := b.PutIf(t.Context(), key, nil, ""); !errors.Is(err, bucket.ErrInvalidKey) {
			t.Errorf("put %q: %v, want ErrInvalidKey", key, err)
		}
		if _, _, err := b.GetTagged(t.Context(), key); !errors.Is(err, bucket.ErrInvalidKey) {
			t.Errorf("get %q: %v, want ErrInvalidKey", key, err)
		}
	}
}

func testConditionalCancelled(t *testing.T, b ConditionalBucket) {
	tag := putIf(t, b, "there", "x", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.PutIf(ctx, "there", []byte("y"), tag); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v, want context.Canceled", err)
	}
	if _, _, err := b.GetTagged(ctx, "there"); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v, want context.Canceled", err)
	}
	wantTagged(t, b, "there", "x", tag)
}
