//go:build api

package snapshot_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestAPIUnchangedWritesOneKey: between two snapshots nothing changed, so that the second is an
// envelope.
func TestAPIUnchangedWritesOneKey(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "same-", "--workloads", "6", "--machines", "3", "--fast")
	r := newChainFixture(t)
	first, wrote := r.take(nil)
	if len(wrote) < 8 {
		t.Errorf("the first wrote %v", wrote)
	}
	second, wrote := r.take(nil)
	if first.Read != first.Counts.Objects || second.Read != 0 {
		t.Errorf("of %d objects the first read %d, the second %d", first.Counts.Objects, first.Read,
			second.Read)
	}
	if first.Tree != second.Tree || len(wrote) != 1 || wrote[second.Key().String()] == 0 ||
		wrote[second.Key().String()] > 8<<10 {
		t.Errorf("the second wrote %v", wrote)
	}
}

// changingSource is a source that changes between snapshots.
type changingSource struct {
	*chainFixture
	rand  *rand.Rand
	kinds []kube.Kind
}

// TestAPIIncrementalSnapshotEqualsAFullOne: an incremental snapshot gives the same as one that
// reads and writes everything, and writes little, whatever happened to objects, the catalog, the
// snapshots before and the recipients. Each subtest continues with the store and the source of the
// one before.
func TestAPIIncrementalSnapshotEqualsAFullOne(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "incremental-", "--workloads", "6", "--machines", "3",
		"--fast")
	c, last, first := newChangingSource(t, 3, eitherWay)
	t.Run("changes of objects write little", func(t *testing.T) {
		for range 6 {
			last = c.round(last, first)
		}
	})
	c.step(t, "without a change only the envelope is written", envelopeOnly, nil)
	c.step(t, "Full writes everything", everything, func(o *snapshot.Options) { o.Full = true })
	c.step(t, "the snapshot after a full one uses its keys", envelopeOnly, nil)
	c.newCatalog()
	c.step(t, "without the catalog everything is written", everything, nil)
	c.step(t, "the new catalog has a state", envelopeOnly, nil)
	c.removeSnapshots()
	c.step(t, "without a parent everything is written", everything, nil)
	c.step(t, "a parent that is deleted meanwhile is not used", everything, func(o *snapshot.Options) {
		o.Progress = once(func() { c.removeSnapshots() })
	})
	c.step(t, "the snapshot after that uses its keys", envelopeOnly, nil)
	c.damageTrees()
	c.step(t, "a parent with a damaged tree is not used", everything, nil)
	t.Run("two concurrent runs write an envelope each", func(t *testing.T) {
		other, wrote := c.take(func(o *snapshot.Options) {
			o.Progress = once(func() {
				if _, err := snapshot.Create(t.Context(), c.options()); err != nil {
					t.Error(err)
				}
			})
		})
		if n, _ := kind(wrote, "snapshots"); n != 2 || len(wrote) != 2 || other.Parent == nil {
			t.Errorf("wrote %v", wrote)
		}
	})
	t.Run("a scope has a state of its own", func(t *testing.T) {
		scope := capture.Scope{Namespaces: []string{onlyNamespace(t, c.m, "incremental-")}}
		for _, first := range []bool{true, false} {
			_, wrote := c.take(func(o *snapshot.Options) { o.Scope = scope })
			if first != (len(wrote) > 1) {
				t.Errorf("the first %v: wrote %v", first, wrote)
			}
		}
	})
	c.step(t, "after a scope only the envelope is written", envelopeOnly, nil)
	t.Run("other keys", c.otherKeys)
	t.Run("old content", c.oldContent)
}

// otherKeys: content that others can read, or that others signed, is not used again.
func (c *changingSource) otherKeys(t *testing.T) {
	c.anotherRecipient()
	c.step(t, "for another recipient everything is written", everything, nil)
	before := c.step(t, "for the same recipients only the envelope is", envelopeOnly, nil)
	c.anotherSigningKey()
	after := c.step(t, "with another signing key everything is written", everything, nil)
	if after.KeyID == before.KeyID || after.Parent == nil || after.Parent.SHA256 != before.SHA256 ||
		after.Sequence != before.Sequence+1 {
		t.Errorf("number %d signed by %s follows number %d signed by %s: parent %+v", after.Sequence,
			after.KeyID, before.Sequence, before.KeyID, after.Parent)
	}
	c.step(t, "with the same signing key only the envelope is", envelopeOnly,
		func(o *snapshot.Options) { o.Cache = &c.cache })
}

// oldContent: content is written again after repackAge, also by a run after one that stopped.
func (c *changingSource) oldContent(t *testing.T) {
	in := func(days time.Duration) func(o *snapshot.Options) {
		return func(o *snapshot.Options) {
			o.Cache = &c.cache
			o.Now = func() time.Time { return time.Now().Add(days * 24 * time.Hour) }
		}
	}
	t.Run("a run that is stopped after it wrote packs fails", func(t *testing.T) {
		o := c.options()
		in(8)(&o)
		ctx, cancel := context.WithCancel(t.Context())
		o.Progress = func(what string, _, _ int64) {
			if what == "shards written" { // the objects are in other packs by now
				cancel()
			}
		}
		if _, err := snapshot.Create(ctx, o); err == nil {
			t.Error("a run that was stopped created a snapshot")
		}
	})
	c.step(t, "the next run uses nothing of the stopped one", envelopeOnly,
		func(o *snapshot.Options) { o.Cache = &c.cache })
	c.step(t, "after 8 days everything is written", everything, in(8))
	last := c.step(t, "and then used again", envelopeOnly, in(8))
	c.change(last.Envelope)
	c.take(in(12)) // some shards are younger now than the packs that they name
	c.step(t, "a pack that is older than its shard is written", everything, in(16))
}

// What a step of a test writes.
const (
	envelopeOnly = false
	everything   = true
)

// step creates a snapshot in a subtest and checks how much it wrote.
func (c *changingSource) step(t *testing.T, name string, all bool, change func(*snapshot.Options)) (
	taken *snapshot.Result) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		var wrote map[string]int64
		taken, wrote = c.take(change)
		shards, _ := kind(wrote, "shards")
		if all && shards < 6 || !all && len(wrote) != 1 {
			t.Errorf("wrote %v", wrote)
		}
	})
	if taken == nil {
		t.FailNow()
	}
	return taken
}

func newChangingSource(t *testing.T, seed uint64, exactLimit int) (c *changingSource,
	first *snapshot.Result,
	wrote map[string]int64) {
	t.Helper()
	c = &changingSource{chainFixture: newChainFixture(t), rand: rand.New(rand.NewPCG(seed, seed))}
	c.exactLimit = exactLimit
	var err error
	if c.kinds, err = c.m.Reader().Kinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, wrote = c.take(nil)
	return c, first, wrote
}

// round changes something and takes a snapshot, which reads and writes little.
func (c *changingSource) round(last *snapshot.Result, whole map[string]int64) *snapshot.Result {
	c.t.Helper()
	c.change(last.Envelope)
	next, wrote := c.take(nil)
	packs, packed := kind(wrote, "packs")
	_, shards := kind(wrote, "shards")
	_, envelopes := kind(wrote, "snapshots")
	if len(wrote) >= len(whole) || packs != 1 {
		c.t.Errorf("%d keys written, by the first snapshot %d", len(wrote), len(whole))
	}
	if next.Read > 12 {
		c.t.Errorf("%d of %d objects read", next.Read, next.Counts.Objects)
	}
	if next.Wrote != packed+shards+envelopes {
		c.t.Errorf("it says that it wrote %d bytes: %v", next.Wrote, wrote)
	}
	return next
}

// once calls fn at the first progress.
func once(fn func()) func(string, int64, int64) {
	var done sync.Once
	return func(string, int64, int64) { done.Do(fn) }
}

// change writes to some objects, deletes one, and creates one again.
func (c *changingSource) change(e store.Envelope) {
	c.t.Helper()
	s, err := snapshot.Open(c.t.Context(), c.st, e, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	nodes := slices.DeleteFunc(slices.Clone(s.Graph.Nodes),
		func(n *graph.Node) bool { return !strings.HasPrefix(n.Namespace, "incremental-") })
	loose := slices.DeleteFunc(slices.Clone(nodes),
		func(n *graph.Node) bool { return n.Kind != "Secret" && n.Kind != "ConfigMap" })
	for i := range 5 {
		n := nodes[c.rand.IntN(len(nodes))]
		k, _ := kube.FindKind(c.kinds, n.GroupKind())
		if _, err := c.m.Writer().PatchMetadata(c.t.Context(), k, n.Namespace, n.Name,
			map[string]any{"annotations": map[string]any{"test.mgmtd.dev/touched": string(
				rune('a' + i))}}); err != nil {
			c.t.Fatal(err)
		}
	}
	for i, at := range c.rand.Perm(len(loose))[:2] {
		n := loose[at]
		k, _ := kube.FindKind(c.kinds, n.GroupKind())
		u, err := c.m.Reader().Get(c.t.Context(), k, n.Namespace, n.Name)
		if err != nil {
			c.t.Fatal(err)
		}
		if err := c.m.Writer().Delete(c.t.Context(), k, n.Namespace, n.Name, u.GetUID(),
			""); err != nil && !apierrors.IsNotFound(err) {
			c.t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		u.SetUID("")
		u.SetResourceVersion("")
		if _, err := c.m.Writer().Create(c.t.Context(), k, u); err != nil {
			c.t.Fatal(err)
		}
	}
}
