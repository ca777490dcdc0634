package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// A ClusterResourceSet of the target acts on each Cluster of its namespace that it selects, also on
// a copy that is still paused: its controller reads its own pause and not that of the Cluster
// (cluster-api v1.14, core/reconcilers/clusterresourceset/clusterresourceset_controller.go). No
// rollback takes back what it has applied to the workload cluster by then.

// newCluster is a Cluster that a plan creates.
type newCluster struct {
	name, unit string
	labels     labels.Set
}

// checkSelected reports what the target has besides the plan and selects a Cluster that the plan
// creates. The plan of a batch, whose units may be paused, does not read that again: the plan of
// the whole operation has reported it, and has in it what the batches before have created.
func checkSelected(ctx context.Context, p *planner) error {
	if p.Spec.Only != nil {
		return nil
	}
	clusters, err := p.newClusters()
	if err != nil || len(clusters) == 0 {
		return err
	}
	options := kube.ListOptions{Namespaces: slices.Sorted(maps.Keys(clusters))}
	for _, k := range p.Kinds {
		path := p.rows().Row(k.GroupKind).ClusterSelector
		if path == "" || !k.Namespaced {
			continue
		}
		_, err := p.Reader.List(ctx, k, options, func(raw []byte) error {
			live := &unstructured.Unstructured{}
			if err := live.UnmarshalJSON(raw); err != nil {
				return fmt.Errorf("decode %s: %w", k.GroupKind, jsonError(err))
			}
			selector := clusterSelector(raw, path)
			p.checkSelector(k, live, selector, clusters[live.GetNamespace()])
			return nil
		})
		if f, blind := cannotList(k, err); blind {
			f.Severity = object.Warning
			f.Message += "; whether one selects a workload cluster of the plan is not known"
			p.addAll(f)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// newClusters returns the Clusters that the plan creates in namespaces that the target has, by
// namespace, with the labels that they get.
func (p *planner) newClusters() (map[string][]newCluster, error) {
	clusters := map[string][]newCluster{}
	for n := range p.active {
		absent := len(p.targetNamespaces) > 0 && !p.targetNamespaces[n.Namespace]
		if n.GroupKind() != capi.Cluster || p.existing[n.Ref] != "" || absent {
			continue
		}
		raw, err := p.Contents.Bytes(n.Ref)
		if err != nil {
			return nil, err
		}
		clusters[n.Namespace] = append(clusters[n.Namespace], newCluster{n.Key().String(), n.Unit,
			labels.Set(capi.LabelsOf(gjson.ParseBytes(raw)))})
	}
	return clusters, nil
}

// checkSelector adds a finding for each of clusters, which are those of its namespace, that an
// object of the target selects, unless it is in the plan, is paused, or is being deleted.
func (p *planner) checkSelector(k kube.Kind, live *unstructured.Unstructured,
	selector labels.Selector, clusters []newCluster) {
	ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: live.GetNamespace(),
		Name: live.GetName()}
	paused := capi.PauseByAnnotation.IsSet(live.Object) ||
		p.rows().Row(k.GroupKind).Pause.IsSet(live.Object)
	if p.inPlan(ref) || paused || live.GetDeletionTimestamp() != nil {
		return
	}
	for _, c := range clusters {
		if !selector.Matches(c.labels) {
			continue
		}
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeTargetSelects,
			Ref: ref, Unit: c.unit,
			Message: "it is on the target and not in the plan, and selects workload cluster " +
				c.name + ": its controller acts on the copy as soon as that is there, also while " +
				"the copy is paused",
			Hint: "compare it with the one of the source; when it must not act on that workload " +
				"cluster, pause it (annotation " + capi.AnnotationPaused + ") before you go on, or " +
				"leave that workload cluster out"})
	}
}
