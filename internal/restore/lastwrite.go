package restore

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// lastWrite is the target's answer to the last write of an object, which was compared with the
// snapshot and may be released. While the object has the same resourceVersion, it is what the
// answer was: a resourceVersion stands for one write.
type lastWrite struct {
	resourceVersion string
	workload        string // by its label
	deviation       deviation
}

// lastWrites are the answers of a run. Verify reads the metadata of these objects with one LIST of
// each kind, in place of one GET of each object, which cost the API server as much as half a
// create.
type lastWrites struct {
	mu    sync.Mutex
	byRef map[object.Ref]lastWrite
}

// take returns the answer to the last write of an object, and forgets it.
func (l *lastWrites) take(ref object.Ref) (w lastWrite, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok = l.byRef[ref]
	delete(l.byRef, ref)
	return w, ok
}

// addLastWrite compares the answer to the last write of an object of a unit with the snapshot, and
// stores the result for verify. It stores none when the answer differs: verify reads such an
// object again. The owners of shared objects, and the status of a Cluster, are written later.
func (r *run) addLastWrite(ctx context.Context, unit string, o Object, source,
	answer *unstructured.Unstructured) {
	workload := answer.GetLabels()[capi.LabelClusterName]
	if unit == "" || o.GroupKind() == capi.Cluster || workload == "" {
		return
	}
	s := r.standard()
	s.prober = nil // a difference is left to verify, so it is not looked into here
	d, why := r.differenceBy(ctx, s, o, source, answer)
	if why != "" {
		return
	}
	w := lastWrite{resourceVersion: answer.GetResourceVersion(), workload: workload, deviation: d}
	r.lastWrites.mu.Lock()
	defer r.lastWrites.mu.Unlock()
	r.lastWrites.byRef[o.Ref] = w
}

// verifyUnchanged verifies the objects that are as this run wrote them last, by their metadata. It
// returns the others.
func (r *run) verifyUnchanged(ctx context.Context, objects []Object, seen *notes) []Object {
	written := map[object.Ref]lastWrite{}
	lists := map[writtenList][]object.Ref{}
	for _, o := range objects {
		if w, ok := r.lastWrites.take(o.Ref); ok {
			written[o.Ref] = w
			l := writtenList{o.GroupKind(), o.Namespace, w.workload}
			lists[l] = append(lists[l], o.Ref)
		}
	}
	maps.DeleteFunc(lists, func(_ writtenList, refs []object.Ref) bool { return len(refs) == 1 })
	unchanged := r.unchanged(ctx, slices.Collect(maps.Keys(lists)), written)
	var others []Object
	for _, o := range objects {
		if !unchanged[o.Ref] {
			others = append(others, o)
			continue
		}
		seen.addDeviation(o.Ref, written[o.Ref].deviation)
	}
	return others
}

// writtenList is one LIST of the target: the objects of one kind and one workload cluster.
type writtenList struct {
	kind                object.GroupKind
	namespace, workload string
}

// unchanged returns the objects that still have the resourceVersions of their last writes. The
// LISTs read the newest state. One that fails says nothing of its objects: they are read one by
// one.
func (r *run) unchanged(ctx context.Context, lists []writtenList,
	written map[object.Ref]lastWrite) map[object.Ref]bool {
	var mu sync.Mutex
	unchanged := map[object.Ref]bool{}
	var g task.Group
	for _, l := range lists {
		r.polls <- struct{}{}
		g.Go(func() error {
			defer func() { <-r.polls }()
			_, _ = r.Reader.List(ctx, r.kinds[l.kind], kube.ListOptions{Namespace: l.namespace,
				Labels: capi.LabelClusterName + "=" + l.workload, Metadata: true, Whole: true},
				func(raw []byte) error {
					meta := gjson.GetBytes(raw, "metadata")
					ref := object.Ref{Group: l.kind.Group, Kind: l.kind.Kind, Namespace: l.namespace,
						Name: meta.Get("name").String()}
					if w, ok := written[ref]; ok && meta.Get("uid").String() == r.uid(ref) &&
						meta.Get("resourceVersion").String() == w.resourceVersion {
						mu.Lock()
						defer mu.Unlock()
						unchanged[ref] = true
					}
					return nil
				})
			return nil
		})
	}
	g.Finish()
	return unchanged
}
