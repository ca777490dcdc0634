package restore

import (
	"context"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// labelPath is the path of the label that names a workload cluster.
var labelPath = fieldMetadata + ".labels." + strings.ReplaceAll(capi.LabelClusterName, ".", `\.`)

// readTogether reads the objects of workload clusters by their label, and returns the bytes of
// those for which that pays (kube.Labeled). An object that has another label on the target than in
// the plan is not in it.
func (r *run) readTogether(ctx context.Context, objects []Object, seen *kube.Seen) (
	map[object.Ref][]byte, error) {
	labeled, _, err := r.labeledObjects(objects)
	if err != nil {
		return nil, err
	}
	return r.labeled.Read(ctx, labeled, seen), nil
}

// followWait is how long watches have to show objects that are not read.
const followWait = time.Second

// follow follows objects. The caller closes what it returns. Unless they are to be read fresh, it
// waits until watches show them.
func (r *run) follow(ctx context.Context, objects []Object, fresh bool) *kube.Followed {
	labeled, others, err := r.labeledObjects(objects)
	if err != nil {
		return &kube.Followed{} // those who wait find out
	}
	f := kube.Follow(ctx, r.Reader, append(labeled, others...))
	if !fresh {
		f.Shown(ctx, followWait)
	}
	return f
}

// labeledObjects returns objects with the label of their workload cluster, and those without one.
func (r *run) labeledObjects(objects []Object) (labeled, others []kube.LabeledObject, err error) {
	for _, o := range objects {
		if o.Action == Skip {
			continue // it may have no contents
		}
		workload, err := r.workloadOf(o.Ref)
		if err != nil {
			return nil, nil, err
		}
		l := kube.LabeledObject{Kind: r.kinds[o.GroupKind()], Ref: o.Ref}
		if workload == "" {
			others = append(others, l)
			continue
		}
		l.Label = capi.LabelClusterName + "=" + workload
		labeled = append(labeled, l)
	}
	return labeled, others, nil
}

// workloadOf returns the workload cluster that the label of an object names in the plan; "" when it
// has none.
func (r *run) workloadOf(ref object.Ref) (string, error) {
	r.mu.Lock()
	workload, known := r.labels[ref]
	r.mu.Unlock()
	if known {
		return workload, nil
	}
	raw, err := r.Contents.Bytes(ref)
	if err != nil {
		return "", err
	}
	workload = gjson.GetBytes(raw, labelPath).String()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.labels[ref] = workload
	return workload, nil
}
