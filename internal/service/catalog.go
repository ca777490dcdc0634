package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type catalogService struct {
	mgmtv1.UnimplementedCatalogServiceServer
	s *Server
}

// envelopeReads is how many envelopes are read at once: each is a request of a few kilobytes.
const envelopeReads = 8

func (s *catalogService) RebuildCatalog(ctx context.Context, req *mgmtv1.RebuildCatalogRequest) (
	*mgmtv1.RebuildCatalogResponse, error) {
	var locations []*Location
	for i := range s.s.cfg.Locations {
		locations = append(locations, &s.s.cfg.Locations[i])
	}
	if name := req.GetLocation(); name != "" || len(locations) == 0 {
		l, err := s.s.location(name)
		if err != nil {
			return nil, err
		}
		locations = []*Location{l}
	}
	slices.SortFunc(locations, func(a, b *Location) int { return cmp.Compare(a.Name, b.Name) })
	c, err := s.s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.RebuildCatalogResponse{}
	for _, l := range locations {
		rebuilt, err := s.s.rebuild(ctx, c, l)
		if err != nil {
			return nil, err
		}
		resp.Locations = append(resp.Locations, rebuilt)
	}
	return resp, nil
}

// rebuild makes the index of one location anew from its envelopes and the results of verifies. What
// cannot be read is reported, and is not in the index.
func (s *Server) rebuild(ctx context.Context, c *catalog.Catalog, l *Location) (
	*mgmtv1.RebuiltLocation, error) {
	st, err := s.openLocation(ctx, l, nil, false)
	if err != nil {
		return nil, err
	}
	keys, err := st.Snapshots(ctx, "")
	if err != nil {
		return nil, err
	}
	checks, err := st.VerificationKeys(ctx, "")
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var records []catalog.SnapshotRecord
	rebuilt := &mgmtv1.RebuiltLocation{Location: l.Name}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(envelopeReads)
	for _, key := range keys {
		g.Go(func() error {
			e, err := st.GetEnvelope(gctx, key)
			var known verify.Known
			if err == nil {
				known, err = verify.LookupStore(gctx, st, e, checks[key.String()])
			}
			if gctx.Err() != nil {
				return gctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r := catalog.RecordOf(e)
				r.Verified = known.Verification
				records = append(records, r)
				for _, err := range known.Damaged {
					rebuilt.Damaged = append(rebuilt.Damaged, "result of a verify: "+err.Error())
				}
			case errors.Is(err, store.ErrNotFound): // deleted since it was listed
			case store.IsUnusable(err):
				rebuilt.Damaged = append(rebuilt.Damaged, key.String()+": "+err.Error())
			default:
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	added, dropped, err := c.ReplaceSnapshots(ctx, st.ID(), records)
	if err != nil {
		return nil, err
	}
	slices.Sort(rebuilt.Damaged)
	rebuilt.Snapshots, rebuilt.Added, rebuilt.Dropped = int64(len(records)), int64(added),
		int64(dropped)
	return rebuilt, nil
}
