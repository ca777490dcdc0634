package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// This file is about a workload cluster that somebody deletes on the source after the plan. Until
// its batch is planned it leaves the move, and what was copied of it is removed, as after any
// failure. From then on its copy may be whole, and the only one there is: the operator decides.

// GoneError means that the Cluster of a unit of a batch is gone from the source.
type GoneError struct{}

func (GoneError) Error() string {
	return "its Cluster is gone from the source, where it was paused"
}

// Hint says what the operator can do.
func (GoneError) Hint() string {
	return "find out who deleted it; a rollback of the operation removes its copy from the target, " +
		"and its snapshots stay"
}

// HintKey names the command that rolls an operation back.
func (GoneError) HintKey() object.HintKey { return object.HintRollback }

// deletingError means that somebody deletes a workload cluster.
type deletingError struct{ Cluster object.Ref }

func (e *deletingError) Error() string { return e.Cluster.String() + " is being deleted" }

// Hint says what the operator can do.
func (e *deletingError) Hint() string {
	return "let the deletion end: a resume leaves it out of the move then"
}

// isGone reports whether the source serves Clusters and has none of this name. It lists them, since
// a GET is answered with 404 also when the kind is not served.
func (m *run) isGone(ctx context.Context, cluster object.Ref) (bool, error) {
	k, ok := kube.FindKind(m.Source.Kinds, cluster.GroupKind())
	if !ok {
		return false, nil
	}
	gone := true
	_, err := m.Source.Reader.List(ctx, k, kube.ListOptions{Namespace: cluster.Namespace,
		Metadata: true}, func(raw []byte) error {
		if gjson.GetBytes(raw, "metadata.name").String() == cluster.Name {
			gone = false
		}
		return nil
	})
	return gone && err == nil, err
}

// checkGone returns nil when a Cluster that the source did not find is gone from there, and else
// the error of that, notFound, or why the source cannot tell.
func (m *run) checkGone(ctx context.Context, unit string, notFound error) error {
	ref, err := clusterRef(unit)
	if err != nil {
		return err
	}
	gone, err := m.isGone(ctx, ref)
	if err == nil && !gone {
		err = notFound
	}
	return err
}

// leaveGone takes a unit that failed before a batch had it out of the move when its Cluster is gone
// from the source, and reports whether it did.
func (m *run) leaveGone(ctx context.Context, unit string) bool {
	ref, err := clusterRef(unit)
	if err != nil {
		return false
	}
	if gone, err := m.isGone(ctx, ref); err != nil || !gone {
		return false
	}
	err = m.undoPreCopy(ctx, unit)
	if err == nil {
		err = m.unpause(ctx, unit, false, catalog.UnitRolledBack)
	}
	if err == nil {
		err = m.Journal.SetUnit(ctx, unit, catalog.UnitRolledBack, "")
	}
	if err != nil {
		return false
	}
	f := object.Finding{Severity: object.Warning, Code: object.CodeDeletedOnSource, Ref: ref,
		Message: "somebody deleted it on the source after the plan: it is not moved, and what was " +
			"copied of it alone is removed from the target",
		Hint: "if that was a mistake, restore it from a snapshot"}
	if owned, claimed := errors.AsType[*ownership.OwnedError](m.mayReturn(ctx, unit)); claimed {
		f.Message = "it is gone from the source since the plan, and is left out: " + owned.Error()
		f.Hint = "work with that management cluster: another operation has taken it there"
	}
	_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit, f))
	if unit == m.Tuning.Canary {
		m.fail(ctx, "", fmt.Errorf("the canary %s is gone from the source: a resume goes on without it",
			unit))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results.gone[unit] = true
	return true
}

// hasLeft reports whether a unit has left the move, in this run or in an earlier one.
func (m *run) hasLeft(unit string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results.gone[unit] || m.Units[unit] == catalog.UnitRolledBack
}

// unpauseLeft gives back the switches that pauseShared has set on the source for units that have
// left the move since, and for no others, and those of what the batches left out, once all units
// are through. What nobody uses would have moved with any unit.
func (m *run) unpauseLeft(ctx context.Context) error {
	var all []string
	for _, u := range m.Plan.Copy.Units {
		all = append(all, u.Name)
	}
	handedOver, err := m.handedOverBatches(ctx)
	if err != nil {
		return err
	}
	moved, skipped := sharedOf(handedOver) // what was taken along is released or retired
	// A resume moves what has failed, and what a dry-run has refused.
	over := m.left() == 0 && len(m.results.failed)+len(m.refused) == 0
	left := slices.DeleteFunc(m.pausedShared(m.Plan.Copy), func(o restore.Object) bool {
		users := o.Users
		if len(users) == 0 {
			users = all
		}
		stays := !slices.ContainsFunc(users, func(unit string) bool { return !m.hasLeft(unit) }) ||
			over && skipped[o.Ref] != ""
		return moved[o.Ref] || !stays
	})
	if len(left) == 0 {
		return nil
	}
	step := catalog.Step{Phase: "unpause-left", Wave: m.Attempt} // others may have left since the last
	return m.Journal.Do(ctx, step, func(ctx context.Context, _ *catalog.StepHandle) error {
		free, err := m.notAtWork(ctx, left)
		if err != nil {
			return err
		}
		return m.changeShared(ctx, free, func(u *unstructured.Unstructured) (bool, error) {
			return m.Rows.Unpause(u.Object), nil
		})
	})
}

// unpauseGone is unpauseIn for a unit whose Cluster is gone: what has a switch of its own may be
// there. Nothing is given back that another management cluster has claimed (I1): an operation that
// took the workload cluster there has removed it here. It denies to create it again.
func (m *run) unpauseGone(ctx context.Context, h *catalog.StepHandle, cluster object.Ref,
	nodes []*graph.Node, state catalog.UnitState) error {
	err := m.mayReturn(ctx, h.Step().Unit)
	if err == nil {
		err = m.policy.Allow(ctx, cluster) // somebody may make one of this name
		if err == nil {
			err = m.pauser.UnpauseOwn(ctx, nodes)
		}
	} else if _, claimed := errors.AsType[*ownership.OwnedError](err); claimed {
		err = nil
	}
	if err == nil {
		err = h.Record(ctx, catalog.Value{Key: sinceValue, Data: json.RawMessage(noSince)})
	}
	return errors.Join(err, h.SetUnit(state))
}

// handedOverAndChanged returns the units of a batch that are handed over, and of which somebody
// deleted or changed something on the source before the move began to retire them: what, by unit.
func (m *run) handedOverAndChanged(ctx context.Context, b *batch, v *sourceCapture) (
	units map[string]string, err error) {
	units = map[string]string{}
	for _, u := range b.Copy.Units {
		if u.Blocked || m.over(u.Name) {
			continue
		}
		release, err := m.Journal.State(ctx, releaseStep(u.Name))
		if err != nil {
			return nil, err
		}
		accepted := m.accepted[u.Name]
		if accepted && release == catalog.StepDone { // nothing of its contents is read any more
			continue
		}
		if passed, err := u.Passed(ctx, m.Journal); err != nil {
			return nil, err
		} else if passed {
			continue
		}
		why, err := m.changedSince(b, u, v, accepted && release != "")
		if err != nil {
			return nil, err
		}
		if why == "" {
			continue
		}
		retiring, err := m.Journal.State(ctx, retireStep(u.Name))
		if err != nil {
			return nil, err
		}
		if retiring != "" {
			continue
		}
		by, err := m.handedOverBy(ctx, u)
		if err != nil {
			return nil, err
		}
		if by == m.Operation {
			units[u.Name] = why
		}
	}
	return units, nil
}

// changedSince says which object of a unit is not on the source as it was copied; "" when all are.
// What controllers write is no change. An object that is bound to the Cluster counts as changed by
// any write, since no pause stops its controller. onlyGone is for a unit that was released once and
// is accepted, which is not compared any more: what is there can be read.
func (m *run) changedSince(b *batch, u restore.Unit, v *sourceCapture, onlyGone bool) (string,
	error) {
	cluster, err := clusterRef(u.Name)
	if err != nil || v.graph.Node(cluster) == nil {
		return cluster.String() + " is gone", err
	}
	for _, o := range u.Objects {
		was, n := b.Source[o.Ref.String()], v.graph.Node(o.Ref)
		bound := was.UID != "" && m.Rows.Row(o.GroupKind()).BoundToCluster
		switch {
		case o.Action == restore.Skip || was.Desired == "" && !bound:
			continue
		case n == nil:
			return o.Ref.String() + " is gone", nil
		case onlyGone, n.UID == was.UID && n.ResourceVersion == was.ResourceVersion:
			continue
		case bound:
			return o.Ref.String() + " was changed", nil
		}
		live, err := decode(v.contents, o.Ref)
		if err != nil {
			return "", err
		}
		if as, err := b.isAsCopied(m.Rows, o.Ref, live); err != nil || !as {
			return o.Ref.String() + " was changed", err
		}
	}
	return "", nil
}

// unreadableError means that the contents of a unit are in its snapshot only, and that no identity
// opens it.
type unreadableError struct {
	why string // it is not on the source as it was copied
	err error
}

func (e *unreadableError) Error() string {
	return "it was handed over, and since then on the source " + e.why + "; its snapshot cannot be " +
		"read: " + e.err.Error()
}

func (e *unreadableError) Unwrap() error { return e.err }

// Hint says what to do next.
func (e *unreadableError) Hint() string { return "resume with an identity that opens the snapshot" }

// HintKey names the command.
func (e *unreadableError) HintKey() object.HintKey { return object.HintResumeWithIdentity }
