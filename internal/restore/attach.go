package restore

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// An object attaches to what it names: a MachineHealthCheck remediates the Machines of its Cluster,
// a Machine below a control plane makes that scale a real one down, and a ClusterResourceSet
// applies its manifests to all Clusters with certain labels. Names are no identity, so the Cluster
// of that name on the target may be another one. Nothing pauses such an object when that Cluster is
// at work.

// clusterNamed returns the ref of the Cluster of that name.
func clusterNamed(namespace, name string) object.Ref {
	return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: namespace,
		Name: name}
}

// namedClusters returns the Clusters that an object says it belongs to: by its label, its
// spec.clusterName, its own name or its owners. The graph follows one of these only, while the
// webhooks of the target replace the label by spec.clusterName.
func (p *planner) namedClusters(n *graph.Node) ([]object.Ref, error) {
	if n.GroupKind() == capi.Cluster || n.Namespace == "" {
		return nil, nil
	}
	raw, err := p.Contents.Bytes(n.Ref)
	if err != nil {
		return nil, err
	}
	names := []string{n.Cluster,
		gjson.GetBytes(raw, "metadata.labels").Map()[capi.LabelClusterName].String()}
	if n.Group != "" {
		names = append(names, gjson.GetBytes(raw, "spec.clusterName").String())
	}
	var clusters []object.Ref
	for _, name := range names {
		if ref := clusterNamed(n.Namespace, name); name != "" && !slices.Contains(clusters, ref) {
			clusters = append(clusters, ref)
		}
	}
	for _, o := range n.Owners {
		if o.GroupKind() == capi.Cluster && !slices.Contains(clusters, o.Ref) {
			clusters = append(clusters, o.Ref)
		}
	}
	if n.Unit != "" {
		return clusters, nil
	}
	for _, need := range n.Needs {
		if need.GroupKind() == capi.Cluster && !slices.Contains(clusters, need.Ref) {
			clusters = append(clusters, need.Ref)
		}
	}
	return clusters, nil
}

// leaveOutUnowned leaves out the objects that name a Cluster which is not restored, and that no
// restored workload cluster needs. Spec.IncludeUnowned restores them.
func (p *planner) leaveOutUnowned() error {
	if p.Spec.IncludeUnowned {
		return nil
	}
	for n := range p.active {
		if n.Unit != "" || len(p.users[n]) > 0 {
			continue
		}
		clusters, err := p.namedClusters(n)
		if err != nil {
			return err
		}
		for _, c := range clusters {
			if !p.inPlan(c) {
				p.leaveOut(n, object.Finding{Severity: object.Warning, Code: object.CodeUnowned,
					Message: "it names workload cluster " + c.Namespace + "/" + c.Name + ", which is not " +
						"restored, and is left out",
					Hint: "restore it together with its workload cluster, or include such objects"})
				break
			}
		}
	}
	p.leaveOutDependants(object.CodeUnowned)
	return nil
}

// leaveOutAttached leaves out the objects of no unit that would attach to what lives on the target
// and is not restored. Where one belongs to a unit, or a unit needs it, that unit is blocked. An
// object that is on the target already is adopted as it is, and attaches to nothing new.
func (p *planner) leaveOutAttached() error {
	for n := range p.active {
		if p.existing[n.Ref] != "" {
			continue
		}
		lives, err := p.attachesTo(n)
		if err != nil {
			return err
		}
		if lives == "" {
			continue
		}
		p.add(n, object.Finding{Severity: object.Error, Code: object.CodeAttachesToLive,
			Message: fmt.Sprintf("it would attach to %s, which is on the target and is not restored: "+
				"controllers of the target would act on it at once", lives),
			Hint: "names are no identity: find out whether both are the same workload cluster; if so, " +
				"bring the object there by other means, else leave it out"})
	}
	p.leaveOutDependants(object.CodeAttachesToLive)
	return nil
}

// attachesTo describes what an object would attach to on the target: a Cluster that it names or
// selects, or an owner, which is there and is not restored. "" when there is none.
func (p *planner) attachesTo(n *graph.Node) (string, error) {
	clusters, err := p.namedClusters(n)
	if err != nil {
		return "", err
	}
	selected, err := p.selectedClusters(n)
	if err != nil {
		return "", err
	}
	for _, c := range append(clusters, selected...) {
		if _, lives := p.targetClusters[object.Key{Namespace: c.Namespace,
			Name: c.Name}]; lives && !p.inPlan(c) {
			return c.String(), nil
		}
	}
	free := n.Unit == "" && len(p.users[n]) == 0
	for _, o := range n.Owners {
		if p.outside[o.Ref] == "" || p.inPlan(o.Ref) {
			continue
		}
		// What belongs to a unit may have owners of the platform: a tenant, a template.
		if c := p.outsideCluster[o.Ref]; free || c != "" && c != n.Unit {
			return o.Ref.String(), nil
		}
	}
	return "", nil
}

// clusterSelector returns the selector of an object (capi.Row.ClusterSelector). One that cannot be
// read selects everything.
func clusterSelector(raw []byte, path string) labels.Selector {
	var written metav1.LabelSelector
	if json.Unmarshal([]byte(gjson.GetBytes(raw, path).Raw), &written) != nil {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(&written)
	if err != nil {
		return labels.Everything()
	}
	return selector
}

// selectedClusters returns the Clusters of the target on which an object acts by their labels, in
// the order of their names. A selector that cannot be read selects all of its namespace.
func (p *planner) selectedClusters(n *graph.Node) ([]object.Ref, error) {
	path := p.rows().Row(n.GroupKind()).ClusterSelector
	if path == "" {
		return nil, nil
	}
	raw, err := p.Contents.Bytes(n.Ref)
	if err != nil {
		return nil, err
	}
	selector := clusterSelector(raw, path)
	var clusters []object.Ref
	for key, set := range p.targetClusters {
		if key.Namespace == n.Namespace && selector.Matches(set) {
			clusters = append(clusters, clusterNamed(key.Namespace, key.Name))
		}
	}
	slices.SortFunc(clusters, object.CompareRefs)
	return clusters, nil
}

// leaveOutDependants leaves out what only objects own that were left out for a reason: their
// controllers would not be there, and the garbage collector would delete it.
func (p *planner) leaveOutDependants(reason object.Code) {
	for again := true; again; {
		again = false
		for n := range p.active {
			if n.Unit != "" {
				continue
			}
			for _, o := range n.Owners {
				owner := p.Snapshot.Graph.Node(o.Ref)
				if owner == nil || p.skipped[owner] != string(reason) || p.outside[o.Ref] != "" {
					continue
				}
				p.add(n, object.Finding{Severity: object.Error, Code: reason,
					Message: "its owner " + o.Ref.String() + " is left out",
					Hint:    "see what is said of its owner"})
				again = again || p.skipped[n] != ""
				break
			}
		}
	}
}

// leaveOut leaves an object out, with a finding that is no error.
func (p *planner) leaveOut(n *graph.Node, f object.Finding) {
	p.skipped[n] = string(f.Code)
	p.add(n, f)
}
