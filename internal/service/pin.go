package service

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// DeleteSnapshots begins a prune of the named snapshots.
func (s *snapshotService) DeleteSnapshots(ctx context.Context, req *mgmtv1.DeleteSnapshotsRequest) (
	*mgmtv1.DeleteSnapshotsResponse, error) {
	o := retention.Options{Grace: s.s.cfg.Retention.Grace, Damaged: req.GetDamaged()}
	if g := req.GetGrace(); g != nil {
		o.Grace = g.AsDuration()
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	c, p, err := s.s.openPrune(ctx, req.GetLocation(), o)
	if err != nil {
		return nil, err
	}
	if len(req.GetIds()) == 0 {
		return nil, &Error{Reason: ReasonUsage, Message: "no snapshot is named"}
	}
	for _, id := range req.GetIds() {
		k, err := snapshotToDelete(ctx, p.options.Store, req.GetSource(), id, o.Damaged)
		if err != nil {
			return nil, err
		}
		p.options.Delete = append(p.options.Delete, k)
	}
	run, err := s.s.beginPrune(ctx, c, p, "")
	if err != nil {
		return nil, err
	}
	return &mgmtv1.DeleteSnapshotsResponse{Operation: operationToProto(run.begun)}, nil
}

// snapshotToDelete returns the key of the envelope that a request names. A damaged snapshot must be
// named by its key: its id may be there several times, or not be that of its content.
func snapshotToDelete(ctx context.Context, st *store.Store, source, id string, damaged bool) (
	store.EnvelopeKey, error) {
	k, err := store.ParseEnvelopeKey(id)
	switch {
	case id == latest:
		return k, &Error{Reason: ReasonUsage, Message: "\"latest\" cannot be deleted: the newest " +
			"snapshot of a source always stays", Hint: "name a snapshot by its id"}
	case err != nil && damaged:
		return k, &Error{Reason: ReasonUsage, Message: id + " is not the key of an envelope, by " +
			"which a damaged snapshot is deleted", Hint: "the plan of a prune has the keys",
			HintKey: object.HintPrunePlan}
	case err != nil:
		found, err := find(ctx, st, snapshotRef{source: source, ref: id})
		return found.Key, err
	}
	keys, err := st.Snapshots(ctx, k.Source)
	if err != nil {
		return k, err
	}
	if slices.Contains(keys, k) {
		return k, nil
	}
	return k, &store.LookupError{Ref: id, Source: k.Source, Matches: keys}
}

// PinSnapshot pins a snapshot.
func (s *snapshotService) PinSnapshot(ctx context.Context, req *mgmtv1.PinSnapshotRequest) (
	*mgmtv1.PinSnapshotResponse, error) {
	st, err := s.s.openStore(ctx, req.GetLocation(), nil)
	if err != nil {
		return nil, err
	}
	found, err := find(ctx, st, snapshotRef{source: req.GetSource(), ref: req.GetId(),
		scope: req.GetScope()})
	k := found.Key
	if err == nil {
		err = st.PutPin(ctx, k, strings.TrimSpace(req.GetReason()), time.Now())
	}
	if store.IsMissing(err) {
		return nil, &Error{Reason: ReasonNotFound, Message: "the snapshot is not there any more: " +
			k.String(), err: err}
	}
	if err != nil {
		return nil, err
	}
	return &mgmtv1.PinSnapshotResponse{Key: k.String()}, nil
}

// UnpinSnapshot removes a pin.
func (s *snapshotService) UnpinSnapshot(ctx context.Context, req *mgmtv1.UnpinSnapshotRequest) (
	*mgmtv1.UnpinSnapshotResponse, error) {
	st, err := s.s.openStore(ctx, req.GetLocation(), nil)
	if err != nil {
		return nil, err
	}
	found, err := find(ctx, st, snapshotRef{source: req.GetSource(), ref: req.GetId(),
		scope: req.GetScope()})
	if err != nil {
		return nil, err
	}
	k := found.Key
	return &mgmtv1.UnpinSnapshotResponse{Key: k.String()}, st.RemovePin(ctx, k)
}
