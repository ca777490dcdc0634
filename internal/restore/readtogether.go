package restore

import (
	"context"
	"strings"

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
	var labeled []kube.LabeledObject
	for _, o := range objects {
		if o.Action == Skip {
			continue // it may have no contents
		}
		workload, err := r.workloadOf(o.Ref)
		if err != nil {
			return nil, err
		}
		if workload != "" {
			labeled = append(labeled, kube.LabeledObject{Kind: r.kinds[o.GroupKind()], Ref: o.Ref,
				Label: capi.LabelClusterName + "=" + workload})
		}
	}
	return r.labeled.Read(ctx, labeled, seen), nil
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
