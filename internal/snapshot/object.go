package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unique"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/snapshot/store"
)

// Annotations and labels that are read or written here and in restore.
const (
	// AnnotationPaused pauses one object (Cluster API contract).
	AnnotationPaused = "cluster.x-k8s.io/paused"
	// AnnotationWorkloadID carries the id of a workload cluster from one management cluster to the next.
	AnnotationWorkloadID = "mgmtd.dev/workload-id"
	// AnnotationOperation says which operation is at work on an object: on the target the one that created it, on the source of a move, on Clusters, the one that
	// holds the lock.
	AnnotationOperation = "mgmtd.dev/operation"
	// AnnotationWasPaused says that an operation set the switch of an object, and to what it is given back: WasAbsent, WasFalse or WasTrue.
	AnnotationWasPaused = "mgmtd.dev/was-paused"

	labelClusterName   = "cluster.x-k8s.io/cluster-name"
	labelMove          = "clusterctl.cluster.x-k8s.io/move"
	labelMoveHierarchy = "clusterctl.cluster.x-k8s.io/move-hierarchy"
)

// What a switch was before an operation set it.
const (
	WasAbsent = "absent"
	WasFalse  = "false"
	WasTrue   = "true"
)

// Node is an object of the graph: what is known of it without its content.
type Node struct {
	mgmt.Ref
	Version         string   `json:"version"` // API version its bytes are in
	UID             string   `json:"uid"`
	ResourceVersion string   `json:"resourceVersion"`
	Owners          []Owner  `json:"owners,omitempty"`
	Needs           []Need   `json:"needs,omitempty"`
	Cluster         string   `json:"cluster,omitempty"` // name of the workload cluster in the same namespace that its label, spec or name says
	Labels          []string `json:"labels,omitempty"`  // of a Cluster: "key=value", for --selector
	WorkloadID      string   `json:"workloadId,omitempty"`
	Paused          bool     `json:"paused,omitempty"`   // by spec.paused or by annotation; not when an operation of ours set it
	Deleting        bool     `json:"deleting,omitempty"` // had a deletionTimestamp
	Content         string   `json:"sha256"`             // of the stored bytes
	Size            int      `json:"size"`
	Pack            string   `json:"pack"`
	Unit            string   `json:"-"` // "namespace/name" of its workload cluster; empty when shared or without a unit
	Shared          bool     `json:"-"` // needed by units, belongs to none
	Why             string   `json:"-"` // why it is in scope, for coverage

	id      store.ContentID // of its bytes, where there is a memory
	movable bool            // labelled for clusterctl move
}

// Owner is an owner reference: an edge to the object that owns, which is created first.
type Owner struct {
	mgmt.Ref
	UID string `json:"uid"`
}

// Need is an edge to an object that is named in a field.
type Need struct {
	mgmt.Ref
	Field string `json:"field"`
	Owner bool   `json:"owner,omitempty"` // soft owner: created first
}

// Key is the namespace and name of the node.
func (n *Node) Key() mgmt.Key { return mgmt.Key{Namespace: n.Namespace, Name: n.Name} }

// reader turns the bytes of objects into nodes.
type reader struct {
	rules  map[mgmt.GroupKind][]Rule
	scoped func(mgmt.GroupKind) bool
}

func newReader(kinds []mgmt.Kind, rules []Rule) *reader {
	clusterScoped := map[mgmt.GroupKind]bool{}
	for _, k := range kinds {
		clusterScoped[k.GroupKind] = !k.Namespaced
	}
	r := &reader{rules: map[mgmt.GroupKind][]Rule{}, scoped: func(gk mgmt.GroupKind) bool { return !clusterScoped[gk] }}
	for _, rule := range rules {
		r.rules[rule.From] = append(r.rules[rule.From], rule)
	}
	return r
}

// node reads metadata and the reference fields of an object. It decodes nothing else.
func (r *reader) node(k mgmt.Kind, raw []byte) *Node {
	meta := gjson.GetBytes(raw, "metadata")
	n := &Node{
		Ref:             mgmt.Ref{Group: k.Group, Kind: k.Kind, Namespace: shared(text(meta.Get("namespace"))), Name: own(text(meta.Get("name")))},
		Version:         k.Version,
		UID:             own(text(meta.Get("uid"))),
		ResourceVersion: own(text(meta.Get("resourceVersion"))),
		Deleting:        meta.Get("deletionTimestamp").Exists(),
		Size:            len(raw),
	}
	sum := sha256.Sum256(raw)
	n.Content = hex.EncodeToString(sum[:])
	meta.Get("ownerReferences").ForEach(func(_, o gjson.Result) bool {
		n.Owners = append(n.Owners, Owner{Ref: refOf(o, mgmt.GroupKind{}, n.Namespace, r.scoped), UID: shared(text(o.Get("uid")))})
		return true
	})
	annotations := meta.Get("annotations").Map()
	_, n.Paused = annotations[AnnotationPaused]
	if was := annotations[AnnotationWasPaused]; was.Exists() {
		n.Paused = was.String() == WasTrue // in the middle of a move; what it was before is what counts
	}
	n.Cluster = shared(r.clusterName(n, meta, raw))
	n.movable = movable(meta)
	if n.GroupKind() == ClusterKind {
		if !annotations[AnnotationWasPaused].Exists() {
			n.Paused = n.Paused || gjson.GetBytes(raw, "spec.paused").Bool()
		}
		n.WorkloadID = n.UID
		if id := annotations[AnnotationWorkloadID].String(); id != "" {
			n.WorkloadID = own(id)
		}
		meta.Get("labels").ForEach(func(k, v gjson.Result) bool {
			n.Labels = append(n.Labels, k.String()+"="+v.String())
			return true
		})
		slices.Sort(n.Labels)
	}
	for _, rule := range r.rules[n.GroupKind()] {
		for _, ref := range refsAt(raw, rule, n.Namespace, r.scoped) {
			n.Needs = append(n.Needs, Need{Ref: ref, Field: rule.Path, Owner: rule.Owner})
		}
	}
	return n
}

// own copies a text that is a part of an object's bytes: a node would otherwise keep all of its metadata in memory.
func own(part string) string { return strings.Clone(part) }

// shared is own of a text that many nodes have. They have it in memory once.
func shared(part string) string { return unique.Make(part).Value() }

// text gives a value that is a text, and nothing for any other: whoever decodes the object to create it sees nothing there either.
func text(v gjson.Result) string {
	if v.Type != gjson.String {
		return ""
	}
	return v.Str
}

// clusterName says which workload cluster an object belongs to by its label, its spec or, for certificate Secrets, its name. The object of that name need
// not exist.
func (r *reader) clusterName(n *Node, meta gjson.Result, raw []byte) string {
	if n.GroupKind() == ClusterKind {
		return ""
	}
	if v := meta.Get("labels").Map()[labelClusterName]; v.String() != "" {
		return v.String()
	}
	if n.GroupKind() == secretKind {
		return certificateOf(n.Name)
	}
	if n.GroupKind() == configMapKind {
		return ""
	}
	return text(gjson.GetBytes(raw, "spec.clusterName"))
}

// certificateOf returns the name of the workload cluster to which a Secret of this name would belong as a certificate, or "".
func certificateOf(name string) string {
	shortest := ""
	for _, p := range certificatePurposes {
		if c, ok := strings.CutSuffix(name, "-"+p); ok && (shortest == "" || len(c) < len(shortest)) {
			shortest = c // the longest purpose wins: "x-apiserver-etcd-client" belongs to x
		}
	}
	return shortest
}

// movable reports the labels by which users ask clusterctl to take an object along.
func movable(meta gjson.Result) bool {
	labels := meta.Get("labels").Map()
	_, move := labels[labelMove]
	_, hierarchy := labels[labelMoveHierarchy]
	return move || hierarchy
}
