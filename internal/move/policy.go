package move

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// policyOf is the admission policy of a side. alive is nil where nothing is written (fence.Policy).
func policyOf(side Mgmt, alive func(ctx context.Context) error) *fence.Policy {
	return &fence.Policy{Reader: side.Reader, Writer: side.Writer, Prober: side.Prober,
		Kinds: side.Kinds, Alive: alive}
}

// armFor arms the admission policy of the source for a unit that is about to be paused. A unit that
// somebody else has locked is left alone: the list does not say who put a key there.
func (m *run) armFor(ctx context.Context, unit string, cluster object.Ref) error {
	err := m.pauser.Change(ctx, cluster, func(u *unstructured.Unstructured) (bool, error) {
		return false, m.mayLock(unit, u)
	})
	if err == nil {
		m.arm(ctx, unit)
	}
	return err
}

// arm arms the admission policy of the source for a unit: from the pause on, and after the unit is
// retired, nobody ends its pause there or creates it again. It tries so once: an API server that
// does not follow it takes 10 s, and not in the pause.
func (m *run) arm(ctx context.Context, unit string) {
	m.mu.Lock()
	unarmed := m.unarmed[unit]
	m.mu.Unlock()
	if !unarmed {
		m.armNow(ctx, unit)
	}
}

// armNow is arm for a unit that may have been tried before. Where it is not possible, the move goes
// on, and the first time a finding says so. A run that another host has taken over lists nothing
// and reports nothing: its next step ends it.
func (m *run) armNow(ctx context.Context, unit string) {
	m.mu.Lock()
	unable := m.unarmed[""]
	m.mu.Unlock()
	ref, err := clusterRef(unit)
	if err != nil || unable {
		return
	}
	c := fence.Cluster{Ref: ref}
	for _, u := range m.Plan.Copy.Units {
		if u.Name == unit {
			c.ID = u.WorkloadID
		}
	}
	if err = m.policy.Arm(ctx, []fence.Cluster{c}); err == nil || ctx.Err() != nil {
		return
	}
	if _, takenOver := errors.AsType[*mirror.FencedError](err); takenOver {
		return
	}
	m.mu.Lock()
	again := len(m.unarmed) > 0
	m.unarmed[unit] = true
	m.unarmed[""] = m.unarmed[""] || fence.IsUnable(err)
	m.mu.Unlock()
	if !again {
		_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent("",
			fence.PolicyNotArmed("source", err)))
	}
}

// armLeaving arms the admission policy for units that are about to be removed from the source, as
// far as it is not: it could not be before their pause, or somebody has edited it since. They are
// at work on the target, so that none of them waits for it.
func (m *run) armLeaving(ctx context.Context, round []*leaving) {
	state, err := m.policy.State(ctx)
	for _, l := range round {
		for _, u := range l.healthy {
			ref, badName := clusterRef(u.Name)
			if err == nil && badName == nil && state.Enforced && state.Denies(ref) {
				continue
			}
			m.armNow(ctx, u.Name)
		}
	}
}

// checkPolicy asks the source whether the admission policy can be armed there.
func checkPolicy(ctx context.Context, c *checker) error {
	if err := policyOf(c.Source, nil).Check(ctx); err != nil && ctx.Err() == nil {
		c.add(fence.PolicyNotArmed("source", err))
	}
	return ctx.Err()
}

// returning returns findings about Clusters of a copy that the admission policy of the target
// denies, since they were moved away from there or fenced, and that could not be taken off its
// list.
func (e Ends) returning(ctx context.Context, in restore.Input) ([]object.Finding, error) {
	nodes, err := restore.Nodes(in.Snapshot, in.Spec)
	if err != nil {
		return nil, err
	}
	var clusters []object.Ref
	for _, n := range nodes {
		if n.GroupKind() == capi.Cluster {
			clusters = append(clusters, n.Ref)
		}
	}
	return policyOf(e.Target, nil).CheckAllow(ctx, clusters)
}
