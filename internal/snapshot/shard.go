package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// Shard is the index of one part of a snapshot: a unit, or what a namespace holds outside of units,
// or what is cluster-scoped. It is stored encrypted.
type Shard struct {
	// Unit is the "namespace/name" of the workload cluster; empty for the other parts.
	Unit string `json:"unit,omitempty"`
	// Namespace of the other parts; empty for cluster-scoped objects.
	Namespace string `json:"namespace,omitempty"`
	// About describes the source; only in the cluster-scoped shard.
	About *About `json:"about,omitempty"`
	// Objects by ref.
	Objects []*graph.Node `json:"objects"`
}

// About is what a restore has to know of the source to check a target against it.
type About struct {
	KubernetesVersion string `json:"kubernetesVersion"`
	// those that were captured, or are named by what was
	Kinds     []kube.Kind     `json:"kinds"`
	Providers []kube.Provider `json:"providers"`
}

// shards divides a graph: one shard a unit, one a namespace for the rest, one for what is
// cluster-scoped, which is always there.
func shards(g *graph.Graph, about About) []Shard {
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
		return strings.Compare(a.name(), b.name())
	})
	return list
}

// name tells the shards of one snapshot apart.
func (s *Shard) name() string { return s.Unit + "\x00" + s.Namespace }

// leastObject is less than the bytes of any JSON object in a shard.
const leastObject = 32

// budget is how many objects the envelope counts, and how many were read.
type budget struct {
	most int64
	read atomic.Int64
}

// decodeShard reads a shard, which is untrusted input until its content fits the signed tree, and
// guards against one that would confuse the graph. Of one that is made to fill the memory, it reads
// no more than up to the first object that is none, or one too many.
func decodeShard(text []byte, b *budget) (Shard, error) {
	if bytes.Count(text, []byte("{")) > len(text)/leastObject+2 {
		return Shard{}, errors.New("decode shard: more objects than fit into it")
	}
	var s Shard
	dec := json.NewDecoder(bytes.NewReader(text))
	err := expect(dec, json.Delim('{'))
	for err == nil && dec.More() {
		var name json.Token
		if name, err = dec.Token(); err != nil {
			break
		}
		switch name {
		case "unit":
			err = dec.Decode(&s.Unit)
		case "namespace":
			err = dec.Decode(&s.Namespace)
		case "about":
			err = dec.Decode(&s.About)
		case "objects":
			err = s.decodeObjects(dec, b)
		default: // of a later version
			err = dec.Decode(&json.RawMessage{})
		}
	}
	if err == nil {
		err = expect(dec, json.Delim('}'))
	}
	if _, end := dec.Token(); err == nil && end != io.EOF {
		err = errors.New("text after its end")
	}
	if err != nil {
		return Shard{}, fmt.Errorf("decode shard: %w", err)
	}
	return s, nil
}

func (s *Shard) decodeObjects(dec *json.Decoder, b *budget) error {
	if t, err := dec.Token(); err != nil || t == nil { // null, of a shard without any
		return err
	} else if t != json.Delim('[') {
		return fmt.Errorf("%v where a list has to be", t)
	}
	for dec.More() {
		var n *graph.Node
		if err := dec.Decode(&n); err != nil {
			return err
		}
		if n == nil || n.Kind == "" || n.Name == "" || n.Version == "" || n.Content == "" ||
			n.Pack == "" {
			return fmt.Errorf("object %d is incomplete", len(s.Objects))
		}
		if b.read.Add(1) > b.most {
			return fmt.Errorf("more objects than the %d that the envelope counts", b.most)
		}
		s.Objects = append(s.Objects, n)
	}
	return expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	t, err := dec.Token()
	if err == nil && t != want {
		err = fmt.Errorf("%v where %v has to be", t, want)
	}
	return err
}
