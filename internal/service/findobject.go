package service

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

var histories = map[snapshot.History]mgmtv1.ObjectHistory{
	snapshot.Oldest:      mgmtv1.ObjectHistory_OBJECT_HISTORY_OLDEST,
	snapshot.Appeared:    mgmtv1.ObjectHistory_OBJECT_HISTORY_APPEARED,
	snapshot.Same:        mgmtv1.ObjectHistory_OBJECT_HISTORY_SAME,
	snapshot.Rewritten:   mgmtv1.ObjectHistory_OBJECT_HISTORY_CHANGED,
	snapshot.Recreated:   mgmtv1.ObjectHistory_OBJECT_HISTORY_REPLACED,
	snapshot.Disappeared: mgmtv1.ObjectHistory_OBJECT_HISTORY_DISAPPEARED,
}

// FindObject implements the API.
func (s *snapshotService) FindObject(req *mgmtv1.FindObjectRequest,
	stream grpc.ServerStreamingServer[mgmtv1.FindObjectResponse]) error {
	ctx := stream.Context()
	kind, err := kindFromProto(req.GetKind())
	if err != nil {
		return err
	}
	if req.GetName() == "" {
		return &Error{Reason: ReasonUsage, Message: "an object is named by its name"}
	}
	st, err := s.s.openStore(ctx, req.GetLocation(), req.GetIdentity())
	if err != nil {
		return err
	}
	uid, err := findSource(ctx, st, req.GetSource())
	if err != nil {
		return err
	}
	f := &finding{store: st, kind: kind, changes: req.GetChanges(),
		key: object.Key{Namespace: req.GetNamespace(), Name: req.GetName()}}
	if err := f.search(ctx, uid); err != nil {
		return err
	}
	for _, piece := range append(f.sorted(), f.problems...) {
		if err := stream.Send(piece); err != nil {
			return err
		}
	}
	return nil
}

// finding is the search for an object in all snapshots of a source.
type finding struct {
	store   *store.Store
	kind    snapshot.KindName
	key     object.Key
	changes bool

	searched, held int // snapshots
	noIdentity     error
	pieces         []*mgmtv1.FindObjectResponse
	problems       []*mgmtv1.FindObjectResponse
}

// search searches the snapshots of a source, scope by scope: whether an object is missing can be
// said only by a snapshot that was asked to hold it.
func (f *finding) search(ctx context.Context, source string) error {
	byScope, err := f.envelopes(ctx, source)
	if err != nil {
		return err
	}
	for _, scope := range slices.Sorted(maps.Keys(byScope)) {
		if err := f.searchScope(ctx, byScope[scope]); err != nil {
			return err
		}
	}
	switch {
	case f.searched == 0 && f.noIdentity != nil:
		return f.noIdentity
	case f.held == 0 && len(f.problems) == 0:
		return &Error{Reason: ReasonNotFound, Message: "no snapshot holds an object of that kind " +
			"and name", Hint: "list what a snapshot holds", HintKey: object.HintAnySnapshot}
	}
	return nil
}

// envelopes reads the envelopes of a source, and returns those of each scope, oldest first.
func (f *finding) envelopes(ctx context.Context, source string) (map[string][]store.Signed, error) {
	keys, err := f.store.Snapshots(ctx, source)
	if err != nil {
		return nil, err
	}
	list, errs := make([]store.Signed, len(keys)), make([]error, len(keys))
	g, gctx := task.WithContext(ctx)
	g.SetLimit(envelopeReads)
	for i, key := range keys {
		g.Go(func() error {
			list[i], errs[i] = f.store.GetEnvelope(gctx, key)
			if errs[i] == nil {
				errs[i] = mayRead(f.store, list[i])
			}
			return gctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	byScope := map[string][]store.Signed{}
	for i, e := range list {
		if errs[i] != nil {
			f.problem(damagedToProto(keys[i], errs[i]), errs[i])
			continue
		}
		byScope[e.ScopeID()] = append(byScope[e.ScopeID()], e)
	}
	for _, snapshots := range byScope {
		slices.SortFunc(snapshots, func(a, b store.Signed) int {
			return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), strings.Compare(a.Key().String(),
				b.Key().String()))
		})
	}
	return byScope, nil
}

func (f *finding) problem(p *mgmtv1.Snapshot, err error) {
	f.problems = append(f.problems, &mgmtv1.FindObjectResponse{Snapshot: p, Problem: err.Error()})
}

// searchScope searches the snapshots of one scope, oldest first.
func (f *finding) searchScope(ctx context.Context, snapshots []store.Signed) error {
	finder := snapshot.NewFinder(f.store, f.kind, f.key)
	was, first := map[object.Ref]*snapshot.Found{}, true
	for _, e := range snapshots {
		found, err := finder.Find(ctx, e.Envelope)
		if err != nil {
			if err := f.unlessOfOne(ctx, e, err); err != nil {
				return err
			}
			continue
		}
		f.searched++
		is := map[object.Ref]*snapshot.Found{}
		for i := range found {
			is[found[i].Ref] = &found[i]
		}
		for ref := range both(was, is) {
			if e.ScopeID() == "" && is[ref] == nil {
				is[ref] = was[ref] // an earlier version did not record what it was asked to hold
				continue
			}
			f.add(e, ref, was[ref], is[ref], first)
		}
		was, first = is, false
	}
	return nil
}

// both returns the refs of two snapshots.
func both(a, b map[object.Ref]*snapshot.Found) map[object.Ref]bool {
	refs := map[object.Ref]bool{}
	for ref := range a {
		refs[ref] = true
	}
	for ref := range b {
		refs[ref] = true
	}
	return refs
}

// unlessOfOne notes an error about one snapshot, and returns any other.
func (f *finding) unlessOfOne(ctx context.Context, e store.Signed, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case as[*store.KeyError](err):
		f.noIdentity = cmp.Or(f.noIdentity, err)
	case !store.IsMissing(err) && !store.IsUnusable(err):
		return err
	}
	f.problem(snapshotToProto(e), err)
	return nil
}

// add adds what became of an object, unless nothing did and only changes are wanted.
func (f *finding) add(e store.Signed, ref object.Ref, was, is *snapshot.Found, first bool) {
	history := snapshot.Next(was, is, first)
	if history == "" {
		return
	}
	f.held++
	if history == snapshot.Same && f.changes {
		return
	}
	p := &mgmtv1.ListObjectsResponse{Ref: refToProto(ref)}
	if is != nil && is.Omitted {
		p.Unit, p.Omitted = is.Unit, true
	} else if is != nil {
		p = objectToProto(is.Node)
		p.Unit = is.Unit
	}
	f.pieces = append(f.pieces, &mgmtv1.FindObjectResponse{Snapshot: snapshotToProto(e), Object: p,
		History: histories[history]})
}

// sorted returns the pieces by ref, newest first.
func (f *finding) sorted() []*mgmtv1.FindObjectResponse {
	slices.SortStableFunc(f.pieces, func(a, b *mgmtv1.FindObjectResponse) int {
		return cmp.Or(object.CompareRefs(protoRef(a), protoRef(b)),
			cmp.Compare(b.GetSnapshot().GetSequence(), a.GetSnapshot().GetSequence()),
			strings.Compare(b.GetSnapshot().GetKey(), a.GetSnapshot().GetKey()))
	})
	return f.pieces
}

func protoRef(p *mgmtv1.FindObjectResponse) object.Ref {
	r := p.GetObject().GetRef()
	return object.Ref{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(),
		Name: r.GetName()}
}
