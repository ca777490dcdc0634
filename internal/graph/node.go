package graph

import "github.com/mgmtd/mgmtd/internal/object"

// Node is an object of the graph: what is known of it without its content.
type Node struct {
	object.Ref
	Version         string  `json:"version"` // API version its bytes are in
	UID             string  `json:"uid"`
	ResourceVersion string  `json:"resourceVersion"`
	Owners          []Owner `json:"owners,omitempty"`
	Needs           []Need  `json:"needs,omitempty"`
	// name of the workload cluster in the same namespace that its label, spec or name says
	Cluster    string   `json:"cluster,omitempty"`
	Labels     []string `json:"labels,omitempty"` // of a Cluster: "key=value", for --selector
	WorkloadID string   `json:"workloadId,omitempty"`
	// by spec.paused or by annotation; not when an operation of ours set it
	Paused   bool `json:"paused,omitempty"`
	Deleting bool `json:"deleting,omitempty"` // had a deletionTimestamp
	// Common: units that a selection left out need the object too, see Narrow.
	Common bool `json:"common,omitempty"`
	// Related: nothing is known of its kind. It was captured since it owns a captured object, is
	// owned by one, or has the label of a Cluster.
	Related bool   `json:"related,omitempty"`
	Content string `json:"sha256"` // of the stored bytes
	Size    int    `json:"size"`
	Pack    string `json:"pack"`
	// "namespace/name" of its workload cluster; empty when shared or without a unit
	Unit   string `json:"-"`
	Shared bool   `json:"-"` // needed by units, belongs to none
	Why    string `json:"-"` // why it is in scope, for coverage
	// Labelled: the label of the object says Cluster, so that a LIST by that label has it.
	Labelled bool `json:"-"`

	// Generation is what the API server counts up with each change of a spec.
	Generation int64 `json:"-"`
	// ContentID is the keyed id of its bytes in the incremental index (store.ContentID).
	ContentID [20]byte `json:"-"`
	// Movable: a user's label asks clusterctl move to take it along.
	Movable bool `json:"-"`
}

// Owner is an owner reference: an edge to the object that owns, which is created first.
type Owner struct {
	object.Ref
	UID string `json:"uid"`
	// LeftOut: the owner exists, in a unit that a selection left out, see Narrow.
	LeftOut bool `json:"leftOut,omitempty"`
}

// Need is an edge to an object that is named in a field.
type Need struct {
	object.Ref
	Field string `json:"field"`
	Owner bool   `json:"owner,omitempty"` // soft owner: created first
	// Optional: nothing is missing when it is absent.
	Optional bool `json:"optional,omitempty"`
	// Back: the named object needs the node, and not the other way round.
	Back bool `json:"back,omitempty"`
}

// Key is the namespace and name of the node.
func (n *Node) Key() object.Key { return object.Key{Namespace: n.Namespace, Name: n.Name} }
