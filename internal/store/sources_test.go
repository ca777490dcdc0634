package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// countingBucket counts the keys that are opened.
type countingBucket struct {
	*directory.Bucket
	gets atomic.Int64
}

func (b *countingBucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	b.gets.Add(1)
	return b.Bucket.Get(ctx, key)
}

// putJunk puts files under the names of envelopes of a source, which the storage received at a
// time.
func putJunk(t *testing.T, root, source string, n int, received time.Time, text string) {
	t.Helper()
	folder := filepath.Join(root, layout.EnvelopeFolder, source)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		file := filepath.Join(folder, fmt.Sprintf("99991231T235959.%03dZ-%012d.json", i, i))
		err := os.WriteFile(file, []byte(text), 0o600)
		if err == nil {
			err = os.Chtimes(file, received, received)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSearchForSourcesIsBounded: however many sources somebody puts into the bucket, and however
// many files into the folder of a source, the sources that were there before are found, with a
// bounded number of reads.
func TestSearchForSourcesIsBounded(t *testing.T) {
	_, root := newTestStore(t, true)
	counting := &countingBucket{Bucket: directory.New(root)}
	s := mustOpen(t, Options{Bucket: counting, Plain: true})
	real := mustWriteSnapshot(t, s, 1, nil)
	now := time.Now()
	putJunk(t, root, testSource, 50, now.Add(time.Minute), "junk")
	const junk = MostSources + 100
	for i := range junk {
		// their UIDs sort before that of the real source
		putJunk(t, root, fmt.Sprintf("00000000-0000-4000-8000-%012d", i), 1, now.Add(time.Hour), "junk")
	}
	counting.gets.Store(0)
	found, unread, err := s.SearchSources(t.Context())
	if err != nil || len(found) != MostSources || unread != junk+1-MostSources {
		t.Fatalf("found %d sources, %d unread, %v", len(found), unread, err)
	}
	first := found[0]
	if first.UID != testSource || first.Snapshot == nil || first.Snapshot.ID != real.ID ||
		first.Name() != "prod" || len(first.Passed) == 0 {
		t.Errorf("found %+v, want the real source first", first)
	}
	for _, f := range found[1:] {
		if f.Snapshot != nil || f.Name() != "" || len(f.Passed) != 1 ||
			!strings.HasPrefix(f.UID, "00000000") {
			t.Fatalf("junk counts: %+v", f)
		}
	}
	if most := int64(MostSources + 3*sourceReads); counting.gets.Load() > most {
		t.Errorf("%d reads, want at most %d", counting.gets.Load(), most)
	}
}

// TestSearchForSourcesReadsTheNewest: a source has the name that its newest snapshot gives it.
func TestSearchForSourcesReadsTheNewest(t *testing.T) {
	s, _ := newTestStore(t, false)
	first := mustWriteSnapshot(t, s, 1, nil)
	for i := range int64(9) {
		e := testEnvelope(first.Tree, 2+i)
		e.Source.Name = fmt.Sprintf("name-%d", i)
		if _, err := s.PutEnvelope(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	found, unread, err := s.SearchSources(t.Context())
	if err != nil || unread != 0 || len(found) != 1 || found[0].Name() != "name-8" {
		t.Errorf("found %+v, %d unread, %v", found, unread, err)
	}
}
