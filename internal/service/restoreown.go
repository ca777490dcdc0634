package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// allow lifts the admission policy of an earlier fence of the target for a unit, unless another
// host has taken the operation over. It journals what it takes off the list: a rollback lists that
// again.
func (o *restoreInputs) allow(ctx context.Context, j *catalog.Journal, u restore.Unit) error {
	ref, err := clusterOf(u)
	if err != nil {
		return err
	}
	policy := o.policy()
	policy.Alive = j.Alive
	id, err := policy.DeniedID(ctx, ref)
	if err == nil && id != "" {
		err = recordDenied(ctx, j, u, id)
	}
	if err != nil {
		return err
	}
	return policy.Allow(ctx, ref) // also when an earlier run took it off unheard
}

// recordDenied journals for which workload cluster the policy denies the Cluster of a unit.
func recordDenied(ctx context.Context, j *catalog.Journal, u restore.Unit, id string) error {
	return j.Do(ctx, allowStep(u.Name), func(ctx context.Context, h *catalog.StepHandle) error {
		data, err := json.Marshal(id)
		if err != nil {
			return fmt.Errorf("encode id: %w", err)
		}
		if err := h.Record(ctx, catalog.Value{Key: deniedID, Data: data}); err != nil {
			return err
		}
		return h.Sync(ctx) // a rollback on another host has to know it, too
	})
}

// deniedID is the value of the step before a Cluster is taken off the list of the policy.
const deniedID = "id"

func allowStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "allow"} }

// clusterOf returns the ref of the Cluster of a unit.
func clusterOf(u restore.Unit) (object.Ref, error) {
	key, err := object.ParseKey(u.Name)
	return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: key.Namespace,
		Name: key.Name}, err
}

// policy is the admission policy of the target.
func (o *restoreInputs) policy() *fence.Policy { return policyOf(o.target, o.kinds) }

// policyOf is the admission policy of a management cluster.
func policyOf(m *kube.Mgmt, kinds []kube.Kind) *fence.Policy {
	return &fence.Policy{Reader: m.Reader(), Writer: m.Writer(), Prober: m.Prober(), Kinds: kinds}
}

// checkPolicy returns findings about Clusters that the target would not let be released: they were
// fenced there, or moved away from there.
func (o *restoreInputs) checkPolicy(ctx context.Context, nodes []*graph.Node, spec restore.Spec) (
	[]object.Finding, error) {
	if spec.NoRelease {
		return nil, nil
	}
	var clusters []object.Ref
	for _, n := range nodes {
		if n.GroupKind() == capi.Cluster {
			clusters = append(clusters, n.Ref)
		}
	}
	return o.policy().CheckAllow(ctx, clusters)
}

// beforeRelease returns what has to succeed before a unit is released: the proof that the source is
// dead, and that the ownership record of the unit names the target. Where the store or the keys can
// write no record, the record of somebody else still prevents the release, and a warning says so.
func (o *restoreInputs) beforeRelease(ctx context.Context, j *catalog.Journal, plan *restore.Plan) (
	func(ctx context.Context, u restore.Unit) error, error) {
	findings, err := noFence(ctx, o.store)
	if err != nil {
		return nil, err
	}
	claim := o.own
	if len(findings) > 0 {
		claim = o.unclaimed
	}
	guard := &sourceGuard{o: o, plan: plan}
	return func(ctx context.Context, u restore.Unit) error {
		owner, err := guard.overridden(ctx, j, u)
		claimed, stateErr := j.State(ctx, ownStep(u.Name))
		if err := errors.Join(err, stateErr); err != nil {
			return err
		}
		asked := guard.checkOwner(ctx, u, owner)
		if claimed == catalog.StepDone {
			asked = rollBackFirst(asked)
		}
		if err := errors.Join(guard.check(ctx), asked); err != nil {
			return err
		}
		if err := claim(ctx, j, plan, u); err != nil {
			return err
		}
		return errors.Join(guard.checkAgain(ctx), rollBackFirst(guard.checkOwner(ctx, u, owner)))
	}, j.EmitFindings(ctx, findings)
}

// rollBackFirst adds to the hint of a finding about an owner that a rollback gives the record back:
// once that names the target, another restore does not ask the owner any more.
func rollBackFirst(err error) error {
	if refused, ok := errors.AsType[*preflight.SourceError](err); ok {
		f := refused.Finding
		f.Hint += "; roll this operation back before you plan another restore: its record names the " +
			"target now"
		return &preflight.SourceError{Finding: f}
	}
	return err
}

func ownStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "own"} }

// own records that a unit belongs to the target, so that a holder of an older state can detect it.
// The claim is one step of the journal, which a resume skips. The record itself is read again in
// every run: a resume may come days later, when another operation owns the unit (invariant I1).
func (o *restoreInputs) own(ctx context.Context, j *catalog.Journal, plan *restore.Plan,
	u restore.Unit) error {
	q := claim(j, plan, u)
	err := j.Do(ctx, ownStep(u.Name), func(ctx context.Context, h *catalog.StepHandle) error {
		if err := recordOwner(ctx, o.store, h, q); err != nil {
			return err
		}
		return errors.Join(ownership.Claim(ctx, o.store, q), h.SetUnit(catalog.UnitCopied))
	})
	if err != nil {
		return err
	}
	return ownership.Check(ctx, o.store, q)
}

// previousOwner is the value of a claim's step that has the owner before it.
const previousOwner = "owner"

// recordOwner journals who owns a workload cluster before it is claimed: a rollback gives it back.
func recordOwner(ctx context.Context, s ownership.Store, h *catalog.StepHandle,
	q ownership.Request) error {
	have, err := ownership.Current(ctx, s, q)
	if _, back := errors.AsType[*ownership.WentBackError](err); back || store.IsUnusable(err) ||
		err == nil && (!have.Trusted || have.Operation == q.Operation) {
		return nil // the claim says what is wrong with a record that does not count
	}
	if err != nil {
		return err
	}
	return recordPrevious(ctx, h, have.By)
}

func recordPrevious(ctx context.Context, h *catalog.StepHandle, by object.Side) error {
	data, err := json.Marshal(by)
	if err != nil {
		return fmt.Errorf("encode owner: %w", err)
	}
	if err := h.Record(ctx, catalog.Value{Key: previousOwner, Data: data}); err != nil {
		return err
	}
	return h.Sync(ctx) // a rollback on another host has to know it, too
}

// claimedFrom returns who owned a unit before this operation claimed it; the zero side when nobody
// did.
func claimedFrom(ctx context.Context, j *catalog.Journal, u restore.Unit) (by object.Side,
	err error) {
	values, err := j.Values(ctx, ownStep(u.Name))
	if data, ok := values[previousOwner]; ok && err == nil {
		if err = json.Unmarshal(data, &by); err != nil {
			err = fmt.Errorf("decode owner: %w", err)
		}
	}
	return by, err
}

// unclaimed makes sure that no other operation has claimed a unit since planning. It is for a run
// that can record nothing in the store: others may have a signing key, and an earlier run of this
// operation may have had one.
func (o *restoreInputs) unclaimed(ctx context.Context, j *catalog.Journal, plan *restore.Plan,
	u restore.Unit) error {
	state, err := j.State(ctx, ownStep(u.Name))
	if err != nil {
		return err
	}
	check := ownership.CheckUnclaimed
	if state == catalog.StepDone {
		check = ownership.Check
	}
	err = check(ctx, o.store, claim(j, plan, u))
	if store.IsUnusable(err) && plan.Spec.Force.Has(object.CodeOwnerDamaged) {
		err = nil // the operator has answered for a record that cannot be read
	}
	if err != nil {
		return err
	}
	return j.SetUnit(ctx, u.Name, catalog.UnitCopied, "")
}

// claim is the request of this operation for a unit.
func claim(j *catalog.Journal, plan *restore.Plan, u restore.Unit) ownership.Request {
	return ownership.Request{
		WorkloadID: u.WorkloadID, Workload: u.Name, From: plan.Snapshot.Source, To: plan.Target,
		Operation: string(j.Operation()), Epoch: plan.Epochs[u.WorkloadID],
		OriginEpoch:   plan.OriginEpochs[u.WorkloadID],
		Force:         plan.Spec.Force.Has(object.CodeOwnedElsewhere),
		ForceDamaged:  plan.Spec.Force.Has(object.CodeOwnerDamaged),
		ForceWentBack: plan.Spec.Force.Has(object.CodeEpochWentBack),
	}
}

// sourceEpochs gives a plan of version 0.3 or older, which has no epochs, those of the records
// that name its source: these it may replace, and no others. A record that this operation has
// written is none of them, also when the restore goes into its own source.
func (o *restoreInputs) sourceEpochs(ctx context.Context, j *catalog.Journal, plan *restore.Plan) (
	map[string]int64, error) {
	owners, err := ownership.Owners(ctx, o.store)
	epochs := map[string]int64{}
	for id, owned := range owners {
		if owned.By.UID == plan.Snapshot.Source.UID && owned.Operation != string(j.Operation()) {
			epochs[id] = owned.Epoch
		}
	}
	return epochs, err
}
