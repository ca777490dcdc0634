package incremental

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestRunCacheHandsAnEntryOutOnce: a run changes the nodes, so no other may get them; and only the
// run whose parent the entry is of, with the same keys, gets it at all.
func TestRunCacheHandsAnEntryOutOnce(t *testing.T) {
	ids, others := testIDs(t, "secret"), testIDs(t, "secret")
	put := func() *RunCache {
		c := &RunCache{}
		c.put("source", &cachedRun{snapshot: "one", keys: keysOf(ids), index: newIndex()})
		return c
	}
	c := put()
	if c.remove("source", "one", ids) == nil {
		t.Error("the entry is not there")
	}
	if c.remove("source", "one", ids) != nil {
		t.Error("the entry was handed out twice")
	}
	if put().remove("source", "two", ids) != nil {
		t.Error("an entry of another snapshot was handed out")
	}
	if put().remove("source", "one", others) != nil {
		t.Error("an entry that was made with other keys was handed out")
	}
	var none *RunCache
	if none.remove("source", "one", ids) != nil {
		t.Error("no cache has an entry")
	}
}

// TestRunCacheIsLimited: an entry replaces others where there is no room for all, and is not cached
// if it alone is too large.
func TestRunCacheIsLimited(t *testing.T) {
	ids := testIDs(t, "secret")
	run := func(objects int) *cachedRun {
		x := newIndex()
		x.Nodes[object.GroupKind{Kind: "Secret"}] = make([]*graph.Node, objects)
		return &cachedRun{snapshot: "one", keys: keysOf(ids), index: x}
	}
	var c RunCache
	c.put("a", run(cachedObjects/2))
	c.put("b", run(cachedObjects/2))
	if len(c.runs) != 2 {
		t.Errorf("%d entries, there is room for both", len(c.runs))
	}
	c.put("c", run(cachedObjects/2))
	if len(c.runs) != 2 || c.runs["c"] == nil {
		t.Errorf("%d entries: %v", len(c.runs), c.runs)
	}
	c.put("c", run(cachedObjects+1))
	if len(c.runs) != 1 || c.runs["c"] != nil {
		t.Errorf("%d entries: %v", len(c.runs), c.runs)
	}
}
