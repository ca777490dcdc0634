package restore

import (
	"context"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// workloadList is a LIST of the objects of one kind and one workload cluster, by its label.
type workloadList struct {
	kind                object.GroupKind
	namespace, workload string
}

func (l workloadList) label() string { return capi.LabelClusterName + "=" + l.workload }

// labelPath is the path of the label that names a workload cluster.
var labelPath = "labels." + strings.ReplaceAll(capi.LabelClusterName, ".", `\.`)

// listOf returns the LIST that has an object of the plan; false when the object has no label. An
// object whose label is another one on the target is not in its answer.
func (r *run) listOf(o Object) (l workloadList, ok bool, err error) {
	r.mu.Lock()
	workload, known := r.labels[o.Ref]
	r.mu.Unlock()
	if !known {
		raw, err := r.Contents.Bytes(o.Ref)
		if err != nil {
			return l, false, err
		}
		workload = gjson.GetBytes(raw, fieldMetadata+"."+labelPath).String()
		r.mu.Lock()
		r.labels[o.Ref] = workload
		r.mu.Unlock()
	}
	return workloadList{o.GroupKind(), o.Namespace, workload}, workload != "", nil
}

// readTogether reads, with one LIST each, what objects have the label of the same workload cluster,
// and returns their bytes, of those for which that pays (kube.Labeled).
func (r *run) readTogether(ctx context.Context, objects []Object) (map[object.Ref][]byte, error) {
	names := map[workloadList]map[string]bool{}
	var lists []workloadList
	for _, o := range objects {
		if o.Action == Skip {
			continue // it may have no contents
		}
		l, ok, err := r.listOf(o)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if names[l] == nil {
			names[l], lists = map[string]bool{}, append(lists, l)
		}
		names[l][o.Name] = true
	}
	var mu sync.Mutex
	read := map[object.Ref][]byte{}
	err := eachWithin(r, r.polls, lists, func(l workloadList) error {
		found := r.labeled.Read(ctx, r.kinds[l.kind], l.namespace, l.label(), names[l])
		mu.Lock()
		defer mu.Unlock()
		for name, raw := range found {
			read[object.Ref{Group: l.kind.Group, Kind: l.kind.Kind, Namespace: l.namespace,
				Name: name}] = raw
		}
		return nil
	})
	return read, err
}
