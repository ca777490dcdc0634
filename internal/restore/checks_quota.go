package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

var quotaKind = kube.Kind{GroupKind: object.GroupKind{Kind: "ResourceQuota"}, Version: "v1",
	Resource: "resourcequotas", Namespaced: true, Served: []string{"v1"}}

// quota is the part of a ResourceQuota that counts objects.
type quota struct {
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Hard map[string]resource.Quantity
	}
	Status struct {
		Used map[string]resource.Quantity
	}
}

// checkQuotas adds up what the restore creates in each namespace of the target that has a
// ResourceQuota: a dry-run is charged to no quota. Units with an object that does not fit any more
// are blocked, all of the namespace: which one comes first is not known.
func checkQuotas(ctx context.Context, p *planner) error {
	planned := map[string]map[string][]*graph.Node{} // by namespace and resource
	for n := range p.active {
		k, served := p.kinds[n.GroupKind()]
		if !served || n.Namespace == "" || p.existing[n.Ref] != "" {
			continue
		}
		if planned[n.Namespace] == nil {
			planned[n.Namespace] = map[string][]*graph.Node{}
		}
		name := countedAs(k)
		planned[n.Namespace][name] = append(planned[n.Namespace][name], n)
	}
	_, err := p.Reader.List(ctx, quotaKind, kube.ListOptions{}, func(raw []byte) error {
		var q quota
		if err := json.Unmarshal(raw, &q); err != nil {
			return fmt.Errorf("read ResourceQuota: %w", err)
		}
		p.checkQuota(q, planned[q.Metadata.Namespace])
		return nil
	})
	if apierrors.IsForbidden(err) {
		p.addAll(object.Finding{Severity: object.Info, Code: object.CodeNotChecked,
			Message: "whether everything fits into the quotas of the target is not known: these " +
				"credentials may not list ResourceQuotas"})
		return nil
	}
	if err != nil {
		return fmt.Errorf("list quotas: %w", err)
	}
	return nil
}

// countedAs is the name of a kind in a quota that counts objects:
// https://kubernetes.io/docs/concepts/policy/resource-quotas/#object-count-quota.
func countedAs(k kube.Kind) string {
	if k.Group == "" {
		return "count/" + k.Resource
	}
	return "count/" + k.Resource + "." + k.Group
}

func (p *planner) checkQuota(q quota, planned map[string][]*graph.Node) {
	for _, key := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		counted := key
		if !strings.Contains(key, "/") {
			counted = "count/" + key // Secrets and ConfigMaps have a short name
		}
		nodes := planned[counted]
		hard, used := q.Spec.Hard[key], q.Status.Used[key]
		if len(nodes) == 0 || used.Value()+int64(len(nodes)) <= hard.Value() {
			continue
		}
		blocked := map[string]bool{}
		for _, n := range nodes {
			if blocked[n.Unit] && n.Unit != "" {
				continue
			}
			blocked[n.Unit] = true
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeQuota,
				Message: fmt.Sprintf("quota %s of namespace %s allows %s of %s; %s are there, and the "+
					"restore creates %d", q.Metadata.Name, q.Metadata.Namespace, hard.String(), key,
					used.String(), len(nodes)),
				Hint: "raise the quota on the target, or restore fewer workload clusters of the namespace"})
		}
	}
}
