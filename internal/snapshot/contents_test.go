package snapshot

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestContentsHoldNoMoreThanCompressedBytes: the memory of a restore follows the compressed size
// of its snapshot, not the size of its objects.
func TestContentsHoldNoMoreThanCompressedBytes(t *testing.T) {
	c, err := newContents(nil)
	if err != nil {
		t.Fatal(err)
	}
	ref := object.Ref{Kind: "ConfigMap", Namespace: "n", Name: "c"}
	body := bytes.Repeat([]byte(`{"key":"value"}`), 1000)
	if _, err := c.put(ref, body); err != nil {
		t.Fatal(err)
	}
	if held := cap(c.bodies[ref]); held > len(body)/10 {
		t.Errorf("holds %d bytes for %d compressed ones", held, len(c.bodies[ref]))
	}
	if got, err := c.Bytes(ref); err != nil || !bytes.Equal(got, body) {
		t.Errorf("got %d bytes back: %v", len(got), err)
	}
}

// TestContentsHoldWhatObjectsHaveInCommonOnce: objects of some kinds, put by two goroutines and
// read meanwhile. Each has fields of its own that cannot be compressed, and those of its kind. All
// come back whole, also those from before there was a dictionary of their kind.
func TestContentsHoldWhatObjectsHaveInCommonOnce(t *testing.T) {
	const kinds, each, own = 20, 200, 32
	random := rand.New(rand.NewPCG(1, 2))
	var common [kinds][]byte
	for k := range kinds {
		common[k] = make([]byte, 2000)
		for i := range common[k] {
			common[k][i] = byte(random.Uint32())
		}
	}
	ref := func(k, i int) object.Ref {
		return object.Ref{Kind: fmt.Sprint("Kind", k), Name: fmt.Sprint(i)}
	}
	body := func(k, i int) []byte {
		text := fmt.Appendf(nil, "%0*d", own, i*i*7919)
		return append(text, common[k]...)
	}
	c, err := newContents(nil)
	if err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	for half := range 2 {
		g.Go(func() {
			for k := range kinds {
				for i := half; i < each; i += 2 {
					if _, err := c.put(ref(k, i), body(k, i)); err != nil {
						t.Error(err)
					}
					if got, err := c.Bytes(ref(0, half)); err != nil || !bytes.Equal(got, body(0, half)) {
						t.Errorf("read meanwhile: %d bytes, %v", len(got), err)
					}
				}
			}
		})
	}
	g.Wait()
	held := 0
	for k := range kinds {
		for i := range each {
			got, err := c.Bytes(ref(k, i))
			if err != nil || !bytes.Equal(got, body(k, i)) {
				t.Fatalf("%v: %d bytes came back, %v", ref(k, i), len(got), err)
			}
			held += len(c.bodies[ref(k, i)])
		}
	}
	if alone := kinds * each * 2000; held > alone/2 {
		t.Errorf("%d bytes are held for %d", held, alone)
	}
	if n := len(c.codec.dictionaries); n == 0 || n > maxDictionaries {
		t.Errorf("%d dictionaries", n)
	}
}

// TestContentsThatAreCompleteHaveNoEncoders: a move has the contents of many batches, and the
// buffers of an encoder take more memory than a batch.
func TestContentsThatAreCompleteHaveNoEncoders(t *testing.T) {
	c, err := newContents(nil)
	if err != nil {
		t.Fatal(err)
	}
	ref := func(i int) object.Ref {
		return object.Ref{Kind: fmt.Sprint("Kind", i%3), Name: fmt.Sprint(i)}
	}
	body := func(i int) []byte { return fmt.Appendf(nil, "object %d", i) }
	for i := range 3 * learnAfter {
		if _, err := c.put(ref(i), body(i)); err != nil {
			t.Fatal(err)
		}
	}
	if c.rest(); c.codec.enc != nil {
		t.Error("there is an encoder")
	}
	only, err := c.Only([]object.Ref{ref(1), ref(7), {Kind: "Kind", Name: "none"}})
	if err != nil || len(only.bodies) != 2 || only.codec.enc != nil || only.codec.samples != nil {
		t.Errorf("some of them: %d objects, %v", len(only.bodies), err)
	}
	for _, of := range []*Contents{c, only} {
		if _, err := of.put(ref(2), body(2)); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{1, 2, 7} {
			if got, err := of.Bytes(ref(i)); err != nil || !bytes.Equal(got, body(i)) {
				t.Errorf("%q came back, %v", got, err)
			}
		}
	}
}

// TestContentsComeBackFromManyDictionaries: the newest dictionary is larger than what an encoder
// looks back at, and an object is larger than both.
func TestContentsComeBackFromManyDictionaries(t *testing.T) {
	c, err := newContents(nil)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{1})
	bodies := map[object.Ref][]byte{}
	put := func(kind, name string, body []byte) {
		t.Helper()
		ref := object.Ref{Kind: kind, Name: name}
		if bodies[ref] = body; err == nil {
			_, err = c.put(ref, body)
		}
	}
	var all []byte
	for i := 0; len(c.codec.dictionaries) < maxDictionaries; i++ {
		body := make([]byte, sampleSize)
		_, _ = random.Read(body)
		all = append(all, body...)
		put(fmt.Sprint(i), "first", body)
		put("0", fmt.Sprint(i), all[:sampleSize])
	}
	if n := len(c.codec.dictionaries[maxDictionaries-1]); n <= window {
		t.Fatalf("a dictionary of %d bytes, not more than %d: the test shows nothing", n, window)
	}
	for i := range 4 { // what resembles the oldest samples, the newest, and all
		put("0", fmt.Sprint("old", i), all[i*100:(i+1)*sampleSize])
		put("0", fmt.Sprint("new", i), all[len(all)-(i+1)*sampleSize:])
	}
	put("0", "all", append(slices.Clone(all), all...))
	if err != nil {
		t.Fatal(err)
	}
	for ref, body := range bodies {
		if got, err := c.Bytes(ref); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%v: %d bytes came back of %d, %v", ref, len(got), len(body), err)
		}
	}
}
