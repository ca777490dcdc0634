package snapshot

import (
	"bytes"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestContentsHoldNoMoreThanCompressedBytes: the memory of a restore follows the compressed size of
// its snapshot, not the size of its objects.
func TestContentsHoldNoMoreThanCompressedBytes(t *testing.T) {
	c, err := newContents(nil)
	if err != nil {
		t.Fatal(err)
	}
	ref := object.Ref{Kind: "ConfigMap", Namespace: "n", Name: "c"}
	body := bytes.Repeat([]byte(`{"key":"value"}`), 1000)
	c.put(ref, body)
	if held := cap(c.bodies[ref]); held > len(body)/10 {
		t.Errorf("holds %d bytes for %d compressed ones", held, len(c.bodies[ref]))
	}
	if got, err := c.Bytes(ref); err != nil || !bytes.Equal(got, body) {
		t.Errorf("got %d bytes back: %v", len(got), err)
	}
}
