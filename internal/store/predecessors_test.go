package store

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/store/keys"
)

// recording keeps the requests about versions, and the keys that are read.
type recording struct {
	*faultbucket.Versioned
	mu       sync.Mutex
	requests []string
	reads    []string
}

func (r *recording) note(request string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request)
}

func (r *recording) Versions(ctx context.Context, key string) ([]bucket.Version, error) {
	r.note("versions " + key)
	return r.Versioned.Versions(ctx, key)
}

func (r *recording) ListVersions(ctx context.Context, prefix string,
	fn func(string, []bucket.Version) error) error {
	r.note("list " + prefix)
	return r.Versioned.ListVersions(ctx, prefix, fn)
}

func (r *recording) VersionSHA256(ctx context.Context, key, id string) (string, error) {
	r.note("hash " + key)
	return r.Versioned.VersionSHA256(ctx, key, id)
}

func (r *recording) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	r.mu.Lock()
	r.reads = append(r.reads, key)
	r.mu.Unlock()
	return r.Versioned.Get(ctx, key)
}

func (r *recording) GetVersion(ctx context.Context, key, id string) (io.ReadCloser, error) {
	r.mu.Lock()
	r.reads = append(r.reads, key+" "+id)
	r.mu.Unlock()
	return r.Versioned.GetVersion(ctx, key, id)
}

// TestOnlyABrokenChainCostsListsOfVersions: snapshots of the new key, and predecessors that are as
// they were written, cost none. Where somebody wrote over a predecessor, the versions of that key
// are listed; where the snapshot that was named is not there, those of the source are, once.
func TestOnlyABrokenChainCostsListsOfVersions(t *testing.T) {
	const folder = "snapshots/" + testSource + "/"
	for name, tt := range map[string]struct {
		spoil func(f *theft)
		asks  func(f *theft) []string
		want  []int64
	}{
		"whole": {func(*theft) {}, func(*theft) []string { return nil },
			[]int64{1, 2, 3, 4, 5, 6, 7, 8}},
		"a predecessor is written over": {func(f *theft) { overwrite(f.b, f.chain[1].Key().String()) },
			func(f *theft) []string { return []string{"versions " + f.chain[1].Key().String()} },
			[]int64{1, 2, 3, 4, 5, 6, 7, 8}},
		"a predecessor is gone": {func(f *theft) { f.b.Forget(f.chain[1].Key().String()) },
			func(*theft) []string { return nil }, []int64{3, 4, 5, 6, 7, 8}},
		"the head is written over": {func(f *theft) { overwrite(f.b, f.chain[3].Key().String()) },
			func(f *theft) []string {
				return []string{"list " + folder, "versions " + f.chain[3].Key().String()}
			}, []int64{1, 2, 3, 4, 5, 6, 7, 8}},
		"the head is gone": {func(f *theft) { f.b.Forget(f.chain[3].Key().String()) },
			func(*theft) []string { return []string{"list " + folder} }, []int64{5, 6, 7, 8}},
		"the head is hidden": {func(f *theft) { f.b.Hide(f.chain[3].Key().String()) },
			func(*theft) []string { return []string{"list " + folder} }, []int64{5, 6, 7, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTheft(t, 8, 4)
			tt.spoil(f)
			b := &recording{Versioned: f.b}
			s := mustOpen(t, Options{Bucket: b, Keys: mustLoad(t, f.fresh)})
			b.requests = nil // of the proof of mgmtd.json
			head := f.chain[3]
			if _, err := s.predecessors(t.Context(), testSource, []keys.LastTrusted{{
				Source: testSource, Sequence: 4, Hash: head.SHA256}}, false); err != nil {
				t.Fatal(err)
			}
			if want := tt.asks(f); !slices.Equal(b.requests, want) {
				t.Errorf("asked for\n%s\nwant\n%s", strings.Join(b.requests, "\n"),
					strings.Join(want, "\n"))
			}
			if got := trustedOf(t, f.b, f.fresh); !slices.Equal(got, tt.want) {
				t.Errorf("trusted %v, want %v", got, tt.want)
			}
		})
	}
}
