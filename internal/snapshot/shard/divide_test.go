package shard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

func fullNode(namespace, name string) *graph.Node {
	ref := object.Ref{Group: "group", Kind: "Kind", Namespace: namespace, Name: name}
	return &graph.Node{Ref: ref, Version: "v1beta2", UID: "u", ResourceVersion: "18446744073709551615",
		Owners:  []graph.Owner{{Ref: ref, UID: "<&>\"\\\u2028\xff"}},
		Needs:   []graph.Need{{Ref: ref, Field: "spec.topology.workers.bootstrapRef", Owner: true}},
		Cluster: "web", Labels: []string{"a=<b>"}, WorkloadID: "w", Paused: true, Deleting: true,
		Content: strings.Repeat("0", 64), Size: 1 << 60,
		Pack: "packs/00/" + strings.Repeat("0", 64) + ".tar.zst.age"}
}

// TestSizeIsAnUpperBound of what encoding/json makes of a node.
func TestSizeIsAnUpperBound(t *testing.T) {
	n := fullNode("ns", "name")
	for range 3 {
		text, err := json.Marshal(n)
		if err != nil || size(n) <= len(text) {
			t.Errorf("size %d, %d bytes, %v", size(n), len(text), err)
		}
		for range 100 {
			n.Owners = append(n.Owners, n.Owners[0])
			n.Needs = append(n.Needs, n.Needs[0])
		}
	}
}

// TestDivideNamesShardsAsBefore: what fits into one shard has no number, so that its shard is the
// one that an earlier version wrote.
func TestDivideNamesShardsAsBefore(t *testing.T) {
	cluster := fullNode("ns", "web")
	cluster.Group, cluster.Kind = capi.Cluster.Group, capi.Cluster.Kind
	cluster.Owners, cluster.Needs, cluster.Cluster = nil, nil, ""
	other := fullNode("other", "x")
	other.Owners, other.Needs, other.Cluster = nil, nil, ""
	var names []string
	for _, s := range Divide(graph.New([]*graph.Node{cluster, other}, nil), About{}, nil) {
		text, err := json.Marshal(s)
		if err != nil || strings.Contains(string(text), `"part"`) || (s.About != nil) != (s.Name() == "\x00") {
			t.Errorf("%s, %v", text, err)
		}
		names = append(names, s.Name())
	}
	if want := []string{"\x00", "\x00other", "ns/web\x00"}; !slices.Equal(names, want) {
		t.Errorf("shards %q, want %q", names, want)
	}
}

// TestSplitKeepsObjectsInTheirParts: every object is in one part, no part is too large, and an
// object that is added moves no other one, unless its part becomes too large.
func TestSplitKeepsObjectsInTheirParts(t *testing.T) {
	const most = 10_000
	whole := Shard{Namespace: "ns"}
	partOf := func() map[string]int64 {
		parts := map[string]int64{}
		for _, s := range whole.split(0, most) {
			bytes := 0
			for _, n := range s.Objects {
				if _, twice := parts[n.Name]; twice {
					t.Errorf("%s is in two parts", n.Name)
				}
				parts[n.Name] = s.Part
				bytes += size(n)
			}
			if bytes > most || len(s.Objects) == 0 || s.Namespace != "ns" {
				t.Errorf("part %d of %q: %d bytes, %d objects", s.Part, s.Namespace, bytes, len(s.Objects))
			}
		}
		return parts
	}
	before, moved := map[string]int64{}, 0
	for i := range 200 {
		whole.Objects = append(whole.Objects, fullNode("ns", fmt.Sprint(i)))
		now := partOf()
		if len(now) != i+1 {
			t.Fatalf("%d of %d objects are in parts", len(now), i+1)
		}
		left := map[int64]bool{}
		for name, part := range before {
			if now[name] != part {
				moved++
				left[part] = true
			}
		}
		if len(left) > 1 {
			t.Errorf("object %d changed the parts %v", i, left)
		}
		before = now
	}
	if before["0"] == 0 || moved > 5000 {
		t.Errorf("the first object is in part %d, %d moves", before["0"], moved)
	}
}

// TestTheDescriptionStaysInPartZero: also when the cluster-scoped objects need several shards.
func TestTheDescriptionStaysInPartZero(t *testing.T) {
	var nodes []*graph.Node
	for i := range 3 {
		n := fullNode("", fmt.Sprint(i))
		n.Owners = []graph.Owner{{UID: strings.Repeat("u", mostBytes/2)}}
		nodes = append(nodes, n)
	}
	list := Divide(graph.New(nodes, nil), About{KubernetesVersion: "v1"}, nil)
	if len(list) < 3 || list[0].Name() != "\x00" || list[0].About == nil || list[0].Objects != nil {
		t.Errorf("%d shards, the first is %q of %d objects", len(list), list[0].Name(),
			len(list[0].Objects))
	}
	for _, s := range list[1:] {
		if s.About != nil {
			t.Errorf("shard %q has the description too", s.Name())
		}
	}
}
