package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	// maxSnapshotPage is the largest page, and the size of one that a client leaves to the server.
	maxSnapshotPage = 10_000
	// maxSnapshotBytes ends a page early: clients of gRPC take messages of up to 4 MiB.
	maxSnapshotBytes = 3 << 20
	// listReads is how many envelopes are read at once for a list. A page of a bucket far away takes
	// as many round trips as it has envelopes, divided by this.
	listReads = 64
)

// snapshotList is a request for a page of snapshots.
type snapshotList struct {
	source, scope string
	since         time.Time          // zero: all
	after         *store.EnvelopeKey // the last one of the page before; nil in the first page
	size          int
}

// snapshotListFromProto reads a request. Errors are usage errors.
func snapshotListFromProto(req *mgmtv1.ListSnapshotsRequest) (snapshotList, error) {
	l := snapshotList{source: req.GetSource(), scope: req.GetScope(), size: int(req.GetPageSize())}
	if l.size <= 0 || l.size > maxSnapshotPage {
		l.size = maxSnapshotPage
	}
	if req.GetSince().IsValid() {
		l.since = req.GetSince().AsTime()
	}
	if token := req.GetPageToken(); token != "" {
		after, err := store.ParseEnvelopeKey(token)
		if err != nil {
			return l, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("page token %.120q is of no page",
				token)}
		}
		l.after = &after
	}
	return l, nil
}

// compareListed puts newer snapshots first.
func compareListed(a, b store.EnvelopeKey) int {
	if c := b.Time.Compare(a.Time); c != 0 {
		return c
	}
	return strings.Compare(a.String(), b.String())
}

// listSnapshots returns a page of the snapshots in a store, with what verifies found. The order and
// the time of the list are those in the names of the envelopes, so that only those of the page are
// read, besides those of other sources and scopes before them.
func (s *Server) listSnapshots(ctx context.Context, st *store.Store, l snapshotList) (
	*mgmtv1.ListSnapshotsResponse, error) {
	all, err := st.ListedSnapshots(ctx, "")
	if err != nil || len(all) == 0 {
		return &mgmtv1.ListSnapshotsResponse{}, err
	}
	p := &snapshotPage{s: s, st: st, list: l, resp: &mgmtv1.ListSnapshotsResponse{}}
	if slices.ContainsFunc(all, func(k store.StoredSnapshot) bool {
		return k.Key.Source == l.source
	}) {
		p.uid = l.source
	}
	stored := p.choose(all)
	if err := p.open(ctx, stored); err != nil {
		return nil, err
	}
	for len(stored) > 0 && !p.full {
		left := l.size - len(p.resp.Snapshots)
		if l.scope != "" || l.source != p.uid {
			left = max(left, listReads) // which of them the list picks is seen when they are read
		}
		batch := stored[:min(len(stored), left)]
		stored = stored[len(batch):]
		if err := p.add(ctx, batch, len(stored) > 0); err != nil {
			return nil, err
		}
	}
	if l.source != "" && l.after == nil && len(p.resp.Snapshots) == 0 {
		if _, err := findSource(ctx, st, l.source); err != nil {
			return nil, err // which names the sources that there are
		}
	}
	return p.resp, nil
}

// snapshotPage is a page that is being made.
type snapshotPage struct {
	s             *Server
	st            *store.Store
	list          snapshotList
	uid           string // of the source of the list, when that is one in the store; else empty
	verifications map[string][]store.VerificationKey
	pins          map[store.EnvelopeKey]bool
	resp          *mgmtv1.ListSnapshotsResponse
	bytes         int
	last          string // the key of the snapshot that was added last
	full          bool
}

// choose returns the envelopes that can be in the page, newest first.
func (p *snapshotPage) choose(all []store.StoredSnapshot) []store.StoredSnapshot {
	l := p.list
	stored := slices.DeleteFunc(all, func(k store.StoredSnapshot) bool {
		return p.uid != "" && k.Key.Source != p.uid || k.Key.Time.Before(l.since) ||
			l.after != nil && compareListed(k.Key, *l.after) <= 0
	})
	slices.SortFunc(stored, func(a, b store.StoredSnapshot) int { return compareListed(a.Key, b.Key) })
	return stored
}

// open lists what is known of the snapshots besides their envelopes.
func (p *snapshotPage) open(ctx context.Context, stored []store.StoredSnapshot) error {
	if len(stored) == 0 {
		return nil
	}
	g, gctx := task.WithContext(ctx)
	g.Go(func() (err error) {
		p.verifications, err = p.st.VerificationKeys(gctx, p.uid)
		return err
	})
	g.Go(func() (err error) {
		p.pins, err = p.st.Pins(gctx, p.uid)
		return err
	})
	return g.Wait()
}

// add reads envelopes, and adds those that the list picks until the page is full. more says that
// others follow the batch.
func (p *snapshotPage) add(ctx context.Context, batch []store.StoredSnapshot, more bool) error {
	read := make([]*mgmtv1.Snapshot, len(batch))
	g, gctx := task.WithContext(ctx)
	g.SetLimit(listReads)
	for i, stored := range batch {
		g.Go(func() (err error) {
			read[i], err = p.readOne(gctx, stored)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, snapshot := range read {
		if !p.list.picks(snapshot) {
			continue
		}
		size := proto.Size(snapshot)
		if p.bytes > 0 && p.bytes+size > maxSnapshotBytes {
			p.full, p.resp.NextPageToken = true, p.last
			return nil
		}
		p.resp.Snapshots = append(p.resp.Snapshots, snapshot)
		p.bytes, p.last = p.bytes+size, batch[i].Key.String()
		if len(p.resp.Snapshots) == p.list.size {
			if p.full = true; more || i+1 < len(batch) {
				p.resp.NextPageToken = p.last
			}
			return nil
		}
	}
	return nil
}

// readOne reads one envelope. One that cannot be read is reported as damaged.
func (p *snapshotPage) readOne(ctx context.Context, stored store.StoredSnapshot) (
	*mgmtv1.Snapshot, error) {
	e, err := p.st.GetListed(ctx, stored, p.s.envelopes)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		damaged := damagedToProto(stored.Key, err)
		damaged.Pinned = p.pins[stored.Key]
		return damaged, nil
	}
	snapshot := snapshotToProto(e)
	snapshot.Pinned = p.pins[stored.Key]
	snapshot.Verified, err = p.s.verification(ctx, p.st, e, p.verifications[stored.Key.String()])
	return snapshot, err
}

// picks reports whether a snapshot is of the source and the scope of the list.
func (l snapshotList) picks(p *mgmtv1.Snapshot) bool {
	return (l.scope == "" || inScope(p, l.scope)) &&
		(l.source == "" || p.GetSource() == l.source || p.GetSourceUid() == l.source)
}

// inScope is store.Envelope.InScope.
func inScope(p *mgmtv1.Snapshot, scope string) bool {
	e := store.Envelope{Partial: p.GetScope() != store.ScopeWhole}
	if p.GetScope() != "" {
		e.Scope = &store.Scope{ID: p.GetScope(), Schedule: p.GetSchedule()}
	}
	return e.InScope(scope)
}
