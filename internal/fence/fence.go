package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// DefaultWait is how long a fence waits for acknowledgements when an operator names no time. It is
// shorter than the wait of a move: controllers that are dead never acknowledge, and then the
// operator has to decide.
const DefaultWait = 30 * time.Second

// writes is how many Clusters a fence changes at once.
const writes = 16

// Fence fences workload clusters of one management cluster.
type Fence struct {
	Pauser *Pauser
	// Capture captures the management cluster, for the objects of a workload cluster besides its
	// Cluster.
	Capture func(ctx context.Context) (*graph.Graph, error)
	// Policy is armed for what is fenced; nil arms none.
	Policy *Policy
	// Owners reads the ownership records of a Cluster again, of each store, for a lift; nil where no
	// store is known.
	Owners func(ctx context.Context, c Cluster) ([]Owners, error)
	// Wait bounds the wait for acknowledgements; 0 means DefaultWait.
	Wait time.Duration
}

// Result is what a fence did.
type Result struct {
	// Paused are the units that were paused, Already those that were paused before, by a fence, an
	// operation or a user. Lifted are those whose fence was lifted.
	Paused, Already, Lifted []string
	// Held are those of Paused and Already that an operation holds: they carry no mark of a fence.
	Held []string
	// LastPause is when the last Cluster was paused; zero when none was.
	LastPause time.Time
	Findings  []object.Finding
}

func (r *Result) sort() {
	for _, units := range [][]string{r.Paused, r.Already, r.Lifted, r.Held} {
		slices.Sort(units)
	}
	slices.SortFunc(r.Findings, func(a, b object.Finding) int {
		return strings.Compare(a.Unit, b.Unit)
	})
}

// Fenced returns the units that are fenced now: those that were paused or paused before, without
// those that an operation holds.
func (r *Result) Fenced() []string {
	units := slices.Concat(r.Paused, r.Already)
	return slices.DeleteFunc(units, func(u string) bool { return slices.Contains(r.Held, u) })
}

// FencedOf returns those of the Clusters that are fenced now.
func (r *Result) FencedOf(clusters []Cluster) []Cluster {
	units := map[string]bool{}
	for _, unit := range r.Fenced() {
		units[unit] = true
	}
	return slices.DeleteFunc(slices.Clone(clusters),
		func(c Cluster) bool { return !units[c.Unit()] })
}

// Pause pauses the Clusters and marks them as fenced, for a reason (capi.FencedByRecord or
// capi.FencedByOperator). It waits for nothing. A Cluster that an operation holds, as the source of
// a move or the copy of a restore, stays as that operation left it, and is paused again where
// somebody ended the pause. A Cluster that is gone, or was created again, is none of them; nor is,
// for capi.FencedByRecord, one that was released here since it was listed: its epoch says so.
func (f *Fence) Pause(ctx context.Context, clusters []Cluster, why string) Result {
	var mu sync.Mutex
	var r Result
	var g task.Group
	g.SetLimit(writes)
	for _, c := range clusters {
		g.Go(func() error {
			var paused, isHeld bool
			err := task.Call(func() (err error) {
				paused, isHeld, err = f.pause(ctx, c, why)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil && isHeld {
				r.Held = append(r.Held, c.Unit())
			}
			switch {
			case apierrors.IsNotFound(err) || errors.Is(err, errOther):
			case err != nil:
				r.Findings = append(r.Findings, object.Finding{Severity: object.Error, Ref: c.Ref,
					Unit: c.Unit(), Code: object.CodeNotFenced, Message: err.Error(),
					Hint: object.HintOf(err)})
			case paused:
				r.Paused, r.LastPause = append(r.Paused, c.Unit()), time.Now()
			default:
				r.Already = append(r.Already, c.Unit())
			}
			return nil
		})
	}
	g.Finish()
	r.sort()
	return r
}

// Arm arms the admission policy for fenced Clusters. Where that is not possible, the fence holds as
// long as nobody unpauses a Cluster, and a finding says so. A Cluster whose fence was lifted, or
// that was released here, while it was put on the list comes off it again.
func (f *Fence) Arm(ctx context.Context, clusters []Cluster) []object.Finding {
	return f.arm(ctx, clusters, func(c Cluster) (bool, error) {
		why, err := f.fencedBy(ctx, c)
		switch {
		case errors.Is(err, errOther):
			return false, nil
		case apierrors.IsNotFound(err):
			return true, nil
		}
		return why != "", err
	})
}

// Deny arms the admission policy for Clusters that are not there and that another management
// cluster owns. One that came meanwhile is not denied: a restore or a move makes it.
func (f *Fence) Deny(ctx context.Context, clusters []Cluster) []object.Finding {
	return f.arm(ctx, clusters, func(c Cluster) (bool, error) {
		_, err := f.fencedBy(ctx, c)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if errors.Is(err, errOther) {
			err = nil
		}
		return false, err
	})
}

// arm arms the admission policy for Clusters, and takes those off the list again that it has put on
// it and that do not stay there, by what is there then.
func (f *Fence) arm(ctx context.Context, clusters []Cluster,
	stays func(c Cluster) (bool, error)) []object.Finding {
	if f.Policy == nil || len(clusters) == 0 {
		return nil
	}
	before, err := f.Policy.State(ctx)
	if err != nil {
		return []object.Finding{PolicyNotArmed("", err)}
	}
	errs := []error{f.Policy.Arm(ctx, clusters)} // it may have written the list all the same
	var off []object.Ref
	for _, c := range clusters {
		if before.Denies(c.Ref) {
			continue
		}
		stay, err := stays(c)
		errs = append(errs, err)
		if err == nil && !stay {
			off = append(off, c.Ref)
		}
	}
	if len(off) > 0 {
		errs = append(errs, f.Policy.Disarm(ctx, off))
	}
	if err := errors.Join(errs...); err != nil {
		return []object.Finding{PolicyNotArmed("", err)}
	}
	return nil
}

// errOther ends the pause of a Cluster that is not the one that was listed.
var errOther = errors.New("another object has this name")

// pause reports whether it set the switch, and whether an operation holds the Cluster.
func (f *Fence) pause(ctx context.Context, c Cluster, why string) (paused, isHeld bool, err error) {
	err = f.Pauser.Change(ctx, c.Ref, func(u *unstructured.Unstructured) (bool, error) {
		paused = false
		epoch := u.GetAnnotations()[capi.AnnotationEpoch]
		if string(u.GetUID()) != c.UID ||
			why == capi.FencedByRecord && epoch != c.annotations[capi.AnnotationEpoch] {
			return false, errOther
		}
		was, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
		isHeld = held(u.GetAnnotations())
		if paused = !was; isHeld {
			if was {
				return false, nil
			}
			f.Pauser.rows.Pause(u.Object) // marks what it was, for the operation that gives it back
			return true, unstructured.SetNestedField(u.Object, true, "spec", "paused")
		}
		f.Pauser.rows.Pause(u.Object)
		if !was { // somebody ended the pause of an earlier fence
			if err := unstructured.SetNestedField(u.Object, true, "spec", "paused"); err != nil {
				return false, err
			}
		}
		marked := u.GetAnnotations()[capi.AnnotationFenced] == why
		capi.Annotate(u.Object, capi.AnnotationFenced, why)
		return !was || !marked, nil
	})
	return paused, isHeld, err
}

// held reports by the annotations of a Cluster whether an operation holds it: it is the source of a
// move, or the copy of a restore that has not released it.
func held(annotations map[string]string) bool {
	_, fenced := annotations[capi.AnnotationFenced]
	_, paused := annotations[capi.AnnotationWasPaused]
	return strings.Contains(annotations[capi.AnnotationOperation], "/") || paused && !fenced
}

// Acknowledge sets the switches of the objects of fenced units that have one of their own, and
// waits until the controllers acknowledge the pause. What they do not acknowledge is a finding for
// each unit (CodeFenceUnacknowledged): its controllers may be dead, or may not know of the pause
// yet. It reports whether all switches are set: otherwise it has to run again.
func (f *Fence) Acknowledge(ctx context.Context, units []string) (set bool,
	findings []object.Finding) {
	if len(units) == 0 {
		return true, nil
	}
	nodes, err := f.nodes(ctx, units)
	if err == nil {
		err = f.pauseOwn(ctx, nodes)
	}
	if set = err == nil; set {
		limit := f.Wait
		if limit <= 0 {
			limit = DefaultWait
		}
		err = f.Pauser.Await(ctx, nil, nodes, "the controllers to acknowledge the fence", limit, 0,
			f.Pauser.NotPaused)
	}
	if err == nil {
		return true, nil
	}
	waited, ok := errors.AsType[*restore.WaitError](err)
	left, first, readErr := []*graph.Node(nil), "", error(nil)
	if ok {
		left, first, readErr = f.Pauser.Problems(ctx, nodes, f.Pauser.NotPaused)
	}
	if !ok || readErr != nil {
		return set, unacknowledged(units, func(string) string {
			return "whether its controllers acknowledged the fence is not known: " + err.Error()
		})
	}
	if len(left) == 0 {
		return set, nil // since the last poll
	}
	count := map[string]int{}
	for _, n := range left {
		count[n.Unit]++
	}
	units = slices.DeleteFunc(slices.Clone(units), func(u string) bool { return count[u] == 0 })
	return set, unacknowledged(units, func(unit string) string {
		return fmt.Sprintf("%d of its objects do not acknowledge the fence; of all that do not, the "+
			"first: %s", count[unit], cmp.Or(first, waited.First))
	})
}

// pauseOwn is Pauser.PauseOwn without the objects of Clusters that we do not pause any more: one
// may have been released, or its fence lifted, since the management cluster was captured.
func (f *Fence) pauseOwn(ctx context.Context, nodes []*graph.Node) error {
	switched := f.Pauser.Switched(nodes)
	slices.Reverse(switched)
	pause := f.Pauser.pause(ctx, f.Pauser.rows.Pause)
	_, err := f.Pauser.changeOwn(ctx, switched, func(n *graph.Node, obj map[string]any) (bool, error) {
		if changed, err := pause(n, obj); err != nil || !changed {
			return false, err
		}
		return f.isPaused(ctx, n.Unit)
	})
	return err
}

// isPaused reports whether the Cluster of a unit is there, paused or fenced by us.
func (f *Fence) isPaused(ctx context.Context, unit string) (is bool, err error) {
	key, err := object.ParseKey(unit)
	if err != nil {
		return false, err
	}
	ref := object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: key.Namespace,
		Name: key.Name}
	err = f.Pauser.Change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
		is = capi.PausedByUs(u.Object) || u.GetAnnotations()[capi.AnnotationFenced] != ""
		return false, nil
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return is, err
}

func unacknowledged(units []string, why func(unit string) string) []object.Finding {
	var findings []object.Finding
	for _, unit := range units {
		findings = append(findings, object.Finding{Severity: object.Error, Unit: unit,
			Code: object.CodeFenceUnacknowledged, Message: why(unit),
			Hint: "make sure that the controllers of this management cluster do not run, or fence " +
				"again when they do"})
	}
	return findings
}

// nodes captures the management cluster and returns the nodes of units.
func (f *Fence) nodes(ctx context.Context, units []string) ([]*graph.Node, error) {
	g, err := f.Capture(ctx)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, u := range units {
		wanted[u] = true
	}
	return slices.DeleteFunc(slices.Clone(g.Nodes),
		func(n *graph.Node) bool { return !wanted[n.Unit] }), nil
}
