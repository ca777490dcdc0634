package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

var errNotVerified = errors.New("the snapshot is not as it should be in the store")

// snapshotTries is how often a batch takes its snapshot.
const snapshotTries = 3

// snapshotTTL is how long the snapshots of a move are retained at least. They are in any case until
// the operation is settled.
const snapshotTTL = 7 * 24 * time.Hour

// batchSnapshot is the snapshot of a batch.
type batchSnapshot struct {
	*snapshot.Result
	narrow bool // it leaves out the neighbours
}

// snapshotPaused is takeSnapshot for units that are paused, whose objects their group knows. The
// snapshot may show further ones, which came since their unit was locked: they are paused as well,
// and it is created again. A unit that an object has left fails, and so does one in which something
// is under way. snapshotPaused returns the units that the snapshot shows paused; the others have
// failed. ctx ends when a unit was paused for too long, and whole with the run.
func (m *run) snapshotPaused(ctx, whole context.Context, units []string, unused []object.Ref,
	of *readyGroup) (r *batchSnapshot, paused []string, err error) {
	paused = units
	for try := 1; try <= snapshotTries && len(paused) > 0; try++ {
		if r, err = m.takeSnapshot(ctx, paused, unused, of); err != nil {
			return nil, paused, err
		}
		came := map[string]*graph.Node{} // one of each unit
		for _, unit := range paused {
			for _, n := range m.pauser.WithPause(nodesOf(r.Live.Graph, unit)) {
				if isNewcomer(m.known(of, unit))(n) {
					came[unit] = n
				}
			}
		}
		left, err := m.leavers(ctx, r.Live.Graph, paused)
		if err != nil {
			return nil, paused, err
		}
		underWay, err := m.underWay(ctx, r, paused)
		if err != nil {
			return nil, paused, err
		}
		unserved := m.unserved(r.Live.Graph, paused)
		if len(came)+len(left)+len(underWay)+len(unserved) == 0 {
			break
		}
		from := m.pausedLook(of, paused)
		paused = m.all(whole, paused, func(unit string) error {
			switch n := came[unit]; {
			case unserved[unit] != nil:
				return unserved[unit]
			case left[unit] != nil:
				return &ChangedError{Why: left[unit].Ref.String() + " does not belong to it any more"}
			case underWay[unit] != nil:
				return underWay[unit]
			case n == nil:
				return nil
			case try == snapshotTries:
				return &ChangedError{Why: n.Ref.String() + " is new"}
			}
			nodes, err := m.awaitPaused(ctx, unit, from, m.known(of, unit), m.pauseWait())
			if err == nil {
				m.know(of, unit, nodes)
			}
			return m.tooLong(err)
		})
	}
	return r, paused, nil
}

// underWayError keeps a unit on the source that pre-flight would refuse by now.
type underWayError struct{ finding object.Finding }

func (e *underWayError) Error() string { return e.finding.Message }

// Code is that of the finding.
func (e *underWayError) Code() object.Code { return e.finding.Code }

// Hint says what to do next.
func (e *underWayError) Hint() string { return e.finding.Hint }

// underWay returns, by unit, the errors of pre-flight about what is under way in units that are
// paused: the plan may be hours old, and no acknowledgement of a pause says that a provider, or a
// runtime extension, is done.
func (m *run) underWay(ctx context.Context, r *batchSnapshot, units []string) (map[string]error,
	error) {
	c := &checker{spec: m.Plan.Spec, contents: r.Contents, graph: r.Live.Graph}
	for _, n := range r.Live.Graph.Nodes {
		if slices.Contains(units, n.Unit) && !r.Live.Graph.CapturedOnly(n) {
			c.nodes = append(c.nodes, n)
		}
	}
	err := errors.Join(checkProvisioning(ctx, c), checkProgress(ctx, c))
	errs := map[string]error{}
	for _, f := range c.findings {
		if f = m.Plan.Spec.Force.Override(f); f.Severity >= object.Error {
			errs[f.Unit] = &underWayError{f}
		}
	}
	return errs, err
}

// leavers returns, by unit, an object that was paused with the unit and does not belong to it any
// more, such as a host that was released after the unit was locked. The move leaves such an object
// on the source, and only a give-back of the unit unpauses it. An object that is gone is no leaver.
func (m *run) leavers(ctx context.Context, g *graph.Graph, units []string) (
	map[string]*graph.Node, error) {
	left := map[string]*graph.Node{}
	for _, unit := range units {
		m.mu.Lock()
		nodes := slices.Collect(maps.Values(m.switched[unit]))
		m.mu.Unlock()
		hasLeft := isNewcomer(nodesOf(g, unit))
		for _, n := range append(m.pauser.Switched(nodes), m.pauser.First(nodes)...) {
			if !hasLeft(n) {
				continue
			}
			live, err := read(ctx, m.Source, n.Ref)
			if err != nil {
				return nil, err
			}
			if live != nil && string(live.GetUID()) == n.UID {
				left[unit] = n
			}
		}
	}
	return left, nil
}

// read reads an object of a management cluster. It is nil when it is not there.
func read(ctx context.Context, mgmt Mgmt, ref object.Ref) (live *unstructured.Unstructured,
	err error) {
	k, served := kube.FindKind(mgmt.Kinds, ref.GroupKind())
	if !served {
		return nil, nil
	}
	err = kube.Retry(ctx, func() error {
		live, err = mgmt.Reader.Get(ctx, k, ref.Namespace, ref.Name)
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}
	return live, nil
}

// takeSnapshot creates the snapshot that a batch is copied from, verifies its structure in the
// store (invariant I2), and adds it to the index. It has the scope of the operation, and holds the
// namespaces of the units, with what they need of others: so its cost, which is part of the pause,
// does not depend on the size of the source, and without their neighbours, of which these may have
// many. Of unused, which move with the units although they do not need them, it holds the
// namespaces as well; and the whole source when these are more than it takes less time to list one
// by one.
func (m *run) takeSnapshot(ctx context.Context, units []string, unused []object.Ref,
	of *readyGroup) (r *batchSnapshot, err error) {
	o := m.Source.options
	o.Store, o.Writer, o.Progress = m.Store, m.Program, m.Journal.Progress
	o.Operation, o.TTL = m.Operation, snapshotTTL
	namespaces := slices.Compact(slices.Sorted(slices.Values(
		slices.Concat(m.namespacesOf(units[0]), namespacesOfRefs(unused)))))
	narrow := false
	if len(namespaces) <= kube.ManyNamespaces {
		o.Scope.Namespaces, o.ListScope = namespaces, true
		if narrow = of.around != nil && !of.around.wide; narrow {
			o.Narrow = of.around.narrow(units)
		}
	}
	o.WithoutRelated = true
	if o.Known, err = m.Catalog.HighestSequence(ctx, m.Store.ID(), o.SourceUID); err != nil {
		return nil, err
	}
	r = &batchSnapshot{narrow: narrow}
	r.Result, err = createVerified(ctx, o)
	if err == nil && narrow {
		if r.Live.Graph, r.narrow = of.around.complete(r.Live.Graph, units, unused...); !r.narrow {
			o.Narrow, of.around.wide = capture.Narrow{}, true
			r.Result, err = createVerified(ctx, o)
		}
	}
	if err != nil {
		return nil, err
	}
	m.keepShared(r.Live.Graph)
	err = m.Catalog.UpdateOperation(ctx, m.Journal.Operation(),
		func(op *catalog.Operation) { op.SnapshotID = string(r.ID) })
	if err == nil {
		err = m.Catalog.PutSnapshot(ctx, catalog.RecordOf(r.Signed))
	}
	return r, err
}

// createVerified creates a snapshot and verifies its structure in the store.
func createVerified(ctx context.Context, o snapshot.Options) (r *snapshot.Result, err error) {
	for try := 1; ; try++ {
		if r, err = snapshot.Create(ctx, o); err == nil {
			err = verify(ctx, o.Store, r)
		}
		// What is at work may change after it was captured.
		again := errors.Is(err, capture.ErrHistory) || errors.Is(err, kube.ErrExpired) ||
			errors.Is(err, errNotVerified)
		if !again || try == snapshotTries {
			return r, err
		}
	}
}

// verify verifies the structure of a snapshot in the store. The error wraps errNotVerified when
// that has findings.
func verify(ctx context.Context, st *store.Store, r *snapshot.Result) error {
	report, err := st.VerifyStructure(ctx, r.Envelope, nil)
	if err == nil && len(report.Findings) > 0 {
		err = fmt.Errorf("verify snapshot %s: %w: %s", r.ID, errNotVerified, report.Findings[0].Message)
	}
	return err
}
