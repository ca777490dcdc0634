package service

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// resumeRestore resumes a restore by its stored plan, on the same target and from the same
// snapshot.
func (s *Server) resumeRestore(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	stored storedRestore, how resumption) (*operationRun, error) {
	if err := stored.Plan.CheckModifiers(how.modifiers); err != nil {
		return nil, err
	}
	o, err := s.reopenRestore(ctx, op, &stored, how.identity)
	if err != nil {
		return nil, err
	}
	o.modifiers = how.modifiers
	if _, err := restore.Nodes(o.snapshot, stored.Plan.Spec); err != nil {
		return nil, err
	}
	others := excluded{self: op, on: []string{o.target.UID()}, forward: true}
	if err := others.check(ctx, c); err != nil {
		return nil, err
	}
	if err := o.askSource(ctx, c, op.ID, &stored.Plan); err != nil {
		return nil, err
	}
	to := mirrorTo{store: o.store, giveUp: how.giveUp, others: others}
	return s.startMirrored(ctx, c, op.ID, to, func(ctx context.Context, j *catalog.Journal) error {
		nodes, err := restore.Nodes(o.snapshot, stored.Plan.Spec)
		if err != nil {
			return err
		}
		contents, err := o.snapshot.Load(ctx, nodes, objectsRead(j))
		if err != nil {
			return err
		}
		if stored.Plan.Epochs == nil {
			if stored.Plan.Epochs, err = o.sourceEpochs(ctx, j, &stored.Plan); err != nil {
				return err
			}
		}
		left, findings, err := o.left(ctx, c, j, &stored.Plan)
		if err != nil {
			return err
		}
		rest, more := stored.Plan.Without(left, o.rows)
		if err := j.EmitFindings(ctx, append(findings, more...)); err != nil {
			return err
		}
		return o.run(ctx, j, rest, contents, stored.Tuning)
	})
}

// askSource makes sure, before a resume, that the source is gone. The source may well reconcile
// what the resume leaves: it has that back.
func (o *restoreInputs) askSource(ctx context.Context, c *catalog.Catalog, id catalog.OperationID,
	plan *restore.Plan) error {
	left, _, err := o.left(ctx, c, c.Journal(id, catalog.JournalOptions{}), plan)
	if err != nil {
		return err
	}
	rest, _ := plan.Without(left, o.rows)
	return (&sourceGuard{o: o, plan: rest}).check(ctx)
}

// left returns the units of a restore that a resume leaves: they were rolled back, or released and
// have come to belong to another management cluster since (I1), which are the findings. One that is
// not released yet is asked for right before its release.
func (o *restoreInputs) left(ctx context.Context, c *catalog.Catalog, j *catalog.Journal,
	plan *restore.Plan) (left map[string]bool, findings []object.Finding, err error) {
	op, err := c.Operation(ctx, j.Operation())
	if err != nil {
		return nil, nil, err
	}
	left = map[string]bool{}
	for _, u := range plan.Units {
		switch op.Units[u.Name] {
		case catalog.UnitRolledBack:
			left[u.Name] = true
			continue
		case catalog.UnitReleased:
		default:
			continue
		}
		q := claim(j, plan, u)
		have, err := ownership.Current(ctx, o.store, q)
		switch {
		case store.IsUnusable(err), as[*ownership.WentBackError](err):
			continue // it was released by a record that counted
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", u.Name, err)
		case !have.Trusted || have.Epoch <= q.Epoch || have.By.UID == plan.Target.UID:
			continue
		}
		left[u.Name] = true
		findings = append(findings, object.Finding{Severity: object.Warning,
			Code: object.CodeOwnedElsewhere, Unit: u.Name, Message: fmt.Sprintf("management cluster %s "+
				"(%s) has taken it over since its release here; this operation leaves it", have.By.Name,
				have.By.UID), Hint: "work with that management cluster"})
	}
	return left, findings, nil
}

// reopenRestore opens the snapshot and the target of a stored plan. Another store or target is a
// usage error.
func (s *Server) reopenRestore(ctx context.Context, op catalog.Operation, stored *storedRestore,
	identity []byte) (*restoreInputs, error) {
	location, st, err := s.openStoreOf(ctx, op, stored.Location, identity)
	if err != nil {
		return nil, err
	}
	key, err := store.ParseEnvelopeKey(stored.Plan.Snapshot.Key)
	if err != nil {
		return nil, err
	}
	e, err := st.GetEnvelope(ctx, key)
	if err != nil {
		return nil, err
	}
	target := "" // the flags of mgmtctl name one
	if s.cfg.Daemon || len(s.cfg.Targets) > 1 {
		target = stored.Plan.Target.Name
	}
	o, err := s.openSigned(ctx, location, ownershipHome(st, stored.Plan.Spec.Force), e, target)
	if err != nil {
		return nil, err
	}
	if o.target.UID() != stored.Plan.Target.UID {
		return nil, &Error{Reason: ReasonUsage, Message: "operation " + string(op.ID) +
			" restores into management cluster " + stored.Plan.Target.Name + ", this is " +
			o.target.Name(),
			Hint: "name the target that it was started with; another one would end up with half " +
				"of the objects"}
	}
	return o, nil
}
