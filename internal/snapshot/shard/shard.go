// Package shard is the format of a shard: the nodes of one part of a snapshot, as JSON. The store
// encrypts it. docs/format.md has the format.
//
// A shard is untrusted input until its content fits the signed tree: Decode guards against one that
// would exhaust the memory.
package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Shard is one part of a snapshot: a unit, or the objects of a namespace outside of units, or the
// cluster-scoped objects. Several shards share what is too large for one.
type Shard struct {
	// Unit is the "namespace/name" of the workload cluster; empty for the other shards.
	Unit string `json:"unit,omitempty"`
	// Namespace of the other shards; empty for cluster-scoped objects.
	Namespace string `json:"namespace,omitempty"`
	// Part tells the shards of one unit or namespace apart when one document cannot hold all of its
	// objects. It is 0 when one shard holds all of them.
	Part int64 `json:"part,omitempty"`
	// About describes the source; only in the cluster-scoped shard.
	About *About `json:"about,omitempty"`
	// Omitted are objects that the capture left out, and without which the unit is incomplete; no
	// more than mostOmitted.
	Omitted []object.Ref `json:"omitted,omitempty"`
	// Objects by ref.
	Objects []*graph.Node `json:"objects"`
}

// About describes the source of a snapshot, so that a restore can check a target against it.
type About struct {
	KubernetesVersion string `json:"kubernetesVersion"`
	// Kinds of the captured objects, and of the objects that these name.
	Kinds     []kube.Kind     `json:"kinds"`
	Providers []kube.Provider `json:"providers"`
	// API is how the API server of the source was reached; nil in snapshots of version 0.4 and older.
	API *kube.API `json:"api,omitempty"`
	// Selection is what was asked for; nil for a whole snapshot, and in snapshots of earlier
	// versions.
	Selection *Selection `json:"selection,omitempty"`
}

// Selection is what a partial snapshot was asked to hold: what is in these namespaces, or in all
// when there are none, and of that only the workload clusters that the selector selects, if there
// is one, with what they need.
type Selection struct {
	Namespaces []string `json:"namespaces,omitempty"`
	Selector   string   `json:"selector,omitempty"`
}

// leastObject is less than the bytes of any JSON object in a shard.
const leastObject = 32

// Budget limits the objects of all shards of a snapshot.
type Budget struct {
	most int64
	read atomic.Int64
}

// NewBudget allows as many objects as the signed envelope counts.
func NewBudget(objects int64) *Budget { return &Budget{most: objects} }

// Decode reads a shard. It stops at the first object that is incomplete, or exceeds the budget, so
// that a crafted shard cannot exhaust the memory.
func Decode(text []byte, b *Budget) (Shard, error) {
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
		case "part":
			err = dec.Decode(&s.Part)
		case "omitted":
			err = dec.Decode(&s.Omitted)
		case "about":
			err = dec.Decode(&s.About)
		case "objects":
			err = s.decodeObjects(dec, b)
		default: // a field of a later version
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

func (s *Shard) decodeObjects(dec *json.Decoder, b *Budget) error {
	if t, err := dec.Token(); err != nil || t == nil { // null: a shard without objects
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
