package fence

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Lift gives back the pause of fenced Clusters exactly as it was, and takes Clusters off the list
// of the policy that are not fenced and that no operation holds; it leaves all others alone. It
// refuses where a record of any store says that the workload cluster belongs to another management
// cluster, or cannot say to which it belongs. A Cluster that was fenced by a record needs a trusted
// record that names this management cluster. Objects with a switch of their own come first, the
// Cluster last.
func (f *Fence) Lift(ctx context.Context, clusters []Cluster, stores []Owners) Result {
	clusters, r := f.Liftable(ctx, clusters, stores)
	r.Lifted = nil
	if len(clusters) == 0 {
		return r
	}
	refs, units := make([]object.Ref, len(clusters)), make([]string, len(clusters))
	for i, c := range clusters {
		refs[i], units[i] = c.Ref, c.Unit()
	}
	if f.Policy != nil {
		// Without the right to do it there is most likely no policy; otherwise it denies the lift.
		_ = f.Policy.Disarm(ctx, refs)
	}
	nodes, err := f.nodes(ctx, units)
	for _, c := range clusters {
		err := err
		if err == nil {
			err = f.lift(ctx, c, nodes)
		}
		if err != nil {
			r.Findings = append(r.Findings, object.Finding{Severity: object.Error, Ref: c.Ref,
				Unit: c.Unit(), Code: object.CodeNotFenced, Message: "lift the fence: " + err.Error(),
				Hint: object.HintOf(err)})
			continue
		}
		r.Lifted = append(r.Lifted, c.Unit())
	}
	r.sort()
	return r
}

// Liftable returns the Clusters that Lift would give back, which are in Result.Lifted as well, and
// the findings about the others. It changes nothing.
func (f *Fence) Liftable(ctx context.Context, clusters []Cluster, stores []Owners) ([]Cluster,
	Result) {
	var listed PolicyState
	if f.Policy != nil {
		listed, _ = f.Policy.State(ctx) // without the right to read it, the marks decide
	}
	clusters = slices.DeleteFunc(slices.Clone(clusters), func(c Cluster) bool {
		return c.Fenced() == "" && (held(c.annotations) || !listed.Denies(c.Ref))
	})
	var r Result
	refused := map[string]bool{}
	refuse := func(findings ...object.Finding) {
		r.Findings = append(r.Findings, findings...)
		for _, finding := range findings {
			refused[finding.Unit] = refused[finding.Unit] || finding.Severity >= object.Error
		}
	}
	for _, o := range stores {
		lost, findings := o.Lost(clusters)
		refuse(findings...)
		for _, c := range lost {
			record := o.Records[c.ID]
			refuse(object.Finding{Severity: object.Error, Ref: c.Ref, Unit: c.Unit(),
				Code: object.CodeOwnedElsewhere, Message: fmt.Sprintf("management cluster %s (%s) owns it "+
					"by its ownership record, epoch %d", record.By.Name, record.By.UID, record.Epoch),
				Hint: "move it back from there, or restore it here when that management cluster is gone"})
		}
	}
	var liftable []Cluster
	for _, c := range clusters {
		switch {
		case refused[c.Unit()]:
		case c.Fenced() == capi.FencedByRecord && !slices.ContainsFunc(stores,
			func(o Owners) bool { return o.own(c) }):
			refuse(object.Finding{Severity: object.Error, Ref: c.Ref, Unit: c.Unit(),
				Code: object.CodeNotFenced, Message: "an ownership record gave it to another management " +
					"cluster, and no trusted record says that it is back",
				Hint: "name the store with the ownership records, and the key that signs them"})
		default:
			liftable, r.Lifted = append(liftable, c), append(r.Lifted, c.Unit())
		}
	}
	r.sort()
	return liftable, r
}

func (f *Fence) lift(ctx context.Context, c Cluster, nodes []*graph.Node) error {
	own := slices.DeleteFunc(slices.Clone(nodes),
		func(n *graph.Node) bool { return n.Unit != c.Unit() })
	if c.Fenced() != "" {
		if err := f.Pauser.UnpauseOwn(ctx, own); err != nil {
			return err
		}
	}
	return f.Pauser.Change(ctx, c.Ref, func(u *unstructured.Unstructured) (bool, error) {
		if string(u.GetUID()) != c.UID {
			return false, errOther
		}
		if _, fenced := u.GetAnnotations()[capi.AnnotationFenced]; !fenced {
			return false, nil
		}
		capi.Unannotate(u.Object, capi.AnnotationFenced)
		f.Pauser.rows.Unpause(u.Object)
		return true, nil
	})
}

// Gone returns the Clusters of some names that are on the list of the policy and not on the
// management cluster: they were moved away, or somebody deleted them after a fence.
func (f *Fence) Gone(ctx context.Context, clusters []Cluster, names []object.Key) ([]Cluster,
	error) {
	names = slices.DeleteFunc(slices.Clone(names), func(name object.Key) bool {
		return slices.ContainsFunc(clusters, func(c Cluster) bool { return c.Unit() == name.String() })
	})
	if f.Policy == nil || len(names) == 0 {
		return nil, nil
	}
	listed, err := f.Policy.State(ctx)
	if err != nil {
		return nil, err
	}
	var gone []Cluster
	for _, name := range names {
		c := Cluster{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: name.Namespace, Name: name.Name}}
		if c.ID = listed.listed[policyKey(c.Ref)]; c.ID != lifted {
			gone = append(gone, c)
		}
	}
	return gone, nil
}

// Forget lets Clusters that Gone returned be created again; a dry run returns which. It refuses
// none: whether another workload cluster of that name may be made here is for the operator to know.
// A finding says who owns the one that had it.
func (f *Fence) Forget(ctx context.Context, gone []Cluster, stores []Owners, dry bool) (r Result) {
	if len(gone) == 0 {
		return r
	}
	for _, o := range stores {
		lost, _ := o.Lost(gone)
		for _, c := range lost {
			by := o.Records[c.ID].By
			r.Findings = append(r.Findings, object.Finding{Severity: object.Warning, Ref: c.Ref,
				Unit: c.Unit(), Code: object.CodeOwnedElsewhere, Message: fmt.Sprintf("management cluster "+
					"%s (%s) owns the workload cluster that had this name here", by.Name, by.UID),
				Hint: "a Cluster of the same name takes over infrastructure that is found by name: use " +
					"another name, unless that workload cluster is gone"})
		}
	}
	if !dry {
		if err := f.Policy.forget(ctx, gone); err != nil {
			r.Findings = append(r.Findings, object.Finding{Severity: object.Error,
				Code: object.CodeNotFenced, Message: "take them off the list of the admission policy: " +
					err.Error(), Hint: object.HintOf(err)})
			return r
		}
	}
	for _, c := range gone {
		r.Lifted = append(r.Lifted, c.Unit())
	}
	r.sort()
	return r
}
