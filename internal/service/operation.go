package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// latest is the word for the newest operation or snapshot.
const latest = "latest"

type operationService struct {
	mgmtv1.UnimplementedOperationServiceServer
	s *Server
}

func (o *operationService) ListOperations(ctx context.Context, req *mgmtv1.ListOperationsRequest) (
	*mgmtv1.ListOperationsResponse, error) {
	c, holder, err := o.s.catalogOrHolder(ctx)
	if err != nil {
		return nil, err
	}
	if holder != nil {
		return holder.ListOperations(ctx, req)
	}
	list, err := operationListFromProto(req)
	if err != nil {
		return nil, err
	}
	page, err := list.page(ctx, c)
	if err != nil {
		return nil, err
	}
	if req.GetMirrored() {
		err = o.s.addMirrored(ctx, c, page)
	}
	return page.resp, err
}

func (o *operationService) GetOperation(ctx context.Context, req *mgmtv1.GetOperationRequest) (
	*mgmtv1.GetOperationResponse, error) {
	c, holder, err := o.s.catalogOrHolder(ctx)
	if err != nil {
		return nil, err
	}
	if holder != nil {
		return holder.GetOperation(ctx, req)
	}
	var kinds []catalog.Kind
	for _, kind := range req.GetKinds() {
		kinds = append(kinds, catalog.Kind(kind))
	}
	op, err := findOperation(ctx, c, req.GetId(), kinds...)
	if errors.Is(err, catalog.ErrNotFound) {
		location, found, mirrorErr := o.s.findMirrored(ctx, req.GetId(), err)
		if mirrorErr != nil {
			return nil, mirrorErr
		}
		return &mgmtv1.GetOperationResponse{Operation: mirroredToProto(location, found, time.Now())}, nil
	}
	if err != nil {
		return nil, err
	}
	if req.GetMirrored() {
		if newer := o.s.continuedElsewhere(ctx, c, op); newer != nil {
			return &mgmtv1.GetOperationResponse{Operation: newer}, nil
		}
	}
	return &mgmtv1.GetOperationResponse{Operation: shownOperation(ctx, c, op)}, nil
}

// shownOperation converts an operation together with what only its journal knows: since when its
// units are paused.
func shownOperation(ctx context.Context, c *catalog.Catalog,
	op catalog.Operation) *mgmtv1.Operation {
	shown := operationToProto(op)
	for unit, since := range pausedSince(ctx, c, op) {
		if shown.PausedSince == nil {
			shown.PausedSince = map[string]*timestamppb.Timestamp{}
		}
		shown.PausedSince[unit] = timestamppb.New(since)
	}
	return shown
}

func (o *operationService) WatchOperation(req *mgmtv1.WatchOperationRequest,
	stream grpc.ServerStreamingServer[mgmtv1.WatchOperationResponse]) error {
	ctx := stream.Context()
	c, holder, err := o.s.catalogOrHolder(ctx)
	if err != nil {
		return err
	}
	if holder != nil {
		return forward(ctx, holder, req, stream)
	}
	op, err := findOperation(ctx, c, req.GetId())
	if err != nil {
		return err
	}
	for e, err := range c.Watch(ctx, op.ID, req.GetAfterSeq()) {
		if err != nil {
			return o.s.closedReason(op.ID, err)
		}
		if err := stream.Send(&mgmtv1.WatchOperationResponse{Event: eventToProto(e)}); err != nil {
			return err
		}
	}
	return nil
}

func forward(ctx context.Context, holder mgmtv1.OperationServiceClient,
	req *mgmtv1.WatchOperationRequest,
	to grpc.ServerStreamingServer[mgmtv1.WatchOperationResponse]) error {
	from, err := holder.WatchOperation(ctx, req)
	if err != nil {
		return err
	}
	for {
		resp, err := from.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := to.Send(resp); err != nil {
			return err
		}
	}
}

func (o *operationService) ResumeOperation(ctx context.Context,
	req *mgmtv1.ResumeOperationRequest) (*mgmtv1.ResumeOperationResponse, error) {
	c, err := o.s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	how, err := resumptionFromProto(object.Resumes, req)
	if err != nil {
		return nil, err
	}
	if how.modifiers, err = modify.Parse(req.GetResourceModifiers()); err != nil {
		return nil, err
	}
	how.withoutSource = req.GetWithoutSource()
	op, err := o.s.currentOperation(ctx, c, req.GetId(), how.identity)
	if err != nil {
		return nil, how.wayAround(op, op.Back, err)
	}
	if how.withoutSource && op.Kind != catalog.KindMove {
		return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("operation %s is a %s: only a move "+
			"has a source that it can do without", op.ID, op.Kind)}
	}
	if op.State.Final() {
		if err := o.s.finishMirror(ctx, c, op); err != nil {
			return nil, err
		}
		return &mgmtv1.ResumeOperationResponse{Operation: operationToProto(op)}, nil
	}
	run, err := o.s.resumeOperation(ctx, c, op, how)
	if err != nil {
		return nil, how.wayAround(op, op.Back, err)
	}
	return &mgmtv1.ResumeOperationResponse{Operation: operationToProto(run.begun)}, nil
}

func (o *operationService) RollbackOperation(ctx context.Context,
	req *mgmtv1.RollbackOperationRequest) (*mgmtv1.RollbackOperationResponse, error) {
	c, err := o.s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	work := object.Rollbacks
	if req.GetWithoutTarget() {
		work = object.Returns
	}
	how, err := resumptionFromProto(work, req)
	if err != nil {
		return nil, err
	}
	op, err := o.s.operationToRollBack(ctx, c, req.GetId(), &how)
	if err != nil {
		return nil, how.wayAround(op, true, err)
	}
	switch {
	case op.Kind == catalog.KindRestore && how.withoutTarget:
		return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("operation %s is a restore: its "+
			"rollback removes copies from the target, and there is nothing to do without it", op.ID)}
	case op.Kind != catalog.KindMove && op.Kind != catalog.KindRestore:
		return nil, &Error{Reason: ReasonUnsupported, Message: fmt.Sprintf("operation %s is a %s: only "+
			"a restore or a move can be rolled back", op.ID, op.Kind)}
	case op.State == catalog.RolledBack:
		if how.storeAway == nil { // it may have been rolled back without the store
			err = o.s.finishMirror(ctx, c, op)
		}
		return &mgmtv1.RollbackOperationResponse{Operation: operationToProto(op)}, err
	case op.Kind == catalog.KindMove && op.State == catalog.Succeeded:
		return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf(
			"operation %s has moved everything: there is no way back", op.ID),
			Hint: "to have the workload clusters back, move them back"}
	}
	var run *operationRun
	switch {
	case op.Kind == catalog.KindRestore:
		run, err = o.s.rollBackRestore(ctx, c, op, how)
	case how.withoutTarget:
		run, err = o.s.giveMoveBack(ctx, c, op, how)
	default:
		run, err = o.s.resumeMove(ctx, c, op, true, how)
	}
	if err != nil {
		return nil, how.wayAround(op, true, err)
	}
	return &mgmtv1.RollbackOperationResponse{Operation: operationToProto(run.begun)}, nil
}

func (o *operationService) AcceptUnit(ctx context.Context, req *mgmtv1.AcceptUnitRequest) (
	*mgmtv1.AcceptUnitResponse, error) {
	c, err := o.s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	op, err := findChanging(ctx, c, req.GetId())
	if err != nil {
		return nil, err
	}
	if err := mayAccept(ctx, c, op, req.GetUnit()); err != nil {
		return nil, err
	}
	if err := o.s.checkNewest(ctx, c, op); err != nil {
		return nil, err
	}
	err = c.AcceptUnit(ctx, op.ID, object.Finding{Severity: object.Warning,
		Code: object.CodeUnitAccepted, Unit: req.GetUnit(),
		Message: "the operator accepts the state of the workload cluster after its release"})
	if err != nil {
		return nil, err
	}
	return &mgmtv1.AcceptUnitResponse{Operation: shownOperation(ctx, c, op)}, nil
}

// mayAccept returns an error unless the operator may accept the state of a unit: it was released,
// and the operation has not ended for good and is not running.
func mayAccept(ctx context.Context, c *catalog.Catalog, op catalog.Operation, unit string) error {
	refused := func(why string) error {
		return &Error{Reason: ReasonUsage, Message: fmt.Sprintf("accept %s: %s", unit, why)}
	}
	switch {
	case op.Kind != catalog.KindRestore && op.Kind != catalog.KindMove:
		return refused(fmt.Sprintf("operation %s is a %s, and only a restore or a move releases units",
			op.ID, op.Kind))
	case op.State == catalog.Running:
		return &Error{Reason: ReasonLocked, Message: fmt.Sprintf("accept %s: operation %s is running",
			unit, op.ID), Hint: "wait for its end", HintKey: object.HintWatch}
	case op.State.Final():
		return refused(fmt.Sprintf("operation %s is %s", op.ID, op.State))
	case op.Units[unit] == "":
		return refused(fmt.Sprintf("operation %s has no such unit", op.ID))
	}
	ok, err := restore.MayBeAccepted(ctx, c.Journal(op.ID, catalog.JournalOptions{}), unit)
	if err == nil && !ok {
		err = refused("it was not released")
	}
	return err
}

func (o *operationService) StopOperation(ctx context.Context, req *mgmtv1.StopOperationRequest) (
	*mgmtv1.StopOperationResponse, error) {
	c, holder, err := o.s.catalogOrHolder(ctx)
	if err != nil {
		return nil, err
	}
	if holder != nil {
		return holder.StopOperation(ctx, req)
	}
	op, err := findOperation(ctx, c, req.GetId())
	if err != nil {
		return nil, err
	}
	if err := o.s.stopRun(ctx, c, op.ID); err != nil {
		return nil, err
	}
	if op, err = c.Operation(ctx, op.ID); err != nil {
		return nil, err
	}
	return &mgmtv1.StopOperationResponse{Operation: shownOperation(ctx, c, op)}, nil
}

// findOperation finds an operation of the catalog; latest is the newest one of some kinds, or of
// any when none is named. Of some kinds, it is not one that ended in pre-flight, unless all did:
// that has nothing to go on with, and would hide the one before it, which may.
func findOperation(ctx context.Context, c *catalog.Catalog, ref string, kinds ...catalog.Kind) (
	catalog.Operation, error) {
	if ref != latest {
		op, err := c.FindOperation(ctx, ref)
		if errors.Is(err, catalog.ErrNotFound) {
			return op, &Error{Reason: ReasonNotFound, Message: err.Error(),
				Hint: "a list of the operations shows which there are", HintKey: object.HintOperations,
				err: err}
		}
		return op, err
	}
	most := 1
	if len(kinds) > 0 {
		most = 50
	}
	ops, err := c.Operations(ctx, catalog.OperationFilter{Kinds: kinds, Limit: most})
	if err != nil {
		return catalog.Operation{}, err
	}
	if len(ops) == 0 {
		err := fmt.Errorf("find operation: the catalog has none%s: %w", ofKinds(kinds),
			catalog.ErrNotFound)
		return catalog.Operation{}, &Error{Reason: ReasonNotFound, Message: err.Error(),
			Hint: "operations of other hosts are named by their ID; a list that reads the store shows " +
				"them, too", HintKey: object.HintOperations, err: err}
	}
	for _, op := range ops {
		if planless, err := endedInPreFlight(ctx, c, op); err != nil || !planless {
			return op, err
		}
	}
	return ops[0], nil
}

// endedInPreFlight reports whether a move or a restore ended before its plan was stored.
func endedInPreFlight(ctx context.Context, c *catalog.Catalog, op catalog.Operation) (bool, error) {
	if !op.State.Ended() || op.Changed || op.Kind != catalog.KindMove &&
		op.Kind != catalog.KindRestore {
		return false, nil
	}
	_, err := c.Plan(ctx, op.ID)
	if errors.Is(err, catalog.ErrNotFound) {
		return true, nil
	}
	return false, err
}

func ofKinds(kinds []catalog.Kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	if len(names) == 0 {
		return ""
	}
	return " of kind " + strings.Join(names, " or ")
}

// findChanging is findOperation for what goes on with an operation, undoes it, or accepts a unit of
// it: snapshots and the like, which a schedule may have begun since, are not meant by latest.
func findChanging(ctx context.Context, c *catalog.Catalog, ref string) (catalog.Operation, error) {
	return findOperation(ctx, c, ref, catalog.KindMove, catalog.KindRestore)
}
