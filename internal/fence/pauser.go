package fence

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Reader reads objects of a management cluster.
type Reader interface {
	Get(ctx context.Context, k kube.Kind, namespace, name string) (*unstructured.Unstructured, error)
	List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func(raw []byte) error) (
		kube.ListResult, error)
}

// Writer updates objects of a management cluster.
type Writer interface {
	Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
}

// Pauser sets and unsets the pause switches of one management cluster, and waits for its
// controllers to acknowledge that.
type Pauser struct {
	reader Reader
	writer Writer
	kinds  []kube.Kind
	rows   *capi.Table
	slots  chan struct{} // limits concurrent reads of objects
	lock   *Lock         // nil for a fence, which has none
	// labeled reads the objects of a workload cluster together.
	labeled kube.Labeled
}

// pauserReads is how many objects a Pauser reads at once.
const pauserReads = 8

// NewPauser returns a Pauser. Nil rows are the built-in table.
func NewPauser(r Reader, w Writer, kinds []kube.Kind, rows *capi.Table) *Pauser {
	slots := make(chan struct{}, pauserReads)
	return &Pauser{reader: r, writer: w, kinds: kinds, rows: rows, slots: slots,
		labeled: kube.Labeled{Lists: r, Slots: slots}}
}

// Lock is what a run of a move writes to each object of which it sets the switch, as the value of
// capi.AnnotationOperation, so that of two runs each knows which switches are its own: the host of
// the first one may have been suspended while it set them.
type Lock struct {
	Text string
	// May returns an error when a switch with the lock held, of an object of a unit, must stay as it
	// is. An earlier version wrote no lock: held is "".
	May func(ctx context.Context, unit, held string) error
}

// WithLock returns a Pauser of the same management cluster whose switches have a lock.
func (p *Pauser) WithLock(lock Lock) *Pauser {
	with := NewPauser(p.reader, p.writer, p.kinds, p.rows)
	with.lock = &lock
	return with
}

// Change reads an object, lets fn change it and writes it. It repeats that after a conflict.
func (p *Pauser) Change(ctx context.Context, ref object.Ref, fn func(u *unstructured.Unstructured) (
	changed bool, err error)) error {
	k, ok := kube.FindKind(p.kinds, ref.GroupKind())
	if !ok {
		return fmt.Errorf("the source no longer serves %s", ref.GroupKind())
	}
	var refused error // by fn
	err := kube.Retry(ctx, func() error {
		live, err := p.reader.Get(ctx, k, ref.Namespace, ref.Name)
		if err != nil {
			return err
		}
		var changed bool
		if changed, refused = fn(live); refused != nil || !changed {
			return refused
		}
		_, err = p.writer.Update(ctx, k, live)
		return err
	})
	if err != nil && refused == nil {
		return fmt.Errorf("%s: %w", ref, kube.SafeError(ref.GroupKind(), err))
	}
	return err
}

// PauseOwn sets the switches of all nodes that have one of their own, except for Clusters: those
// first that a release gives back last. It returns the nodes of which it changed one. A switch that
// is set gets the lock of this Pauser, or is left with an error where Lock.May says so.
func (p *Pauser) PauseOwn(ctx context.Context, nodes []*graph.Node) ([]*graph.Node, error) {
	switched := p.Switched(nodes)
	slices.Reverse(switched)
	return p.changeOwn(ctx, switched, p.pause(ctx, p.rows.Pause))
}

// UnpauseOwn gives back the switches that PauseOwn and PauseFirst set. It ends with an error at one
// that Lock.May leaves.
func (p *Pauser) UnpauseOwn(ctx context.Context, nodes []*graph.Node) error {
	return p.unpauseOwn(ctx, nodes, func(n *graph.Node, held string) (bool, error) {
		if p.lock == nil {
			return true, nil
		}
		return true, p.lock.May(ctx, n.Unit, held)
	})
}

// TakeBack is UnpauseOwn for a run that has lost its lock: it leaves all switches that have not the
// lock of this Pauser.
func (p *Pauser) TakeBack(ctx context.Context, nodes []*graph.Node) error {
	return p.unpauseOwn(ctx, nodes, func(_ *graph.Node, held string) (bool, error) {
		return held == p.lock.Text, nil
	})
}

func (p *Pauser) unpauseOwn(ctx context.Context, nodes []*graph.Node,
	may func(n *graph.Node, held string) (bool, error)) error {
	// A kind that came after the kinds were read has no switch that anybody here has set.
	served := append(p.Switched(nodes), p.First(nodes)...)
	served = slices.DeleteFunc(served, func(n *graph.Node) bool {
		_, ok := kube.FindKind(p.kinds, n.GroupKind())
		return !ok
	})
	_, err := p.changeOwn(ctx, served, func(n *graph.Node, obj map[string]any) (bool, error) {
		if !capi.PausedByUs(obj) {
			return false, nil
		}
		if mine, err := may(n, lockOf(obj)); err != nil || !mine {
			return false, err
		}
		capi.Unannotate(obj, capi.AnnotationOperation)
		return p.rows.Unpause(obj), nil
	})
	return err
}

// pause returns a change that sets a switch, and writes the lock to it.
func (p *Pauser) pause(ctx context.Context, set func(obj map[string]any) bool) func(n *graph.Node,
	obj map[string]any) (bool, error) {
	return func(n *graph.Node, obj map[string]any) (bool, error) {
		marked := capi.PausedByUs(obj)
		changed := set(obj)
		if p.lock == nil || !capi.PausedByUs(obj) || lockOf(obj) == p.lock.Text {
			return changed, nil
		}
		if marked { // somebody has set it
			if err := p.lock.May(ctx, n.Unit, lockOf(obj)); err != nil {
				return false, err
			}
		}
		capi.Annotate(obj, capi.AnnotationOperation, p.lock.Text)
		return true, nil
	}
}

func lockOf(obj map[string]any) string {
	u := unstructured.Unstructured{Object: obj}
	return u.GetAnnotations()[capi.AnnotationOperation]
}

// First returns the nodes that PauseFirst pauses.
func (p *Pauser) First(nodes []*graph.Node) []*graph.Node {
	return slices.DeleteFunc(slices.Clone(nodes),
		func(n *graph.Node) bool { return !p.rows.Row(n.GroupKind()).PausesFirst() })
}

// PauseFirst pauses the nodes whose controllers take long to acknowledge a pause, each by itself,
// before their Cluster is paused. It returns the nodes that it changed.
func (p *Pauser) PauseFirst(ctx context.Context, nodes []*graph.Node) ([]*graph.Node, error) {
	return p.changeOwn(ctx, p.First(nodes), p.pause(ctx, p.rows.PauseFirst))
}

// Switched returns the nodes that have a switch of their own, except for Clusters, in the order in
// which a release unsets them.
func (p *Pauser) Switched(nodes []*graph.Node) []*graph.Node {
	order := func(n *graph.Node) int { return p.rows.Row(n.GroupKind()).Pause.Order() }
	switched := slices.DeleteFunc(slices.Clone(nodes), func(n *graph.Node) bool {
		return n.GroupKind() == capi.Cluster || order(n) == 0
	})
	slices.SortStableFunc(switched, func(a, b *graph.Node) int { return order(a) - order(b) })
	return switched
}

// changeOwn changes one node after the other, and returns those that it changed. One that is gone
// has no switch.
func (p *Pauser) changeOwn(ctx context.Context, nodes []*graph.Node,
	fn func(n *graph.Node, obj map[string]any) (bool, error)) (changed []*graph.Node, err error) {
	for _, n := range nodes {
		is := false
		err := p.Change(ctx, n.Ref, func(u *unstructured.Unstructured) (_ bool, err error) {
			is, err = fn(n, u.Object)
			return is, err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return changed, err
		}
		if is && err == nil {
			changed = append(changed, n)
		}
	}
	return changed, nil
}

// Problem says why an object has not come to a state yet; "" when it has.
type Problem func(n *graph.Node, u *unstructured.Unstructured) string

// NotPaused is the Problem of an object that does not count as paused yet.
func (p *Pauser) NotPaused(_ *graph.Node, u *unstructured.Unstructured) string {
	gvk := u.GroupVersionKind()
	kind := object.GroupKind{Group: gvk.Group, Kind: gvk.Kind}
	if _, blocked := u.GetAnnotations()[capi.AnnotationBlockMove]; blocked {
		return "its provider holds the move back (annotation " + capi.AnnotationBlockMove + ")"
	}
	if capi.PublishesPause(u.Object) && p.rows.Row(kind).Pause.Acknowledged() {
		if why := capi.NotAcknowledged(u.Object, "True"); why != "" {
			return why
		}
	}
	if kind == capi.Cluster {
		return capi.TopologyNotPaused(u.Object)
	}
	return ""
}

// WithPause returns the nodes of kinds with a pause that we know.
func (p *Pauser) WithPause(nodes []*graph.Node) []*graph.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *graph.Node) bool {
		_, ok := kube.FindKind(p.kinds, n.GroupKind())
		pause := p.rows.Row(n.GroupKind()).Pause
		return !ok || pause.Passive() || pause.Late()
	})
}
