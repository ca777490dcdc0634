package snapshot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/mgmt"
)

// Shard is the index of one part of a snapshot: a unit, or what a namespace holds outside of units, or what is cluster-scoped. It is stored encrypted.
type Shard struct {
	// Unit is the "namespace/name" of the workload cluster; empty for the other parts.
	Unit string `json:"unit,omitempty"`
	// Namespace of the other parts; empty for cluster-scoped objects.
	Namespace string `json:"namespace,omitempty"`
	// About describes the source; only in the cluster-scoped shard.
	About *About `json:"about,omitempty"`
	// Objects by ref.
	Objects []*Node `json:"objects"`
}

// About is what a restore has to know of the source to check a target against it.
type About struct {
	KubernetesVersion string          `json:"kubernetesVersion"`
	Kinds             []mgmt.Kind     `json:"kinds"` // those that were captured
	Providers         []mgmt.Provider `json:"providers"`
}

// shards divides a graph: one shard a unit, one a namespace for the rest, one for what is cluster-scoped, which is always there.
func shards(g *Graph, about About) []Shard {
	parts := map[string]*Shard{"": {About: &about}}
	for _, n := range g.Nodes {
		key := "unit " + n.Unit
		if n.Unit == "" {
			key = n.Namespace
		}
		s := parts[key]
		if s == nil {
			s = &Shard{Unit: n.Unit}
			if n.Unit == "" {
				s.Namespace = n.Namespace
			}
			parts[key] = s
		}
		s.Objects = append(s.Objects, n)
	}
	var list []Shard
	for _, s := range parts {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Shard) int {
		return strings.Compare(a.Unit+"\x00"+a.Namespace, b.Unit+"\x00"+b.Namespace)
	})
	return list
}

// decodeShard reads a shard, which is untrusted input until its content fits the signed tree, and guards against one that would confuse the graph.
func decodeShard(text []byte) (Shard, error) {
	var s Shard
	if err := json.Unmarshal(text, &s); err != nil {
		return Shard{}, fmt.Errorf("decode shard: %w", err)
	}
	for i, n := range s.Objects {
		if n == nil || n.Kind == "" || n.Name == "" || n.Version == "" || n.Content == "" || n.Pack == "" {
			return Shard{}, fmt.Errorf("decode shard: object %d is incomplete", i)
		}
	}
	return s, nil
}
