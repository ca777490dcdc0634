package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// DefaultSample is the percentage of the packs that a sample reads.
const DefaultSample = 10

// Verification is the result of Verify.
type Verification struct {
	Objects, Packs int
	// Findings are about packs as a whole, or about objects in them, in the order of the packs. Their
	// code is CodeDamaged, or CodeEdges for an object that names others than its shard says: it was
	// read by the rules of another version, or somebody changed it.
	Findings []store.Finding
}

// Verify reads objects back from their packs and compares each with its shard: hash, metadata and
// edges. With less than 100 percent it reads that share of the packs, chosen at random, and at
// least one; Open has read all shards. No more than two packs are in memory at once. Errors are
// about the verification itself: *store.KeyError, a cancelled context, the store gone.
func (s *Snapshot) Verify(ctx context.Context, percent int, progress func(done, total int64)) (
	Verification, error) {
	return s.verify(ctx, progress, func(packs []string) []string {
		if percent >= 100 {
			return packs
		}
		swap := func(i, j int) { packs[i], packs[j] = packs[j], packs[i] }
		rand.Shuffle(len(packs), swap) //nolint:gosec // G404: nobody gains by guessing a sample
		return packs[:(len(packs)*percent+99)/100]
	})
}

// VerifySubset is Verify of the packs in a subset. It may read none of a snapshot with few packs.
func (s *Snapshot) VerifySubset(ctx context.Context, subset store.Subset,
	progress func(done, total int64)) (Verification, error) {
	return s.verify(ctx, progress, func(packs []string) []string {
		return slices.DeleteFunc(packs, func(p string) bool { return !subset.Contains(store.Key(p)) })
	})
}

// verify verifies the packs that choose returns of all of them, sorted.
func (s *Snapshot) verify(ctx context.Context, progress func(done, total int64),
	choose func(packs []string) []string) (Verification, error) {
	byPack, err := objectsByPack(s.Graph.Nodes)
	if err != nil {
		return Verification{}, err
	}
	packs := choose(slices.Sorted(maps.Keys(byPack)))
	total := 0
	for _, pack := range packs {
		total += len(byPack[pack])
	}
	c := &verifier{claims: newClaims(s.About.Kinds), rules: capture.NewNodeReader(s.About.Kinds,
		s.Graph.Rows),
		total: int64(total), progress: progress}
	found := make([][]store.Finding, len(packs))
	g, gctx := task.WithContext(ctx)
	g.SetLimit(2)
	for i, pack := range packs {
		g.Go(func() error {
			var err error
			found[i], err = c.pack(gctx, s.store, store.Key(pack), byPack[pack])
			return err
		})
	}
	err = named(s.Envelope, g.Wait())
	return Verification{Objects: total, Packs: len(packs), Findings: slices.Concat(found...)}, err
}

// objectsByPack returns the nodes in each pack, by the name of their entry.
func objectsByPack(nodes []*graph.Node) (map[string]map[string]*graph.Node, error) {
	byPack := map[string]map[string]*graph.Node{}
	for _, n := range nodes {
		name, err := entryName(n)
		if err != nil {
			return nil, err
		}
		if byPack[n.Pack] == nil {
			byPack[n.Pack] = map[string]*graph.Node{}
		}
		byPack[n.Pack][name] = n
	}
	return byPack, nil
}

type verifier struct {
	claims   claims
	rules    *capture.NodeReader
	total    int64
	progress func(done, total int64)

	mu   sync.Mutex
	done int64
}

// pack verifies the objects of one pack.
func (c *verifier) pack(ctx context.Context, st *store.Store, pack store.Key,
	wanted map[string]*graph.Node) ([]store.Finding, error) {
	var findings []store.Finding
	left := maps.Clone(wanted)
	err := st.ReadPack(ctx, pack, func(name string, body []byte) error {
		n := left[name]
		if n == nil {
			return nil // of another snapshot
		}
		delete(left, name)
		if code, why := c.object(n, body); code != "" {
			findings = append(findings, finding(pack, n.Ref, code, why))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.done++; c.progress != nil {
			c.progress(c.done, c.total)
		}
		return nil
	})
	if corrupt, ok := errors.AsType[*store.CorruptError](err); ok {
		return append(findings, finding(pack, object.Ref{}, object.CodeDamaged, corrupt.Error())), nil
	}
	if store.IsMissing(err) {
		return append(findings, finding(pack, object.Ref{}, object.CodeDamaged,
			string(pack)+": it is not in the store")), nil
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		findings = append(findings, finding(pack, left[name].Ref, object.CodeDamaged,
			"it is not in "+string(pack)))
	}
	return findings, err
}

func finding(pack store.Key, ref object.Ref, code object.Code, message string) store.Finding {
	return store.Finding{Key: pack, Finding: object.Finding{Severity: object.Error, Code: code,
		Ref: ref, Message: message}}
}

// object compares one object with its node, and returns the code and the message of the finding;
// "" when they agree.
func (c *verifier) object(n *graph.Node, body []byte) (code object.Code, message string) {
	if why := c.claims.broken(n, body); why != "" {
		return object.CodeDamaged, "it is not what its shard says: " + why
	}
	k, _ := kube.FindKind(c.claims.kinds, n.GroupKind())
	k.Version = n.Version
	is := c.rules.Node(k, body)
	is.Pack = n.Pack
	want, err := json.Marshal(n)
	if err != nil {
		return object.CodeDamaged, fmt.Sprintf("its node cannot be encoded: %v", err)
	}
	if got, err := json.Marshal(is); err != nil || !bytes.Equal(got, want) {
		return object.CodeEdges,
			"this version reads other edges, labels or sizes from it than its shard says"
	}
	return "", ""
}
