package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// ForgetOperations implements the API.
func (o *operationService) ForgetOperations(ctx context.Context,
	req *mgmtv1.ForgetOperationsRequest) (*mgmtv1.ForgetOperationsResponse, error) {
	forced, err := forcedFromProto(object.Forgets, req.GetForceCodes())
	if err != nil {
		return nil, err
	}
	c, err := o.s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	list, findings, err := o.s.readForgotten(ctx, c, req.GetIds(), forced)
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.ForgetOperationsResponse{}
	blocked := false
	for _, f := range findings {
		blocked = blocked || f.Severity >= object.Error
		resp.Findings = append(resp.Findings, findingToProto(f))
	}
	if blocked {
		return resp, nil
	}
	for _, f := range list {
		if err := o.s.forget(ctx, c, f); err != nil {
			return nil, err
		}
		resp.Forgotten = append(resp.Forgotten, operationToProto(f.op))
	}
	return resp, nil
}

// forgotten is an operation that is to be forgotten.
type forgotten struct {
	op catalog.Operation
	// workLeft: it is given up first.
	workLeft bool
	// mirror is the store whose mirror of the operation is to be ended; nil when there is none.
	mirror *store.Store
}

// readForgotten finds operations, and what is given up with them. It changes nothing.
func (s *Server) readForgotten(ctx context.Context, c *catalog.Catalog, refs []string,
	forced object.Forced) (list []forgotten, findings []object.Finding, err error) {
	for _, ref := range refs {
		op, err := findOperation(ctx, c, ref)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(list, func(f forgotten) bool { return f.op.ID == op.ID }) {
			continue
		}
		if op.State == catalog.Running {
			return nil, nil, &Error{Reason: ReasonLocked, Message: fmt.Sprintf(
				"forget operation %s: it is running", op.ID), Hint: "stop it, or wait for its end",
				HintKey: object.HintWatch}
		}
		f := forgotten{op: op}
		if f.workLeft, err = c.HasWorkLeft(ctx, op.ID); err != nil {
			return nil, nil, err
		}
		if f.workLeft {
			findings = append(findings, givenUpFindings(op)...)
		}
		var open error
		if f.mirror, open, err = s.mirrorToEnd(ctx, c, op, f.workLeft); err != nil {
			return nil, nil, err
		}
		if open != nil {
			findings = append(findings, object.Finding{Severity: object.Error,
				Code: object.CodeMirrorOpen, Message: fmt.Sprintf("the mirror of operation %s cannot be "+
					"ended: %v", op.ID, open), Hint: "make the store writable, and give a recipient and the " +
					"signing key"})
		}
		list = append(list, f)
	}
	for i, f := range findings {
		findings[i] = forced.Override(f)
	}
	return list, findings, nil
}

// givenUpFindings are about what an operation with work left gives up.
func givenUpFindings(op catalog.Operation) []object.Finding {
	text := fmt.Sprintf("operation %s, a %s, is %s and has work left: %s", op.ID, op.Kind, op.State,
		unitCounts(op))
	if op.State == catalog.Succeeded {
		text = fmt.Sprintf("operation %s has left workload clusters paused until another one releases "+
			"them: %s", op.ID, unitCounts(op))
	}
	if op.SnapshotID != "" {
		text += "; snapshot " + op.SnapshotID + " is not retained for it any more"
	}
	findings := []object.Finding{{Severity: object.Error, Code: object.CodeWorkLeft, Message: text,
		Hint: "resume it or roll it back"}}
	for unit, state := range op.Units {
		if op.Kind == catalog.KindMove && (state == catalog.UnitHandedOver ||
			state == catalog.UnitReleased) {
			findings = append(findings, object.Finding{Severity: object.Error,
				Code: object.CodeNotRetired, Unit: unit, Message: fmt.Sprintf("move %s handed it over, and "+
					"its copy on %s is not retired", op.ID, op.Source.Name),
				Hint: "resume the move, which retires the copy"})
		}
	}
	return findings
}

// unitCounts says how many units of an operation are in which state.
func unitCounts(op catalog.Operation) string {
	counts := map[catalog.UnitState]int{}
	for _, state := range op.Units {
		counts[state]++
	}
	var texts []string
	for state, n := range counts {
		texts = append(texts, fmt.Sprintf("%d %s", n, state))
	}
	if len(texts) == 0 {
		return "no unit"
	}
	slices.Sort(texts)
	return "units " + strings.Join(texts, ", ")
}

// mirrorToEnd returns the store where the mirror of an operation has to be ended, nil when there is
// none, and in open why it cannot be ended.
func (s *Server) mirrorToEnd(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	workLeft bool) (st *store.Store, open, err error) {
	state, err := c.Mirror(ctx, op.ID)
	if err != nil || state.Seq == 0 && state.Next == "" {
		return nil, nil, err
	}
	_, st, open = s.openStoreOf(ctx, op, op.Location, nil)
	if open != nil {
		return nil, open, nil
	}
	_, open = mirror.CatchUp(ctx, st, op.ID, state)
	if as[*mirror.FencedError](open) || as[*mirror.RemovedError](open) {
		return nil, nil, nil // it is the operation of another host now, or has no mirror any more
	}
	if open != nil {
		return nil, open, nil
	}
	newest, open := mirror.Newest(ctx, st, op.ID)
	if open == nil && newest.Head.Final && !workLeft {
		return nil, nil, nil
	}
	if open = st.AsOwnershipHome().CanRecord(ctx); open != nil {
		return nil, open, nil
	}
	return st, nil, nil
}

// forget deletes an operation. A second call after an error continues.
func (s *Server) forget(ctx context.Context, c *catalog.Catalog, f forgotten) error {
	var err error
	if f.workLeft {
		f.op, err = c.GiveUp(ctx, f.op.ID, "given up and forgotten by an operator")
	}
	if err == nil && f.mirror != nil {
		err = s.writeMirror(ctx, c, f.op, f.mirror)
	}
	if err == nil {
		err = c.ForgetOperation(ctx, f.op.ID)
	}
	if errors.Is(err, catalog.ErrNotFound) { // forgotten meanwhile
		return nil
	}
	return err
}
