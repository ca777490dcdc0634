package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
	"github.com/mgmtd/mgmtd/internal/verify"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type catalogService struct {
	mgmtv1.UnimplementedCatalogServiceServer
	s *Server
}

// envelopeReads is how many envelopes are read at once: each is a request of a few kilobytes.
const envelopeReads = 8

// RebuildCatalog implements the API.
func (s *catalogService) RebuildCatalog(ctx context.Context, req *mgmtv1.RebuildCatalogRequest) (
	*mgmtv1.RebuildCatalogResponse, error) {
	locations, err := s.s.locations(req.GetLocation())
	if err != nil {
		return nil, err
	}
	c, err := s.s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.RebuildCatalogResponse{}
	for _, l := range locations {
		rebuilt, err := s.s.rebuild(ctx, c, l)
		if err == nil {
			err = s.s.importMirrored(ctx, c, l, req.GetIdentity(), rebuilt)
		}
		if err != nil {
			return nil, err
		}
		resp.Locations = append(resp.Locations, rebuilt)
	}
	return resp, nil
}

// maxProblems limits an answer: one damaged page may make thousands of sentences.
const maxProblems = 1000

// CheckCatalog implements the API. Standalone it opens the file for reading only.
func (s *catalogService) CheckCatalog(ctx context.Context, _ *mgmtv1.CheckCatalogRequest) (
	*mgmtv1.CheckCatalogResponse, error) {
	var report catalog.Report
	var err error
	if s.s.cfg.Daemon {
		var c *catalog.Catalog
		if c, err = s.s.openCatalog(ctx); err == nil {
			report, err = c.Report(ctx)
		}
	} else {
		report, err = catalog.CheckFile(ctx, s.s.cfg.CatalogFile)
	}
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.CheckCatalogResponse{Path: report.Path, Size: report.Size, Free: report.Free,
		Schema: int32(report.Schema), Operations: int64(report.Operations),
		Snapshots: int64(report.Snapshots), Unfinished: report.Unfinished}
	for _, problem := range report.Problems[:min(maxProblems, len(report.Problems))] {
		resp.Problems = append(resp.Problems, strings.ToValidUTF8(problem.Error(), "\uFFFD"))
	}
	return resp, nil
}

// locations returns the location of this name; without a name all of them, by name.
func (s *Server) locations(name string) ([]*Location, error) {
	if name != "" || len(s.cfg.Locations) == 0 {
		l, err := s.location(name)
		return []*Location{l}, err
	}
	var all []*Location
	for i := range s.cfg.Locations {
		all = append(all, &s.cfg.Locations[i])
	}
	slices.SortFunc(all, func(a, b *Location) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// rebuild makes the index of one location from scratch, from its envelopes and the results of
// verifies. What cannot be read is reported and not indexed.
func (s *Server) rebuild(ctx context.Context, c *catalog.Catalog, l *Location) (
	*mgmtv1.RebuiltLocation, error) {
	st, err := s.openAnyStore(ctx, l, nil, false)
	if err == nil {
		err = s.rememberPlace(ctx, c, st)
	}
	if err != nil {
		return nil, err
	}
	found, err := readRecords(ctx, st)
	if err != nil {
		return nil, err
	}
	added, dropped, err := c.ReplaceSnapshots(ctx, st.ID(), found.records)
	if err != nil {
		return nil, err
	}
	slices.Sort(found.damaged)
	return &mgmtv1.RebuiltLocation{Location: l.Name, Snapshots: int64(len(found.records)),
		Added: int64(added), Dropped: int64(dropped), Damaged: found.damaged}, nil
}

// importMirrored imports the operations of a location that the catalog does not have. Those of
// other hosts come in as stopped, and only an operator resumes them.
func (s *Server) importMirrored(ctx context.Context, c *catalog.Catalog, l *Location,
	identity []byte, rebuilt *mgmtv1.RebuiltLocation) error {
	st, err := s.openLocation(ctx, l, identity, false)
	if err != nil {
		return err
	}
	list, err := mirror.List(ctx, st)
	if err != nil {
		return err
	}
	for _, found := range list {
		if isGivenUp(found) {
			continue
		}
		_, err := c.Operation(ctx, found.ID)
		if !errors.Is(err, catalog.ErrNotFound) {
			if err != nil {
				return err
			}
			continue
		}
		switch {
		case found.Problem != nil:
			err = found.Problem
		case st.Encrypted() && len(identity) == 0:
			rebuilt.NeedIdentity = append(rebuilt.NeedIdentity, string(found.ID))
			continue
		default:
			_, err = mirror.Import(ctx, c, st, l.Name, found.ID)
		}
		if err != nil && !ofOneRecord(ctx, err) {
			return err
		}
		if err != nil {
			rebuilt.Damaged = append(rebuilt.Damaged, "operation "+string(found.ID)+": "+err.Error())
			continue
		}
		rebuilt.Imported = append(rebuilt.Imported, string(found.ID))
	}
	return nil
}

// ofOneRecord reports whether err is about one record of a store that somebody wrote, or that the
// storage does not give. Others can be read.
func ofOneRecord(ctx context.Context, err error) bool {
	return store.IsUnusable(err) || as[*store.KeyError](err) || as[*store.TrustError](err) ||
		as[*store.BucketError](err) && store.OfStore(ctx, err) == nil
}

// storedRecords are the index records of the snapshots in a store.
type storedRecords struct {
	mu       sync.Mutex
	records  []catalog.SnapshotRecord
	damaged  []string // what could not be read, and why
	notGiven error    // the storage does not give an envelope
}

func readRecords(ctx context.Context, st *store.Store) (*storedRecords, error) {
	keys, err := st.Snapshots(ctx, "")
	if err != nil {
		return nil, err
	}
	verifications, err := st.VerificationKeys(ctx, "")
	if err != nil {
		return nil, err
	}
	found := &storedRecords{}
	g, ctx := task.WithContext(ctx)
	g.SetLimit(envelopeReads)
	for _, key := range keys {
		g.Go(func() error { return found.read(ctx, st, key, verifications[key.String()]) })
	}
	err = g.Wait()
	if err == nil && len(found.records) == 0 {
		err = found.notGiven // to forget all that is known would hide that they are there
	}
	return found, err
}

// read adds the record of one snapshot, or what is damaged of it.
func (f *storedRecords) read(ctx context.Context, st *store.Store, key store.EnvelopeKey,
	verifications []store.VerificationKey) error {
	e, err := st.GetEnvelope(ctx, key)
	var known verify.Known
	if err == nil {
		known, err = verify.LookupStore(ctx, st, e, verifications)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		r := catalog.RecordOf(e)
		r.Verified = known.Verification
		f.records = append(f.records, r)
		for _, err := range known.Damaged {
			f.damaged = append(f.damaged, "result of a verify: "+err.Error())
		}
	case errors.Is(err, store.ErrNotFound): // deleted since it was listed
	case store.OfStore(ctx, err) != nil:
		return err
	default:
		f.damaged = append(f.damaged, key.String()+": "+err.Error())
		if !store.IsUnusable(err) {
			f.notGiven = err
		}
	}
	return nil
}
