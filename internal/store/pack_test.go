package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/pack"
)

const nameA, nameB = "core/Secret/fleet/alpha-ca.json", "cluster.x-k8s.io/Cluster/fleet/alpha.json"

func readPack(t *testing.T, s *Store, key Key) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := s.ReadPack(t.Context(), key, func(name string, body []byte) error {
		files[name] = string(body)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestPackGivesBackEveryFile(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, _ string) {
		longName := entryName(t, Entry{Group: strings.Repeat("g.", 100) + "io", Kind: "Kind",
			Name: strings.Repeat("n", 253)})
		want := map[string]string{nameA: `{"a":1}`, nameB: "", longName: "long",
			"core/Namespace/_/fleet.json": "{}"}
		key := writePack(t, s, want)
		if key.Kind() != KindPack || strings.HasSuffix(string(key), ".age") != s.Encrypted() {
			t.Errorf("key %s", key)
		}
		if diff := cmp.Diff(want, readPack(t, s, key)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	})
}

func TestPackIsFinishedAtItsLimits(t *testing.T) {
	s, root := newTestStore(t, false)
	s.limits = smallLimits()
	w, err := s.NewPackWriter(t.Context(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	// packs of 3, 1, 1, 2
	sizes := []int{19 << 10, 19 << 10, 19 << 10, 19 << 10, int(s.limits.pack.MaxObject), 100, 1 << 10}
	wantPack := []int{0, 0, 0, 1, 2, 3, 3}
	var refs []*PackRef
	for i, size := range sizes {
		body := make([]byte, size)
		_, _ = rand.Read(body[:size/2])
		ref, err := w.Add(entryName(t, Entry{Kind: "Secret", Namespace: "n", Name: fmt.Sprint(i)}), body)
		if err != nil {
			t.Fatal(err)
		}
		if ref.Key() != "" {
			t.Error("a key is known before Close")
		}
		refs = append(refs, ref)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	packs := w.Packs()
	if len(packs) != 4 {
		t.Fatalf("%d packs, want 4", len(packs))
	}
	for i, ref := range refs {
		if ref.Key() != packs[wantPack[i]].Key {
			t.Errorf("object %d is not in pack %d", i, wantPack[i])
		}
	}
	for i, pack := range packs {
		info, err := s.bucket.Stat(t.Context(), string(pack.Key))
		if err != nil || info.Size != pack.Size {
			t.Errorf("pack %d: %v, %v, want %d bytes", i, info, err, pack.Size)
		}
	}
	n := 0
	for _, pack := range packs {
		n += len(readPack(t, mustOpen(t, Options{Bucket: directory.New(root), Keys: s.keys}), pack.Key))
	}
	if n != len(sizes) {
		t.Errorf("%d objects read back, want %d", n, len(sizes))
	}
}

// TestObjectWrittenTwiceIsInTwoPacks: an object that changed while it was captured is written
// twice, and both can be read.
func TestObjectWrittenTwiceIsInTwoPacks(t *testing.T) {
	s, _ := newTestStore(t, true)
	w, err := s.NewPackWriter(t.Context(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	var refs []*PackRef
	for _, body := range []string{"was", "is"} {
		ref, err := w.Add(nameA, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if refs[0].Key() == refs[1].Key() {
		t.Error("both are in one pack")
	}
	for i, want := range []string{"was", "is"} {
		err := s.ReadPack(t.Context(), refs[i].Key(), func(name string, body []byte) error {
			if name != nameA || string(body) != want {
				t.Errorf("%s holds %q, want %q", name, body, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestPackWriterGoesOnAfterARefusedFile(t *testing.T) {
	s, _ := newTestStore(t, true)
	s.limits = smallLimits()
	w, err := s.NewPackWriter(t.Context(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := w.Add(nameA, []byte("1")); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"../../etc/passwd": nil, "/abs": nil,
		nameB: make([]byte, s.limits.pack.MaxObject+1)} {
		if _, err := w.Add(name, body); err == nil {
			t.Errorf("add %s succeeded", name)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("close after refusals: %v", err)
	}
	if _, err := w.Add(nameB, nil); !errors.Is(err, pack.ErrClosed) {
		t.Errorf("add after close: %v", err)
	}
	if diff := cmp.Diff(map[string]string{nameA: "1"}, readPack(t, s, w.Packs()[0].Key)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestPackWriterWithoutFilesWritesNoPack(t *testing.T) {
	s, _ := newTestStore(t, false)
	w, err := s.NewPackWriter(t.Context(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || len(w.Packs()) != 0 {
		t.Errorf("close: %v, packs %v", err, w.Packs())
	}
}

func TestPackWriterAddsConcurrently(t *testing.T) {
	s, _ := newTestStore(t, false)
	s.limits = smallLimits()
	w, err := s.NewPackWriter(t.Context(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				ref, err := w.Add(fmt.Sprintf("core/Secret/ns/s-%d-%d.json", g, i), make([]byte, 2000))
				if err != nil {
					t.Error(err)
					return
				}
				_ = ref.Key()
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, pack := range w.Packs() {
		n += len(readPack(t, s, pack.Key))
	}
	if n != 200 || len(w.Packs()) < 2 {
		t.Errorf("%d objects in %d packs, want 200 in at least 2", n, len(w.Packs()))
	}
}

func TestFailedUploadEndsThePackWriter(t *testing.T) {
	s, _ := newTestStore(t, true)
	bucket := &crashing{Bucket: s.bucket}
	s.bucket, s.limits = bucket, smallLimits()
	w, err := s.NewPackWriter(t.Context(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	var ref *PackRef
	for i := range 20 {
		r, err := w.Add(fmt.Sprintf("core/Secret/ns/s-%d.json", i), make([]byte, 40<<10))
		if err != nil {
			if !errors.Is(err, errCrash) {
				t.Errorf("add: %v, want the error of the upload", err)
			}
			break
		}
		ref = r
	}
	if err := w.Close(); !errors.Is(err, errCrash) {
		t.Errorf("close: %v, want the error of the upload", err)
	}
	if bucket.hits.Load() == 0 || ref.Key() != "" || w.Packs() != nil {
		t.Errorf("hits %d, key %q, packs %v", bucket.hits.Load(), ref.Key(), w.Packs())
	}
}

func TestCancelledPackWriterWritesNothing(t *testing.T) {
	s, root := newTestStore(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.NewPackWriter(ctx, testTime)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(nameA, nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := w.Add(nameB, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("add: %v", err)
	}
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	aborted, err := s.NewPackWriter(t.Context(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := aborted.Add(nameA, nil); err != nil {
		t.Fatal(err)
	}
	aborted.Abort()
	if err := aborted.Close(); err == nil {
		t.Error("close after abort succeeded")
	}
	if key, err := firstKey(t.Context(), directory.New(root)); err != nil || key != markerKey {
		t.Errorf("something was written: %s, %v", key, err)
	}
}
