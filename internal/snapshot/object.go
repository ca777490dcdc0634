package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unique"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Annotations and labels that are read or written here and in restore.
const (
	// AnnotationPaused pauses one object (Cluster API contract).
	AnnotationPaused = "cluster.x-k8s.io/paused"
	// AnnotationWorkloadID carries the id of a workload cluster from one management cluster to the
	// next.
	AnnotationWorkloadID = "mgmtd.dev/workload-id"
	// AnnotationOperation says which operation is at work on an object: on the target the one that
	// created it, on the source of a move, on Clusters, the one that holds the lock.
	AnnotationOperation = "mgmtd.dev/operation"
	// AnnotationWasPaused says that an operation set the switch of an object, and to what it is
	// given back: WasAbsent, WasFalse or WasTrue.
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
	Paused   bool   `json:"paused,omitempty"`
	Deleting bool   `json:"deleting,omitempty"` // had a deletionTimestamp
	Content  string `json:"sha256"`             // of the stored bytes
	Size     int    `json:"size"`
	Pack     string `json:"pack"`
	// "namespace/name" of its workload cluster; empty when shared or without a unit
	Unit   string `json:"-"`
	Shared bool   `json:"-"` // needed by units, belongs to none
	Why    string `json:"-"` // why it is in scope, for coverage

	id      store.ContentID // of its bytes, where there is a memory
	movable bool            // labelled by users who ask clusterctl move to take it along
}

// Owner is an owner reference: an edge to the object that owns, which is created first.
type Owner struct {
	object.Ref
	UID string `json:"uid"`
}

// Need is an edge to an object that is named in a field.
type Need struct {
	object.Ref
	Field string `json:"field"`
	Owner bool   `json:"owner,omitempty"` // soft owner: created first
}

// Key is the namespace and name of the node.
func (n *Node) Key() object.Key { return object.Key{Namespace: n.Namespace, Name: n.Name} }

// reader turns the bytes of objects into nodes.
type reader struct {
	rules  map[object.GroupKind][]Rule
	scoped func(object.GroupKind) bool
}

func newReader(kinds []kube.Kind, rules []Rule) *reader {
	clusterScoped := map[object.GroupKind]bool{}
	for _, k := range kinds {
		clusterScoped[k.GroupKind] = !k.Namespaced
	}
	r := &reader{rules: map[object.GroupKind][]Rule{}, scoped: func(gk object.GroupKind) bool {
		return !clusterScoped[gk]
	}}
	for _, rule := range rules {
		r.rules[rule.From] = append(r.rules[rule.From], rule)
	}
	return r
}

// What node reads of an object, of its metadata, labels and annotations.
var (
	objectKeys   = []string{"metadata", "spec"}
	metadataKeys = []string{"namespace", "name", "uid", "resourceVersion", "deletionTimestamp",
		"ownerReferences", "labels", "annotations"}
	labelKeys      = []string{labelClusterName, labelMove, labelMoveHierarchy}
	annotationKeys = []string{AnnotationPaused, AnnotationWasPaused, AnnotationWorkloadID}
)

// node reads metadata and the reference fields of an object, each part once: of fifty thousand
// objects it shows. It decodes nothing else.
func (r *reader) node(k kube.Kind, raw []byte) *Node {
	var parts [2]gjson.Result
	var meta [8]gjson.Result
	var labels, annotations [3]gjson.Result
	//nolint:gosec // no copy: what leaves this function was copied by own and shared
	root := gjson.Parse(unsafe.String(unsafe.SliceData(raw), len(raw)))
	pick(root, objectKeys, parts[:])
	pick(parts[0], metadataKeys, meta[:])
	pick(meta[6], labelKeys, labels[:])
	pick(meta[7], annotationKeys, annotations[:])
	spec := parts[1]
	n := &Node{
		Ref: object.Ref{Group: k.Group, Kind: k.Kind, Namespace: shared(text(meta[0])),
			Name: own(text(meta[1]))},
		Version:         k.Version,
		UID:             own(text(meta[2])),
		ResourceVersion: own(text(meta[3])),
		Deleting:        meta[4].Exists(),
		Size:            len(raw),
		Paused:          annotations[0].Exists(),
		movable:         labels[1].Exists() || labels[2].Exists(),
	}
	sum := sha256.Sum256(raw)
	n.Content = hex.EncodeToString(sum[:])
	meta[5].ForEach(func(_, o gjson.Result) bool {
		n.Owners = append(n.Owners, Owner{Ref: refOf(o, object.GroupKind{}, n.Namespace, r.scoped),
			UID: own(text(o.Get("uid")))})
		return true
	})
	was := annotations[1]
	if was.Exists() {
		// in the middle of a move; what it was before is what counts
		n.Paused = was.String() == WasTrue
	}
	n.Cluster = shared(clusterName(n, labels[0], spec))
	if n.GroupKind() == ClusterKind {
		if !was.Exists() {
			n.Paused = n.Paused || spec.Get("paused").Bool()
		}
		n.WorkloadID = n.UID
		if id := annotations[2].String(); id != "" {
			n.WorkloadID = own(id)
		}
		meta[6].ForEach(func(k, v gjson.Result) bool {
			n.Labels = append(n.Labels, k.String()+"="+v.String())
			return true
		})
		slices.Sort(n.Labels)
	}
	for _, rule := range r.rules[n.GroupKind()] {
		for _, ref := range refsAt(spec, rule, n.Namespace, r.scoped) {
			n.Needs = append(n.Needs, Need{Ref: ref, Field: rule.Path, Owner: rule.Owner})
		}
	}
	return n
}

// pick gives the values that an object has under keys; of a key that comes twice, the first.
func pick(o gjson.Result, keys []string, values []gjson.Result) {
	if !o.IsObject() {
		return
	}
	left := len(keys)
	o.ForEach(func(k, v gjson.Result) bool {
		if i := slices.Index(keys, k.Str); i >= 0 && !values[i].Exists() {
			values[i] = v
			left--
		}
		return left > 0
	})
}

// own copies a text that is a part of an object's bytes: a node would otherwise keep all of its
// metadata in memory.
func own(part string) string { return strings.Clone(part) }

// shared is own of a text that many nodes have. They have it in memory once.
func shared(part string) string { return unique.Make(part).Value() }

// text gives a value that is a text, and nothing for any other: whoever decodes the object to
// create it sees nothing there either.
func text(v gjson.Result) string {
	if v.Type != gjson.String {
		return ""
	}
	return v.Str
}

// clusterName says which workload cluster an object belongs to by its label, its spec or, for
// certificate Secrets, its name. The object of that name need not exist.
func clusterName(n *Node, label, spec gjson.Result) string {
	switch {
	case n.GroupKind() == ClusterKind:
		return ""
	case label.String() != "":
		return label.String()
	case n.GroupKind() == secretKind:
		return certificateOf(n.Name)
	case n.GroupKind() == configMapKind:
		return ""
	}
	return text(spec.Get("clusterName"))
}

// certificateOf returns the name of the workload cluster to which a Secret of this name would
// belong as a certificate, or "".
func certificateOf(name string) string {
	shortest := ""
	for _, p := range certificatePurposes {
		if c, ok := strings.CutSuffix(name, "-"+p); ok && (shortest == "" || len(c) < len(shortest)) {
			shortest = c // the longest purpose wins: "x-apiserver-etcd-client" belongs to x
		}
	}
	return shortest
}
