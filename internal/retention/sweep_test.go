package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// litter stores content that no snapshot names, and lets it become old. It returns the keys.
func litter(t *testing.T, b *clocked, st *store.Store, n int) (keys []string) {
	t.Helper()
	for i := range n {
		stored, err := st.PutShard(t.Context(), fmt.Appendf(nil, `{"n":%d}`, i))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, string(stored.Key))
	}
	slices.Sort(keys)
	b.pass(24 * time.Hour)
	return keys
}

// littered is a store with one snapshot and old content that no snapshot names.
func littered(t *testing.T, size, n int) (*clocked, *store.Store, []string) {
	t.Helper()
	b := newClocked(t)
	b.size = size
	st := openPlain(t, b)
	(&taker{st: st, source: sourceA}).take(t, b.time(), nil)
	return b, st, litter(t, b, st, n)
}

// TestPruneDeletesContentInBatches: each key goes once, and no batch is larger than the storage
// wants it.
func TestPruneDeletesContentInBatches(t *testing.T) {
	b, st, keys := littered(t, 4, 10)
	r := mustPrune(t, options(st, b, Policy{}))
	var sizes []int
	for _, batch := range b.batches {
		sizes = append(sizes, len(batch))
	}
	slices.Sort(sizes)
	if diff := cmp.Diff([]int{2, 4, 4}, sizes); diff != "" {
		t.Errorf("sizes of batches (-want +got):\n%s", diff)
	}
	deleted := slices.Sorted(slices.Values(slices.Concat(b.batches...)))
	if diff := cmp.Diff(keys, deleted); diff != "" {
		t.Errorf("deleted in batches (-want +got):\n%s", diff)
	}
	if r.Freed != r.Frees || r.Freed.Keys != 10 {
		t.Errorf("freed %+v of %+v", r.Freed, r.Frees)
	}
	whole(t, st)
}

// TestOneKeyOfABatchMayStay: each key has its own outcome, and its own bytes.
func TestOneKeyOfABatchMayStay(t *testing.T) {
	b, st, keys := littered(t, 100, 5)
	b.retained[keys[1]] = true
	r := mustPrune(t, options(st, b, Policy{}))
	info, err := b.Stat(t.Context(), keys[1])
	if err != nil {
		t.Fatal(err)
	}
	if r.Freed.Keys != 4 || r.Retained != (Amount{Keys: 1, Bytes: info.Size}) ||
		r.Freed.Bytes+info.Size != r.Frees.Bytes {
		t.Errorf("freed %+v, retained %+v of %+v", r.Freed, r.Retained, r.Frees)
	}
	if len(r.Findings) != 1 || r.Findings[0].Code != object.CodeRetained ||
		!strings.Contains(r.Findings[0].Message, keys[1]) {
		t.Errorf("findings %v", r.Findings)
	}
}

// TestADeniedKeyOfABatchEndsThePrune: what the batch deleted counts, and the error names the key.
func TestADeniedKeyOfABatchEndsThePrune(t *testing.T) {
	b, st, keys := littered(t, 100, 5)
	b.batch = func(ctx context.Context, list []string) map[string]error {
		rest := slices.DeleteFunc(slices.Clone(list), func(k string) bool { return k == keys[2] })
		failed := bucket.DeleteEach(ctx, b, rest)
		failed[keys[2]] = &bucket.Error{Op: "delete", Key: keys[2], Class: bucket.ErrDenied}
		return failed
	}
	r, err := prune(t.Context(), options(st, b, Policy{}))
	if !errors.Is(err, bucket.ErrDenied) || !strings.Contains(err.Error(), keys[2]) ||
		r.Freed.Keys != 4 {
		t.Errorf("%v, freed %+v", err, r.Freed)
	}
}

// TestWhatIsNotDeletedInABatchIsDeletedAlone: because the server does not know such requests, or
// does not answer them in time.
func TestWhatIsNotDeletedInABatchIsDeletedAlone(t *testing.T) {
	for name, batch := range map[string]func(b *clocked) func(context.Context,
		[]string) map[string]error{
		"not known": func(b *clocked) func(context.Context, []string) map[string]error {
			return func(_ context.Context, keys []string) map[string]error {
				b.mu.Lock()
				b.size = 1
				b.mu.Unlock()
				return each(keys, fmt.Errorf("%w: not implemented", bucket.ErrUnbatched))
			}
		},
		"half of it": func(b *clocked) func(context.Context, []string) map[string]error {
			return func(ctx context.Context, keys []string) map[string]error {
				failed := each(keys[:len(keys)/2], bucket.ErrUnbatched)
				maps.Copy(failed, bucket.DeleteEach(ctx, b, keys[len(keys)/2:]))
				return failed
			}
		},
		"not in time": func(*clocked) func(context.Context, []string) map[string]error {
			return func(ctx context.Context, keys []string) map[string]error {
				<-ctx.Done()
				return each(keys, &bucket.Error{Op: "delete", Err: ctx.Err()})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, st, _ := littered(t, 4, 10)
				b.batch = batch(b)
				r := mustPrune(t, options(st, b, Policy{}))
				if r.Freed != r.Frees || r.Freed.Keys != 10 || len(r.Findings) > 0 {
					t.Errorf("freed %+v of %+v, %v", r.Freed, r.Frees, r.Findings)
				}
				if got := contents(t, st); got != 3 {
					t.Errorf("%d keys are left", got)
				}
			})
		})
	}
}

func each(keys []string, err error) map[string]error {
	failed := map[string]error{}
	for _, key := range keys {
		failed[key] = err
	}
	return failed
}
