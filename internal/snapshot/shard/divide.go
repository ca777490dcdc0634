package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/graph"
)

// mostBytes limits the objects of a shard. A stored document has at most 32 MiB; the rest is for
// the description of the source.
const mostBytes = 24 << 20

// mostSplits limits the number of a part to 2^(mostSplits+1). Every split halves a part, so no
// snapshot comes near.
const mostSplits = 48

// mostOmitted limits the list of omitted objects of a shard.
const mostOmitted = 1000

// Divide divides a graph into shards: one for each unit, one for each namespace with other objects,
// and one for the cluster-scoped objects, which exists always. What is too large for one shard is
// divided into several. They are sorted by name.
func Divide(g *graph.Graph, about About, omitted []graph.Omitted) []Shard {
	parts := map[string]*Shard{"": {About: &about}}
	part := func(unit, namespace string) *Shard {
		key := "unit " + unit
		if unit == "" {
			key = namespace
		} else {
			namespace = ""
		}
		if parts[key] == nil {
			parts[key] = &Shard{Unit: unit, Namespace: namespace}
		}
		return parts[key]
	}
	for _, n := range g.Nodes {
		s := part(n.Unit, n.Namespace)
		s.Objects = append(s.Objects, n)
	}
	for _, o := range omitted {
		if s := part(o.Unit, o.Namespace); len(s.Omitted) < mostOmitted {
			s.Omitted = append(s.Omitted, o.Ref)
		}
	}
	var list []Shard
	for _, s := range parts {
		list = append(list, s.split(0, mostBytes)...)
		if s.About != nil || len(s.Omitted) > 0 {
			list = s.describe(list)
		}
	}
	slices.SortFunc(list, func(a, b Shard) int {
		return strings.Compare(a.Name(), b.Name())
	})
	return list
}

// describe gives part 0 of s what s has besides objects. It adds one without objects to the list,
// which ends with the parts of s, when that was split.
func (s *Shard) describe(list []Shard) []Shard {
	if list[len(list)-1].Part != 0 {
		list = append(list, Shard{Unit: s.Unit, Namespace: s.Namespace})
	}
	zero := &list[len(list)-1]
	zero.About, zero.Omitted = s.About, s.Omitted
	return list
}

// Name identifies the shard within its snapshot.
func (s *Shard) Name() string {
	name := s.Unit + "\x00" + s.Namespace
	if s.Part != 0 {
		name += "\x00" + strconv.FormatInt(s.Part, 10)
	}
	return name
}

// split returns shards with the objects of s, none of them larger than most bytes; s is the result
// of that many splits. Part n is
// divided into the parts 2n+1 and 2n+2 by one bit of a hash of each object's ref: so an object
// that is added, changed or deleted changes no other part than its own.
func (s *Shard) split(splits, most int) []Shard {
	bytes := 0
	for _, n := range s.Objects {
		bytes += size(n)
	}
	if bytes <= most || len(s.Objects) < 2 || splits == mostSplits {
		return []Shard{*s}
	}
	halves := [2]Shard{}
	for i := range halves {
		halves[i] = Shard{Unit: s.Unit, Namespace: s.Namespace, Part: 2*s.Part + int64(i) + 1}
	}
	for _, n := range s.Objects {
		h := &halves[hash(n)>>(63-splits)&1]
		h.Objects = append(h.Objects, n)
	}
	var list []Shard
	for _, h := range halves {
		if len(h.Objects) > 0 {
			list = append(list, h.split(splits+1, most)...)
		}
	}
	return list
}

func hash(n *graph.Node) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", n.Group, n.Kind, n.Namespace,
		n.Name))
	return binary.BigEndian.Uint64(sum[:])
}

// size is an upper bound of the bytes of an object in a shard. It does not depend on the pack,
// which is not known yet when shards are written ahead.
func size(n *graph.Node) int {
	const (
		fields = 512 // names of fields, numbers, hash, key of the pack
		edge   = 96  // names of fields of an owner or a need
	)
	bytes := fields
	add := func(texts ...string) {
		for _, t := range texts {
			bytes += quoted(t)
		}
	}
	add(n.Group, n.Kind, n.Namespace, n.Name, n.Version, n.UID, n.ResourceVersion, n.Cluster,
		n.WorkloadID)
	add(n.Labels...)
	for _, o := range n.Owners {
		bytes += edge
		add(o.Group, o.Kind, o.Namespace, o.Name, o.UID)
	}
	for _, o := range n.Needs {
		bytes += edge
		add(o.Group, o.Kind, o.Namespace, o.Name, o.Field)
	}
	return bytes
}

// quoted is an upper bound of the bytes of a text in JSON, with its quotes and a comma.
func quoted(text string) int {
	bytes := len(text) + len(`"",`)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			bytes += len(`\u003c`) - 1
		}
	}
	return bytes
}
