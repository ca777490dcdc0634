package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// runMirror is the mirror of a run; nil for an operation that has none.
type runMirror struct{ mirror *mirror.Mirror }

func (m *runMirror) journal() catalog.JournalOptions {
	if m == nil {
		return catalog.JournalOptions{}
	}
	return m.mirror.Journal()
}

func (m *runMirror) confirm(ctx context.Context) error {
	if m == nil {
		return nil
	}
	return m.mirror.Confirm(ctx)
}

func (m *runMirror) close(ctx context.Context) error {
	if m == nil {
		return nil
	}
	return m.mirror.Close(ctx)
}

// mirrorTo says where the journal of a run is mirrored, and beside which others it does not begin.
type mirrorTo struct {
	store *store.Store // nil for no mirror
	// giveUp: the operator overrides no-mirror.
	giveUp bool
	others excluded
	back   bool // the run rolls back
}

// beginMirror begins the mirror of the next run of an operation. When another host takes over, it
// ends that run.
func (s *Server) beginMirror(ctx context.Context, c *catalog.Catalog, id catalog.OperationID,
	to mirrorTo) (*runMirror, error) {
	if to.store == nil {
		return nil, nil
	}
	m, err := mirror.Begin(ctx, id, mirror.Options{
		Catalog: c, Store: to.store, GiveUp: to.giveUp,
		Lost: func(fenced *mirror.FencedError) {
			s.runs.mu.Lock()
			defer s.runs.mu.Unlock()
			if cancel := s.runs.stop[id]; cancel != nil {
				cancel(fenced)
			}
		},
		Unable: func(err error) {
			j := c.Journal(id, catalog.JournalOptions{})
			if err := j.EmitFindings(s.ctx, []object.Finding{mirror.Finding(err)}); err != nil {
				s.cfg.Log.Warn("record that the operation has no mirror", "operation", id, "error", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return &runMirror{m}, nil
}

// currentOperation returns the operation that a resume or a rollback continues. When another host
// has gone on with it since, or began it, the operation is imported from its mirror, which needs
// an identity unless the store is plain. Only an operator's request takes over an operation: a
// daemon that resumes one by itself is refused by its mirror.
func (s *Server) currentOperation(ctx context.Context, c *catalog.Catalog, ref string,
	identity []byte) (catalog.Operation, error) {
	op, err := findChanging(ctx, c, ref)
	if errors.Is(err, catalog.ErrNotFound) {
		location, found, err := s.findMirrored(ctx, ref, err)
		if err != nil {
			return catalog.Operation{}, err
		}
		return s.importOperation(ctx, c, location, found.ID, identity)
	}
	if err != nil || op.State == catalog.Running {
		return op, err
	}
	if err := s.awaitClosed(ctx, c, op.ID); err != nil {
		return op, err
	}
	state, err := c.Mirror(ctx, op.ID)
	if err != nil || state.Seq == 0 && state.Next == "" {
		return op, err
	}
	location, st, err := s.openStoreOf(ctx, op, op.Location, identity)
	if err != nil {
		return op, err
	}
	_, err = mirror.CatchUp(ctx, st, op.ID, state)
	if as[*mirror.RemovedError](err) {
		return op, nil // the next run decides whether it may go on
	}
	if as[*mirror.FencedError](err) && (len(identity) > 0 || !st.Encrypted()) {
		return s.importOperation(ctx, c, location, op.ID, identity)
	}
	return op, err
}

// newestWait is how long checkNewest waits for a store.
const newestWait = 10 * time.Second

// checkNewest returns a *mirror.FencedError when another host has gone on with an operation of this
// catalog, as far as the store answers: a resume would take its journal in place of this one.
func (s *Server) checkNewest(ctx context.Context, c *catalog.Catalog, op catalog.Operation) error {
	if err := s.awaitClosed(ctx, c, op.ID); err != nil {
		return err
	}
	state, err := c.Mirror(ctx, op.ID)
	if err != nil || state.Seq == 0 && state.Next == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, newestWait)
	defer cancel()
	_, st, err := s.openStoreOf(ctx, op, op.Location, nil)
	if err == nil {
		_, err = mirror.CatchUp(ctx, st, op.ID, state)
	}
	if as[*mirror.FencedError](err) {
		return err
	}
	return nil
}

// importOperation brings an operation from its mirror into the catalog.
func (s *Server) importOperation(ctx context.Context, c *catalog.Catalog, l *Location,
	id catalog.OperationID, identity []byte) (catalog.Operation, error) {
	st, err := s.openLocation(ctx, l, identity, false)
	if err != nil {
		return catalog.Operation{}, err
	}
	op, err := mirror.Import(ctx, c, st, l.Name, id)
	if err != nil {
		return catalog.Operation{}, err
	}
	s.cfg.Log.Info("operation was imported from its mirror", "operation", op.ID, "kind", op.Kind,
		"state", op.State)
	return op, nil
}

// mirroredIn lists the operations that have a mirror in a location; none when there is no store, or
// none any more: those of the other locations can be gone on with.
func (s *Server) mirroredIn(ctx context.Context, l *Location) ([]mirror.Found, error) {
	st, err := s.openLocation(ctx, l, nil, false)
	if errors.Is(err, store.ErrStoreMissing) || isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return mirror.List(ctx, st)
}

// findMirrored finds the operation of this id, or beginning of one, in the mirrors of all
// locations. notFound is the error when there is none. A location that cannot be read is an error
// only where it may have another operation with this beginning, or the one that is searched.
func (s *Server) findMirrored(ctx context.Context, ref string, notFound error) (*Location,
	mirror.Found, error) {
	if ref == "" || ref == latest || len(s.cfg.Locations) == 0 {
		return nil, mirror.Found{}, notFound
	}
	locations, err := s.locations("")
	if err != nil {
		return nil, mirror.Found{}, err
	}
	var at *Location
	var first mirror.Found
	var unread error
	for _, l := range locations {
		if l.Store.URL == "" && l.Store.S3 == nil {
			continue // standalone, no store is named
		}
		list, err := s.mirroredIn(ctx, l)
		if unread = cmp.Or(unread, err); err != nil {
			continue
		}
		for _, found := range list {
			switch {
			case !strings.HasPrefix(string(found.ID), ref):
			case at != nil:
				return nil, mirror.Found{}, &catalog.AmbiguousError{What: "operation", Prefix: ref,
					Matches: []string{string(first.ID), string(found.ID)}}
			case found.Problem != nil:
				return nil, mirror.Found{}, found.Problem
			default:
				at, first = l, found
			}
		}
	}
	_, notWhole := catalog.ParseOperationID(ref)
	if unread != nil && (at == nil || notWhole != nil) {
		return nil, mirror.Found{}, unread
	}
	if at == nil {
		return nil, mirror.Found{}, notFound
	}
	return at, first, nil
}

// addMirrored adds to a page the operations that only a mirror has, and replaces those with which
// another host has gone on.
func (s *Server) addMirrored(ctx context.Context, c *catalog.Catalog, page *operationPage) error {
	locations, err := s.locations("")
	if err != nil {
		return err
	}
	for _, l := range locations {
		list, err := s.mirroredIn(ctx, l)
		if err != nil {
			return err
		}
		for _, found := range list {
			if err := page.addMirrored(ctx, c, l, found); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(page.resp.Operations, func(a, b *mgmtv1.Operation) int {
		return strings.Compare(b.GetId(), a.GetId())
	})
	return nil
}

// addMirrored adds one operation of a mirror, if it belongs to the page.
func (p *operationPage) addMirrored(ctx context.Context, c *catalog.Catalog, l *Location,
	found mirror.Found) error {
	if !p.covers(found.ID) || isGivenUp(found) {
		return nil
	}
	op, err := c.Operation(ctx, found.ID)
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return err
	}
	if err == nil {
		if ahead, err := isAhead(ctx, c, op, found); err != nil || !ahead {
			return err
		}
	}
	mirrored := mirroredToProto(l, found, time.Now())
	if i := slices.IndexFunc(p.resp.Operations, func(op *mgmtv1.Operation) bool {
		return op.GetId() == mirrored.GetId()
	}); i >= 0 {
		p.resp.Operations[i] = mirrored
		return nil
	}
	if p.list.picks(mirrored) {
		p.resp.Operations = append(p.resp.Operations, mirrored)
	}
	return nil
}

// isGivenUp reports whether an operator has forgotten the operation on the host that wrote its
// newest record: it ended for good with work left. Records of earlier versions say so by their
// state, unless it was a restore that had released nothing.
func isGivenUp(found mirror.Found) bool {
	return found.Problem == nil && found.Head.Final &&
		(found.Head.GivenUp || !catalog.State(found.Head.State).Final())
}

// isAhead reports whether another host has gone on with an operation of this catalog. A record more
// than this host knows of may be its own, written before it died.
func isAhead(ctx context.Context, c *catalog.Catalog, op catalog.Operation, found mirror.Found) (
	bool, error) {
	if op.State == catalog.Running || op.State.Final() {
		return false, nil
	}
	state, err := c.Mirror(ctx, op.ID)
	own := state.Seq
	if state.Next != "" {
		own++
	}
	return found.Seq > own, err
}

// continuedElsewhere returns what the mirror says of an operation of this catalog with which
// another host has gone on, as a list has it; nil when none has, or the store does not answer.
func (s *Server) continuedElsewhere(ctx context.Context, c *catalog.Catalog,
	op catalog.Operation) *mgmtv1.Operation {
	state, err := c.Mirror(ctx, op.ID)
	if err != nil || state.Seq == 0 && state.Next == "" || op.State == catalog.Running ||
		op.State.Final() {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, newestWait)
	defer cancel()
	location, st, err := s.openStoreOf(asking, op, op.Location, nil)
	if err != nil {
		return nil
	}
	found, err := mirror.Newest(asking, st, op.ID)
	if err != nil || isGivenUp(found) {
		return nil
	}
	if ahead, err := isAhead(ctx, c, op, found); err != nil || !ahead {
		return nil
	}
	return mirroredToProto(location, found, time.Now())
}

// silence is how old the newest record of an operation may be that is said to run. A run writes one
// every few seconds while it gets on; it may also wait for a management cluster for minutes.
const silence = time.Minute

// mirroredToProto converts what can be read of a mirror without an identity.
func mirroredToProto(l *Location, found mirror.Found, now time.Time) *mgmtv1.Operation {
	p := &mgmtv1.Operation{Id: string(found.ID), Location: l.Name, Units: map[string]string{},
		Host: found.Head.Host}
	if found.Problem != nil {
		p.Message = "its mirror cannot be read: " + found.Problem.Error()
		return p
	}
	head := found.Head
	p.Kind, p.State, p.Source, p.Target = head.Kind, operationStates[catalog.State(head.State)],
		head.Source, head.Target
	p.UpdateTime, p.Changed = timestamppb.New(head.Time), true
	p.CreateTime = timestamppb.New(found.ID.Time())
	p.Message = fmt.Sprintf("host %s began or continued it; only its mirror in the store has it",
		head.Host)
	if s := catalog.State(head.State); s == catalog.Failed || s == catalog.Stopped {
		p.Message += ", and how its workload clusters stand (look at that host; to go on here, resume it)"
		p.HintKey = string(object.HintResumeWithIdentity)
	}
	if age := now.Sub(head.Time); head.State == string(catalog.Running) && age.Abs() > silence {
		p.State = mgmtv1.OperationState_OPERATION_STATE_UNKNOWN
		p.Message = fmt.Sprintf("host %s wrote the newest record of operation %s %s, %s, and none about "+
			"its end: it may be at work, waiting or lost (look at that host; if it is lost, or has ended "+
			"it and could not write that, resume it)", head.Host, found.ID,
			head.Time.Format(time.RFC3339), ago(age))
		p.HintKey = string(object.HintResumeWithIdentity)
	}
	return p
}

// ago says how long ago something was, by two clocks that may differ.
func ago(age time.Duration) string {
	if age < 0 {
		return (-age).Round(time.Second).String() + " ahead of the clock here"
	}
	return age.Round(time.Second).String() + " ago"
}

// finishMirror writes the end of a final operation, or that it is settled by now, into its mirror
// when that lacks it: the store could not take it at the time. Until then, other hosts see the
// operation as running, and retain its snapshot. Without the keys for it, it does nothing.
func (s *Server) finishMirror(ctx context.Context, c *catalog.Catalog, op catalog.Operation) error {
	state, err := c.Mirror(ctx, op.ID)
	if err != nil || state.Seq == 0 && state.Next == "" {
		return err
	}
	_, st, err := s.openStoreOf(ctx, op, op.Location, nil)
	if err != nil {
		return err
	}
	newest, err := mirror.Newest(ctx, st, op.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && newest.Head.State == string(op.State) &&
		newest.Head.Final == op.Settled() {
		return nil
	}
	err = s.writeMirror(ctx, c, op, st)
	if mirror.IsUnable(err) {
		return nil
	}
	return err
}

// writeMirror writes an operation as it is into its mirror, which may be in a copy.
func (s *Server) writeMirror(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	st *store.Store) error {
	m, err := s.beginMirror(ctx, c, op.ID, mirrorTo{store: st.AsOwnershipHome()})
	if err != nil {
		return err
	}
	return errors.Join(m.mirror.Sync(ctx), m.close(ctx))
}

// snapshotsInUse returns the snapshots of a store that operations may still read, by the id of the
// operation: of this catalog, and of other hosts by their mirrors.
func snapshotsInUse(ctx context.Context, c *catalog.Catalog, st *store.Store) (
	map[string]store.SnapshotID, error) {
	used, err := mirror.InUse(ctx, st)
	if err != nil {
		return nil, err
	}
	own, err := c.SnapshotsInUse(ctx, st.ID())
	maps.Copy(used, own)
	return used, err
}
