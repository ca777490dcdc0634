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

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// CheckFinding is one object, or a pack, that is not as it should be.
type CheckFinding struct {
	Code    object.Code
	Pack    store.Key
	Ref     object.Ref // zero for the pack as a whole
	Message string
}

// DefaultSample is the percentage of the packs that a sample reads.
const DefaultSample = 10

// CheckResult is what Check has seen.
type CheckResult struct {
	Objects, Packs int
	Findings       []CheckFinding // in the order of the packs
}

// Check reads objects back from their packs and compares each with its shard: hash, metadata and
// edges. Of less than 100 percent of the packs it reads these, chosen at random, and at least one;
// the shards were read whole by Open. It keeps no more than two packs in memory. Errors are about
// the check itself: *store.KeyError, a cancelled context, the store gone.
func (s *Snapshot) Check(ctx context.Context, percent int, progress func(done, total int64)) (
	CheckResult, error) {
	byPack, err := objectsByPack(s.Graph.Nodes)
	if err != nil {
		return CheckResult{}, err
	}
	packs := slices.Sorted(maps.Keys(byPack))
	if percent < 100 {
		rand.Shuffle(len(packs), func(i, j int) {
			packs[i], packs[j] = packs[j],
				packs[i]
		}) //nolint:gosec // G404: nobody gains by guessing a sample
		packs = packs[:(len(packs)*percent+99)/100]
	}
	total := 0
	for _, pack := range packs {
		total += len(byPack[pack])
	}
	c := &checker{claims: newClaims(s.About.Kinds), rules: newReader(s.About.Kinds, s.Graph.Rows),
		total: int64(total), progress: progress}
	found := make([][]CheckFinding, len(packs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for i, pack := range packs {
		g.Go(func() error {
			var err error
			found[i], err = c.pack(gctx, s.store, store.Key(pack), byPack[pack])
			return err
		})
	}
	err = named(s.Envelope, g.Wait())
	return CheckResult{Objects: total, Packs: len(packs), Findings: slices.Concat(found...)}, err
}

func entryName(n *graph.Node) (string, error) {
	return store.EntryName(store.Entry{Group: n.Group, Kind: n.Kind, Namespace: n.Namespace,
		Name: n.Name})
}

// objectsByPack gives the nodes that shards say are in each pack, by the name of their entry.
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

type checker struct {
	claims   claims
	rules    *reader
	total    int64
	progress func(done, total int64)

	mu   sync.Mutex
	done int64
}

// pack checks the objects of one pack.
func (c *checker) pack(ctx context.Context, st *store.Store, pack store.Key,
	wanted map[string]*graph.Node) ([]CheckFinding, error) {
	var findings []CheckFinding
	left := maps.Clone(wanted)
	err := st.ReadPack(ctx, pack, func(name string, body []byte) error {
		n := left[name]
		if n == nil {
			return nil // of another snapshot
		}
		delete(left, name)
		if f := c.object(n, body); f != nil {
			findings = append(findings, *f)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.done++; c.progress != nil {
			c.progress(c.done, c.total)
		}
		return nil
	})
	if corrupt, ok := errors.AsType[*store.CorruptError](err); ok {
		return append(findings, CheckFinding{Code: object.CodeDamaged, Pack: pack,
				Message: corrupt.Error()}),
			nil
	}
	if errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrStoreMissing) {
		return append(findings, CheckFinding{Code: object.CodeDamaged, Pack: pack, Message: string(pack) +
			": it is not in the store"}), nil
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		findings = append(findings, CheckFinding{Code: object.CodeDamaged, Pack: pack,
			Ref:     left[name].Ref,
			Message: "it is not in " + string(pack)})
	}
	return findings, err
}

// object compares one object with its node.
func (c *checker) object(n *graph.Node, body []byte) *CheckFinding {
	if why := c.claims.broken(n, body); why != "" {
		return &CheckFinding{Code: object.CodeDamaged, Pack: store.Key(n.Pack), Ref: n.Ref,
			Message: "it is not what its shard says: " + why}
	}
	k, _ := kube.FindKind(c.claims.kinds, n.GroupKind())
	k.Version = n.Version
	is := c.rules.node(k, body)
	is.Pack = n.Pack
	want, err := json.Marshal(n)
	if err != nil {
		return &CheckFinding{Code: object.CodeDamaged, Pack: store.Key(n.Pack), Ref: n.Ref,
			Message: fmt.Sprintf("its node cannot be encoded: %v", err)}
	}
	if got, err := json.Marshal(is); err != nil || !bytes.Equal(got, want) {
		return &CheckFinding{Code: object.CodeEdges, Pack: store.Key(n.Pack), Ref: n.Ref,
			Message: "this version reads other edges, labels or sizes from it than its shard says"}
	}
	return nil
}
