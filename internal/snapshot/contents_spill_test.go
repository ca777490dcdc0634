package snapshot

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// spilling returns Contents that have so many bytes in memory, and puts objects into them by two
// goroutines. What of returns comes back from them, or is reported.
func spilling(t *testing.T, most, objects int) (c *Contents, ref func(i int) object.Ref,
	check func()) {
	t.Helper()
	c, err := newContents(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.most = most
	ref = func(i int) object.Ref { return object.Ref{Kind: "Secret", Name: fmt.Sprint(i)} }
	body := func(i int) []byte { return fmt.Appendf(nil, "value %d of a Secret", i*7919) }
	var g sync.WaitGroup
	for half := range 2 {
		g.Go(func() {
			for i := half; i < objects; i += 2 {
				if _, err := c.put(ref(i), body(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	return c, ref, func() {
		t.Helper()
		for i := range objects {
			if got, err := c.Bytes(ref(i)); err != nil || !bytes.Equal(got, body(i)) {
				t.Errorf("%q came back for %q, %v", got, body(i), err)
			}
		}
	}
}

// TestContentsOfManyObjectsAreNotInMemory: the plan of a move has the contents of a whole fleet.
func TestContentsOfManyObjectsAreNotInMemory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const objects, most = 1000, 2000
	c, ref, check := spilling(t, most, objects)
	check()
	if c.size > most || len(c.bodies) == 0 || len(c.bodies)+len(c.spilled) != objects {
		t.Errorf("%d objects of %d bytes in memory, %d in the file", len(c.bodies), c.size,
			len(c.spilled))
	}
	first := ref(0)
	if n, err := c.put(first, []byte("newer")); err != nil || n != objects {
		t.Errorf("%d objects, %v", n, err)
	}
	if got, err := c.Bytes(first); err != nil || string(got) != "newer" {
		t.Errorf("%q came back, %v", got, err)
	}
	only, err := c.Only([]object.Ref{first, ref(objects - 1), ref(objects)})
	if err != nil || !only.has(ref(objects-1)) || only.has(ref(objects)) {
		t.Errorf("some of them: %v", err)
	}
	for i := range objects {
		c.Drop(ref(i))
	}
	if c.size != 0 || c.has(ref(objects-1)) {
		t.Errorf("%d bytes are left", c.size)
	}
}

// TestContentsStayInMemoryWithoutAPlaceForTheRest: there is no folder for temporary files.
func TestContentsStayInMemoryWithoutAPlaceForTheRest(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	c, _, check := spilling(t, 500, 100)
	if check(); len(c.bodies) != 100 {
		t.Errorf("%d of 100 objects are in memory", len(c.bodies))
	}
}
