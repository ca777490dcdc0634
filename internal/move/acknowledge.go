package move

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// This file waits for the controllers of the source to acknowledge a pause, or its end.

// awaitPaused is awaitAcknowledged for all objects of a unit, as a look shows them, and returns
// these. known are those whose own switches are set; those of the others are set here.
func (m *run) awaitPaused(ctx context.Context, unit string, from look, known []*graph.Node,
	limit time.Duration) ([]*graph.Node, error) {
	captured, err := from.captures.graphOf(ctx, from.since, m.namespacesOf(unit))
	if err != nil {
		return nil, err
	}
	nodes := nodesOf(captured.graph, unit)
	if err := m.checkServed(nodes); err != nil {
		return nil, err
	}
	if err := m.pauseNewcomers(ctx, unit, nodes, known); err != nil {
		return nil, err
	}
	return nodes, m.awaitAcknowledged(ctx, nil, nodes, limit)
}

// newKindError says that a unit has an object of a kind that the source did not serve when this run
// read its kinds: nothing here would pause it, wait for it or retire it.
type newKindError struct{ object.Ref }

func (e *newKindError) Error() string {
	return e.String() + " is of a kind that the source did not serve when this run began"
}

// Hint says what the operator can do.
func (e *newKindError) Hint() string { return "resume the operation, which reads the kinds again" }

func (m *run) checkServed(nodes []*graph.Node) error {
	for _, n := range nodes {
		if _, ok := kube.FindKind(m.Source.Kinds, n.GroupKind()); !ok {
			return &newKindError{n.Ref}
		}
	}
	return nil
}

// unserved is checkServed for units of a graph, by unit.
func (m *run) unserved(g *graph.Graph, units []string) map[string]error {
	errs := map[string]error{}
	for _, unit := range units {
		if err := m.checkServed(nodesOf(g, unit)); err != nil {
			errs[unit] = err
		}
	}
	return errs
}

// pollsPaused is the longest time between two polls while a unit is paused and watches do not show
// all of it (kube.Waiting). The last poll ends the wait, so that it is short.
const pollsPaused = 300 * time.Millisecond

// awaitAcknowledged waits until objects of a unit have acknowledged the pause and no provider
// blocks the move, and then for Tuning.Settle if controllers of some publish nothing. It waits for
// the Cluster at first, and for the others once that has acknowledged it. A controller that has
// acknowledged the pause of an object is in the middle of nothing with it, since it reconciles an
// object once at a time. What is written all the same is found before the hand-over (unchanged).
func (m *run) awaitAcknowledged(ctx context.Context, f *kube.Followed, nodes []*graph.Node,
	limit time.Duration) error {
	var silent atomic.Bool
	problem := noteSilent(&silent, m.pauser.NotPaused)
	began := time.Now()
	var cluster []*graph.Node
	others := slices.DeleteFunc(slices.Clone(nodes), func(n *graph.Node) bool {
		if isCluster(n) {
			cluster = append(cluster, n)
		}
		return isCluster(n)
	})
	for _, nodes := range [][]*graph.Node{cluster, others} {
		err := m.pauser.Await(ctx, f, nodes, acknowledgement, limit-time.Since(began), pollsPaused,
			problem)
		if err != nil {
			return err
		}
	}
	if !silent.Load() {
		return nil
	}
	return retry.Sleep(ctx, m.Tuning.Settle)
}

// isNewcomer returns a function that reports whether an object is not among those that are known.
func isNewcomer(known []*graph.Node) func(n *graph.Node) bool {
	return func(n *graph.Node) bool {
		return !slices.ContainsFunc(known, func(k *graph.Node) bool { return k.UID == n.UID })
	}
}

// newcomersIn returns those of the objects of a unit that came since the others were paused. When
// there are any, it notes the switches of all: an earlier run may have set those of the others.
func (m *run) newcomersIn(unit string, nodes, known []*graph.Node) (newcomers []*graph.Node) {
	for _, n := range nodes {
		if isNewcomer(known)(n) {
			newcomers = append(newcomers, n)
		}
	}
	if len(newcomers) > 0 {
		m.noteSwitches(unit, nodes)
	}
	return newcomers
}

// pauseNewcomers sets the switches of objects that came since the others were paused.
func (m *run) pauseNewcomers(ctx context.Context, unit string, nodes,
	known []*graph.Node) error {
	newcomers := m.newcomersIn(unit, nodes, known)
	ref, err := clusterRef(unit)
	if err != nil || len(newcomers) == 0 {
		return err
	}
	if err := m.pauseFirst(ctx, unit, ref, newcomers); err != nil {
		return err
	}
	return m.pauseOwn(ctx, unit, ref, newcomers)
}

// withProblem returns those of nodes that have a problem in a capture: only these are polled.
func (m *run) withProblem(v *sourceCapture, nodes []*graph.Node, problem fence.Problem) (
	[]*graph.Node, error) {
	var left []*graph.Node
	for _, n := range m.pauser.WithPause(nodes) {
		u, err := decode(v.contents, n.Ref)
		if err != nil {
			return nil, err
		}
		if problem(n, u) != "" {
			left = append(left, n)
		}
	}
	return left, nil
}

// noteSilent notes whether a problem is asked about an object whose controllers publish nothing of
// its pause.
func noteSilent(silent *atomic.Bool, problem fence.Problem) fence.Problem {
	return func(n *graph.Node, u *unstructured.Unstructured) string {
		if !capi.PublishesPause(u.Object) {
			silent.Store(true)
		}
		return problem(n, u)
	}
}

// await polls objects of the source until problem returns "" for all of them. An object that is
// gone has no problem.
func (m *run) await(ctx context.Context, nodes []*graph.Node, what string, limit time.Duration,
	problem fence.Problem) error {
	return m.pauser.Await(ctx, nil, nodes, what, limit, 0, problem)
}
