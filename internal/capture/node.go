package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unique"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// NodeReader turns the bytes of objects into nodes of the graph.
type NodeReader struct {
	rows   *capi.Table
	noRefs bool // leave out the edges of fields
	scoped func(object.GroupKind) bool
}

// NewNodeReader makes a reader for objects of these kinds. rows says which fields are edges.
func NewNodeReader(kinds []kube.Kind, rows *capi.Table) *NodeReader {
	clusterScoped := map[object.GroupKind]bool{}
	for _, k := range kinds {
		clusterScoped[k.GroupKind] = !k.Namespaced
	}
	return &NodeReader{rows: rows,
		scoped: func(gk object.GroupKind) bool { return !clusterScoped[gk] }}
}

// WithoutRefs returns a reader that leaves out the edges of fields.
func (r *NodeReader) WithoutRefs() *NodeReader {
	return &NodeReader{rows: r.rows, scoped: r.scoped, noRefs: true}
}

// What node reads of an object, of its metadata, labels and annotations.
var (
	objectKeys   = []string{"metadata", "spec"}
	metadataKeys = []string{"namespace", "name", "uid", "resourceVersion", "deletionTimestamp",
		"ownerReferences", "labels", "annotations", "generation"}
	labelKeys = []string{capi.LabelClusterName, capi.LabelMove, capi.LabelMoveHierarchy,
		capi.LabelHelmOwner, capi.LabelHelmRelease, capi.LabelFluxHelmNamespace}
	annotationKeys = []string{capi.AnnotationPaused, capi.AnnotationWasPaused,
		capi.AnnotationWorkloadID, capi.AnnotationHelmRelease, capi.AnnotationHelmNamespace}
)

// Node reads metadata and the reference fields of an object and decodes nothing else. It walks each
// part of the bytes once, since it is called for every object of a source.
func (r *NodeReader) Node(k kube.Kind, raw []byte) *graph.Node {
	var parts [2]gjson.Result
	var meta [9]gjson.Result
	var labels [6]gjson.Result
	var annotations [5]gjson.Result
	//nolint:gosec // no copy: what leaves this function was copied by strings.Clone or shared
	root := gjson.Parse(unsafe.String(unsafe.SliceData(raw), len(raw)))
	pick(root, objectKeys, parts[:])
	pick(parts[0], metadataKeys, meta[:])
	pick(meta[6], labelKeys, labels[:])
	pick(meta[7], annotationKeys, annotations[:])
	spec := parts[1]
	n := &graph.Node{
		Ref: object.Ref{Group: k.Group, Kind: k.Kind, Namespace: shared(text(meta[0])),
			Name: strings.Clone(text(meta[1]))},
		Version:         k.Version,
		Related:         isRelatedKind(k, r.rows),
		UID:             strings.Clone(text(meta[2])),
		ResourceVersion: strings.Clone(text(meta[3])),
		Deleting:        meta[4].Exists(),
		Size:            len(raw),
		Paused:          annotations[0].Exists(),
		Movable:         labels[1].Exists() || labels[2].Exists(),
		Generation:      meta[8].Int(),
	}
	sum := sha256.Sum256(raw)
	n.Content = hex.EncodeToString(sum[:])
	r.addOwners(n, meta[5])
	was := annotations[1]
	if was.Exists() {
		// in the middle of a move; what it was before is what counts
		n.Paused = was.String() == capi.WasTrue
	}
	n.Cluster = shared(r.clusterName(n, labels[0], spec))
	n.Labelled = n.Cluster != "" && labels[0].String() == n.Cluster
	if n.Cluster == "" && n.GroupKind() == capi.Secret {
		n.Cluster = shared(capi.ClusterOfHelmStorage(n.Name, text(labels[3]), text(labels[4])))
	}
	if n.GroupKind() == capi.Cluster {
		if !was.Exists() {
			n.Paused = n.Paused || spec.Get("paused").Bool()
		}
		n.WorkloadID = n.UID
		if id := annotations[2].String(); id != "" {
			n.WorkloadID = strings.Clone(id)
		}
		meta[6].ForEach(func(k, v gjson.Result) bool {
			n.Labels = append(n.Labels, k.String()+"="+v.String())
			return true
		})
		slices.Sort(n.Labels)
	}
	if r.noRefs {
		return n
	}
	r.addNeeds(n, root, capi.Fields{Spec: spec, Annotations: meta[7], Namespace: n.Namespace,
		Name: n.Name, Controller: k.Controller})
	if isSelectedKind(k, r.rows) {
		addHelmStorage(n, text(annotations[3]), text(annotations[4]), text(labels[5]))
	}
	return n
}

func (r *NodeReader) addOwners(n *graph.Node, references gjson.Result) {
	references.ForEach(func(_, o gjson.Result) bool {
		n.Owners = append(n.Owners, graph.Owner{Ref: capi.RefOf(o, object.GroupKind{}, n.Namespace,
			r.scoped),
			UID: strings.Clone(text(o.Get("uid")))})
		return true
	})
}

// addNeeds adds the edges of the references of an object. Its status is parsed only for a row that
// reads it.
func (r *NodeReader) addNeeds(n *graph.Node, root gjson.Result, fields capi.Fields) {
	row := r.rows.Row(n.GroupKind())
	if row.ReadsStatus() {
		fields.Status = root.Get("status")
	}
	for _, field := range row.Refs {
		for _, ref := range field.In(fields, r.scoped) {
			n.Needs = append(n.Needs, graph.Need{Ref: ref, Field: field.Field(), Owner: field.SoftOwner,
				Optional: field.Optional, Back: field.Back})
		}
	}
}

// addHelmStorage adds the edges to the storage of the Helm release that made an object.
func addHelmStorage(n *graph.Node, release string, namespaces ...string) {
	for _, ref := range capi.HelmStorage(release, namespaces...) {
		ref.Namespace, ref.Name = shared(ref.Namespace), shared(ref.Name)
		n.Needs = append(n.Needs, graph.Need{Ref: ref, Optional: true,
			Field: "metadata.annotations[" + capi.AnnotationHelmRelease + "]"})
	}
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

// shared copies a string of an object's bytes that many nodes have. They have it in memory once.
func shared(part string) string { return unique.Make(part).Value() }

// text returns a string value, and "" for any other type: the decoder that a restore creates the
// object with reads nothing there either.
func text(v gjson.Result) string {
	if v.Type != gjson.String {
		return ""
	}
	return v.Str
}

// clusterName returns the name of the workload cluster that an object belongs to: by its label, its
// spec or, for certificate Secrets, its name. The Cluster need not exist.
func (r *NodeReader) clusterName(n *graph.Node, label, spec gjson.Result) string {
	switch {
	case n.GroupKind() == capi.Cluster:
		return ""
	case label.String() != "":
		return label.String()
	case n.GroupKind() == capi.Secret:
		return r.rows.ClusterOfSecret(n.Name)
	case n.GroupKind() == capi.ConfigMap, n.Related: // of the latter only metadata counts
		return ""
	}
	return text(spec.Get("clusterName"))
}
