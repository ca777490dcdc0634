package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// Cluster last. It may run again.
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
	var onList error // for Clusters that are on the list alone
	if f.Policy != nil {
		// Where it fails for want of a right, there is most likely no policy; otherwise that denies to
		// unpause a Cluster.
		onList = f.Policy.Disarm(ctx, refs)
	}
	nodes, err := f.nodes(ctx, units)
	var failed []Cluster
	for _, c := range clusters {
		var findings []object.Finding
		err := err
		switch {
		case err != nil:
		case c.Fenced() == "":
			err = onList
		default:
			findings, err = f.lift(ctx, c, nodes)
		}
		if err != nil {
			findings = append(findings, object.Finding{Severity: object.Error, Ref: c.Ref,
				Unit: c.Unit(), Code: object.CodeNotFenced, Message: "lift the fence: " + err.Error(),
				Hint: object.HintOf(err)})
		}
		r.Findings = append(r.Findings, findings...)
		if slices.ContainsFunc(findings, isError) {
			failed = append(failed, c)
		} else {
			r.Lifted = append(r.Lifted, c.Unit())
		}
	}
	r.Findings = append(r.Findings, f.armAgain(context.WithoutCancel(ctx), failed)...)
	r.sort()
	return r
}

// armAgain arms the policy for those of Clusters that are still fenced.
func (f *Fence) armAgain(ctx context.Context, clusters []Cluster) []object.Finding {
	if f.Policy == nil {
		return nil
	}
	var still []Cluster
	for _, c := range clusters {
		why, err := f.fencedBy(ctx, c)
		gone := apierrors.IsNotFound(err) || errors.Is(err, errOther)
		if why != "" || err != nil && !gone {
			still = append(still, c)
		}
	}
	err := f.Policy.Arm(ctx, still)
	if err == nil || IsUnable(err) {
		return nil
	}
	return []object.Finding{PolicyNotArmed("", err)}
}

// fencedBy reads why a Cluster is fenced now; "" when it is not.
func (f *Fence) fencedBy(ctx context.Context, c Cluster) (why string, err error) {
	err = f.Pauser.Change(ctx, c.Ref, func(u *unstructured.Unstructured) (bool, error) {
		if string(u.GetUID()) != c.UID {
			return false, errOther
		}
		why = u.GetAnnotations()[capi.AnnotationFenced]
		return false, nil
	})
	return why, err
}

func isError(f object.Finding) bool { return f.Severity >= object.Error }

// Liftable returns the Clusters that Lift would give back, which are in Result.Lifted as well, and
// the findings about the others. It changes nothing.
func (f *Fence) Liftable(ctx context.Context, clusters []Cluster, stores []Owners) ([]Cluster,
	Result) {
	var listed PolicyState
	if f.Policy != nil {
		listed, _ = f.Policy.State(ctx) // without the right to read it, the marks decide
	}
	var r Result
	clusters = slices.DeleteFunc(slices.Clone(clusters), func(c Cluster) bool {
		switch {
		case c.Fenced() != "":
			return false
		case held(c.annotations) || !listed.Denies(c.Ref):
			return true
		}
		other := listed.deniesOther(c)
		if other {
			r.Findings = append(r.Findings, object.Finding{Severity: object.Warning, Ref: c.Ref,
				Unit: c.Unit(), Code: object.CodeOwnedElsewhere, Message: "it stays on the list of the " +
					"admission policy, which has it there for another workload cluster of this name",
				Hint: "find out which management cluster has that one; then name the workload cluster to " +
					"let this one be unpaused"})
		}
		return other
	})
	r.Findings = append(r.Findings, refusals(clusters, stores)...)
	liftable := slices.DeleteFunc(clusters, func(c Cluster) bool {
		return slices.ContainsFunc(r.Findings,
			func(finding object.Finding) bool { return finding.Unit == c.Unit() && isError(finding) })
	})
	for _, c := range liftable {
		r.Lifted = append(r.Lifted, c.Unit())
	}
	r.sort()
	return liftable, r
}

// refusals returns what the records of all stores have to say about Clusters whose fence is to be
// lifted. An error among the findings of a Cluster forbids it.
func refusals(clusters []Cluster, stores []Owners) (findings []object.Finding) {
	refused := map[string]bool{}
	refuse := func(more ...object.Finding) {
		for _, finding := range more {
			findings = append(findings, finding)
			refused[finding.Unit] = refused[finding.Unit] || isError(finding)
		}
	}
	for _, o := range stores {
		lost, others := o.Lost(clusters)
		refuse(others...)
		for _, c := range lost {
			record := o.Records[c.ID]
			refuse(object.Finding{Severity: object.Error, Ref: c.Ref, Unit: c.Unit(),
				Code: object.CodeOwnedElsewhere, Message: fmt.Sprintf("management cluster %s (%s) owns it "+
					"by its ownership record, epoch %d", record.By.Name, record.By.UID, record.Epoch),
				Hint: "move it back from there, or restore it here when that management cluster is gone"})
		}
	}
	for _, c := range clusters {
		if !refused[c.Unit()] && c.Fenced() == capi.FencedByRecord &&
			!slices.ContainsFunc(stores, func(o Owners) bool { return o.own(c) }) {
			refuse(object.Finding{Severity: object.Error, Ref: c.Ref, Unit: c.Unit(),
				Code: object.CodeNotFenced, Message: "an ownership record gave it to another management " +
					"cluster, and no trusted record says that it is back",
				Hint: "name the store with the ownership records, and the key that signs them"})
		}
	}
	return findings
}

// errFencedAgain ends a lift: somebody fenced the Cluster again meanwhile, or works on it.
var errFencedAgain = errors.New("its fence was changed while it was lifted")

// lift gives one Cluster back, or returns the findings that forbid it. One that somebody else has
// given back is lifted.
func (f *Fence) lift(ctx context.Context, c Cluster, nodes []*graph.Node) ([]object.Finding,
	error) {
	own := slices.DeleteFunc(slices.Clone(nodes),
		func(n *graph.Node) bool { return n.Unit != c.Unit() })
	why, findings, err := f.beginLift(ctx, c)
	if err != nil || len(findings) > 0 {
		return findings, err
	}
	err = f.liftOwn(ctx, c, why, own)
	if err == nil {
		err = f.Pauser.Change(ctx, c.Ref, func(u *unstructured.Unstructured) (bool, error) {
			switch is := u.GetAnnotations()[capi.AnnotationFenced]; {
			case string(u.GetUID()) != c.UID:
				return false, errOther
			case is == "" && !capi.PausedByUs(u.Object): // also when our own answer was lost
				return false, nil
			case is != why:
				return false, errFencedAgain
			}
			capi.Unannotate(u.Object, capi.AnnotationFenced)
			f.Pauser.rows.Unpause(u.Object)
			return true, nil
		})
	}
	if err != nil {
		err = errors.Join(err, f.pauseAgain(context.WithoutCancel(ctx), c, why, own))
	}
	return nil, err
}

// liftOwn gives back the switches of a Cluster that has the mark why, or is gone. It leaves those
// that a move has set whose lock the Cluster has.
func (f *Fence) liftOwn(ctx context.Context, c Cluster, why string, own []*graph.Node) error {
	return f.Pauser.unpauseOwn(ctx, own, func(_ *graph.Node, _ string) (may bool, err error) {
		err = f.Pauser.Change(ctx, c.Ref, func(u *unstructured.Unstructured) (bool, error) {
			is := u.GetAnnotations()[capi.AnnotationFenced]
			may = !strings.Contains(u.GetAnnotations()[capi.AnnotationOperation], "/")
			switch {
			case string(u.GetUID()) != c.UID:
				return false, errOther
			case is != why && (is != "" || capi.PausedByUs(u.Object)):
				return false, errFencedAgain
			}
			return false, nil
		})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return may, err
	})
}

// pauseAgain sets the switches of a Cluster that somebody has fenced again: it has another mark
// than why.
func (f *Fence) pauseAgain(ctx context.Context, c Cluster, why string, own []*graph.Node) error {
	is, err := f.fencedBy(ctx, c)
	if err != nil || is == "" || is == why {
		return err
	}
	_, err = f.Pauser.PauseOwn(ctx, own)
	return err
}

// beginLift marks a Cluster as one whose fence is being lifted, reads its records again, and fences
// it again where they forbid the lift. A restore elsewhere does it the other way round: it claims
// the workload cluster, and then asks whether it is fenced. So one of the two sees the other (I1).
// It returns the mark that the Cluster has now.
func (f *Fence) beginLift(ctx context.Context, c Cluster) (why string, findings []object.Finding,
	err error) {
	was := c.annotations[capi.AnnotationFenced]
	if f.Owners == nil {
		return was, nil, nil
	}
	why = c.Fenced() + capi.FenceLifting
	if err := f.mark(ctx, c, was, why); err != nil {
		_ = f.mark(context.WithoutCancel(ctx), c, why, was) // the answer may have been lost
		return "", nil, err
	}
	stores, err := f.Owners(ctx, c)
	if err == nil {
		findings = slices.DeleteFunc(refusals([]Cluster{c}, stores),
			func(finding object.Finding) bool { return !isError(finding) })
	}
	if err == nil && len(findings) == 0 {
		return why, nil, nil
	}
	return "", findings, errors.Join(err, f.mark(context.WithoutCancel(ctx), c, why, c.Fenced()))
}

// mark changes the mark of a fenced Cluster. It returns errFencedAgain when it has another one.
func (f *Fence) mark(ctx context.Context, c Cluster, from, to string) error {
	return f.Pauser.Change(ctx, c.Ref, func(u *unstructured.Unstructured) (bool, error) {
		switch is := u.GetAnnotations()[capi.AnnotationFenced]; {
		case string(u.GetUID()) != c.UID:
			return false, errOther
		case is == to: // also when our own answer was lost
			return false, nil
		case is != from:
			return false, errFencedAgain
		}
		capi.Annotate(u.Object, capi.AnnotationFenced, to)
		return true, nil
	})
}

// Gone returns the Clusters of some names that are on the list of the policy and not on the
// management cluster: they were moved away, or somebody deleted them after a fence. Another
// workload cluster may have been created by the name since.
func (f *Fence) Gone(ctx context.Context, clusters []Cluster, names []object.Key) ([]Cluster,
	error) {
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
		c.ID = listed.listed[policyKey(c.Ref)]
		there := slices.ContainsFunc(clusters, func(is Cluster) bool {
			return is.Ref == c.Ref && (is.Fenced() != "" || held(is.annotations) || !listed.deniesOther(is))
		})
		if c.ID != lifted && !there {
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
