package snapshot

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
)

// manyNodes are objects of one namespace, more than fit into one document.
func manyNodes(pack string) (nodes []*graph.Node) {
	owner := object.Ref{Group: "ipam.cluster.x-k8s.io", Kind: "IPPool", Namespace: "team-a", Name: "pool"}
	for i := range 90_000 {
		nodes = append(nodes, &graph.Node{Ref: object.Ref{Kind: "ConfigMap", Namespace: "team-a",
			Name: fmt.Sprintf("config-%06d", i)}, Version: "v1", UID: fmt.Sprintf("%036d", i),
			ResourceVersion: "2609", Content: strings.Repeat("0", 64), Size: 5120, Pack: pack,
			Owners: []graph.Owner{{Ref: owner, UID: strings.Repeat("1", 36)}}})
	}
	return nodes
}

// TestANamespaceOfManyObjectsIsWrittenInParts: no part is too large to be stored, all of them
// together are the namespace, and a change of one object rewrites one part.
func TestANamespaceOfManyObjectsIsWrittenInParts(t *testing.T) {
	ctx := t.Context()
	st, _ := testStore(t)
	pack := "packs/00/" + strings.Repeat("0", 64) + ".tar.zst"
	g := graph.New(manyNodes(pack), nil)
	about := About{KubernetesVersion: "v1.36.3"}
	write := func(reusable []incremental.Shard) []incremental.Shard {
		t.Helper()
		stored, err := writeShards(ctx, st, &incremental.Parent{}, shard.Divide(g, about, nil),
			shardsByName(nil, reusable, nil), func(int64, int64) {})
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	first := write(nil)
	if len(first) < 3 {
		t.Fatalf("%d shards, want several of the namespace and that of the cluster-scoped objects",
			len(first))
	}
	tree := store.Tree{Packs: []store.Key{store.Key(pack)}}
	for _, s := range first {
		tree.Shards = append(tree.Shards, s.At.Key)
	}
	key, err := st.PutTree(ctx, tree)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := Open(ctx, st, store.Envelope{Tree: key,
		Counts: store.Counts{Objects: int64(len(g.Nodes))}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(opened.Graph.Nodes) != len(g.Nodes) || opened.About.KubernetesVersion != "v1.36.3" {
		t.Fatalf("opened %d of %d objects, about %+v", len(opened.Graph.Nodes), len(g.Nodes), opened.About)
	}
	for i, n := range opened.Graph.Nodes {
		if !reflect.DeepEqual(n, g.Nodes[i]) {
			t.Fatalf("opened %+v, written %+v", n, g.Nodes[i])
		}
	}

	before := map[store.Key]bool{}
	for _, s := range first {
		before[s.At.Key] = true
	}
	changed := *g.Nodes[500]
	changed.ResourceVersion = "26100"
	g.Nodes[500] = &changed
	rewritten := 0
	for _, s := range write(first) {
		if !before[s.At.Key] {
			rewritten++
		}
	}
	if rewritten != 1 {
		t.Errorf("%d shards were written after one object changed, want 1", rewritten)
	}
}
