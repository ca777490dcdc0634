package fence

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// Cluster is a Cluster of a management cluster, as it was listed.
type Cluster struct {
	object.Ref
	// ID is that of the workload cluster, the same wherever it is.
	ID, UID     string
	Labels      map[string]string
	Paused      bool
	annotations map[string]string
}

// Unit is its name: "namespace/name".
func (c Cluster) Unit() string {
	return object.Key{Namespace: c.Namespace, Name: c.Name}.String()
}

// Fenced returns why the Cluster is fenced, "" when it is not. One whose fence is being lifted is.
func (c Cluster) Fenced() string {
	return strings.TrimSuffix(c.annotations[capi.AnnotationFenced], capi.FenceLifting)
}

// Lifting reports whether the fence of the Cluster is being lifted, or was when a lift died.
func (c Cluster) Lifting() bool { return c.Fenced() != c.annotations[capi.AnnotationFenced] }

// Clusters lists the Clusters of a management cluster, by namespace and name.
func Clusters(ctx context.Context, r Reader, kinds []kube.Kind) ([]Cluster, error) {
	kind, ok := kube.FindKind(kinds, capi.Cluster)
	if !ok {
		return nil, nil
	}
	var list []Cluster
	_, err := r.List(ctx, kind, kube.ListOptions{}, func(raw []byte) error {
		var c struct {
			Metadata struct {
				Namespace, Name, UID string
				Labels, Annotations  map[string]string
			}
			Spec struct{ Paused bool }
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return fmt.Errorf("decode Cluster: %w", err)
		}
		m := c.Metadata
		list = append(list, Cluster{Ref: object.Ref{Group: kind.Group, Kind: kind.Kind,
			Namespace: m.Namespace, Name: m.Name}, UID: m.UID, Labels: m.Labels,
			ID:     cmp.Or(m.Annotations[capi.AnnotationWorkloadID], m.UID),
			Paused: c.Spec.Paused, annotations: m.Annotations})
		return nil
	})
	slices.SortFunc(list, func(a, b Cluster) int { return object.CompareRefs(a.Ref, b.Ref) })
	return list, err
}

// Select returns the Clusters of a selection; the zero Selection selects all. It returns a
// *restore.SelectionError for a workload cluster that is not there, and for a selector that is none
// or matches nothing.
func Select(clusters []Cluster, s restore.Selection) ([]Cluster, error) {
	if len(s.Namespaces) == 0 && len(s.Workloads) == 0 && s.Selector == "" {
		return clusters, nil
	}
	selector, err := s.Labels()
	if err != nil {
		return nil, err
	}
	for _, w := range s.Workloads {
		if !slices.ContainsFunc(clusters, func(c Cluster) bool { return c.Unit() == w.String() }) {
			return nil, &restore.SelectionError{Reason: fmt.Sprintf("there is no workload cluster %s", w),
				Has: "there are " + units(clusters)}
		}
	}
	var list []Cluster
	for _, c := range clusters {
		if slices.Contains(s.Namespaces, c.Namespace) ||
			s.Selector != "" && selector.Matches(c.Labels) ||
			slices.ContainsFunc(s.Workloads, func(w object.Key) bool { return c.Unit() == w.String() }) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil, &restore.SelectionError{Reason: "the selection matches no workload cluster",
			Has: "there are " + units(clusters)}
	}
	return list, nil
}

func units(clusters []Cluster) string {
	const most = 12
	var names []string
	for _, c := range clusters {
		if len(names) == most {
			names = append(names, fmt.Sprintf("%d more", len(clusters)-most))
			break
		}
		names = append(names, c.Unit())
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// Owners are the ownership records of one store, for the Clusters of one management cluster.
type Owners struct {
	// StoreID is the id that epochs are counted under (store.Store.OriginID).
	StoreID string
	// UID is that of the management cluster.
	UID     string
	Records map[string]ownership.Record
}

// Lost returns the Clusters that belong to another management cluster: a trusted record of a higher
// epoch than the Cluster knows names it. Records that are not obeyed, because no trusted key signed
// them, they cannot be read or they went back, are findings and pause nothing.
func (o Owners) Lost(clusters []Cluster) (lost []Cluster, findings []object.Finding) {
	check := preflight.Owners{Records: o.Records, Expected: []string{o.UID},
		Damaged: "somebody changed it, or the store lost it"}
	for _, c := range clusters {
		f, ok := check.Check(c.ID)
		switch {
		case !ok:
		case f.Code == object.CodeOwnedElsewhere && o.Records[c.ID].Epoch > o.known(c):
			lost = append(lost, c)
		case f.Code == object.CodeOwnedElsewhere && o.Records[c.ID].Epoch == o.known(c):
			f.Ref, f.Unit, f.Severity = c.Ref, c.Unit(), object.Warning
			f.Message += "; it was released here since, without a record of that"
			findings = append(findings, f)
		case f.Code == object.CodeOwnedElsewhere:
			r := o.Records[c.ID]
			why := ownership.WentBackError{Epoch: r.Epoch, Seen: o.known(c)}
			findings = append(findings, object.Finding{Severity: object.Error, Ref: c.Ref,
				Unit: c.Unit(), Code: object.CodeEpochWentBack, Message: why.Why(), Hint: why.Hint()})
		default:
			f.Ref, f.Unit = c.Ref, c.Unit()
			findings = append(findings, f)
		}
	}
	return lost, findings
}

// own reports whether a trusted record says that a Cluster belongs to this management cluster.
func (o Owners) own(c Cluster) bool {
	r := o.Records[c.ID]
	return r.Trusted && r.By.UID == o.UID && !r.WentBack()
}

// known returns the epoch with which a Cluster came to this management cluster, 0 for none.
func (o Owners) known(c Cluster) int64 {
	return ownership.MarkedEpoch(o.StoreID, c.annotations[capi.AnnotationEpoch])
}
