package service

import (
	"context"
	"net/url"

	"github.com/mgmtd/mgmtd/internal/catalog"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// ListLocations implements the API.
func (s *storeService) ListLocations(ctx context.Context, _ *mgmtv1.ListLocationsRequest) (
	*mgmtv1.ListLocationsResponse, error) {
	resp := &mgmtv1.ListLocationsResponse{}
	if len(s.s.cfg.Locations) == 0 {
		return resp, nil
	}
	locations, err := s.s.locations("")
	if err != nil {
		return nil, err
	}
	byName := map[string]*mgmtv1.Location{}
	for _, l := range locations {
		p := &mgmtv1.Location{Name: l.Name, Place: l.Store.place(), Default: l.Default,
			ReadOnly: l.Store.ReadOnly, CopyTo: l.CopyTo, CopyBehind: -1}
		byName[l.Name], resp.Locations = p, append(resp.Locations, p)
	}
	for _, p := range resp.GetLocations() {
		if to := byName[p.GetCopyTo()]; to != nil {
			to.CopyOf = p.GetName()
		}
	}
	return resp, s.addCopies(ctx, byName)
}

// place is where a store is, without how it is reached.
func (o *StoreOptions) place() string {
	if o.S3 == nil {
		return o.URL
	}
	return (&url.URL{Scheme: "s3", Host: o.S3.Bucket, Path: "/" + o.S3.Prefix}).String()
}

// addCopies adds what the catalog has of the last copies. Standalone it is not that of the daemon,
// and has nothing.
func (s *storeService) addCopies(ctx context.Context, locations map[string]*mgmtv1.Location) error {
	if !s.s.cfg.Daemon {
		return nil
	}
	c, err := s.s.openCatalog(ctx)
	if err != nil {
		return err
	}
	ops, err := c.Operations(ctx, catalog.OperationFilter{Kinds: []catalog.Kind{catalog.KindCopy},
		Limit: copyHistory})
	for _, op := range ops { // newest first
		if op.Copy == nil {
			continue
		}
		p := locations[op.Copy.Location]
		if p == nil || p.GetCopyOf() != op.Location {
			continue
		}
		if p.GetCopyOperation() == "" {
			p.CopyOperation, p.CopyError = string(op.ID), op.Message
		}
		if p.GetCopyBehind() < 0 {
			p.CopyBehind = int64(op.Copy.Behind)
		}
		if op.State == catalog.Succeeded && p.GetCopySuccessTime() == nil {
			p.CopySuccessTime = timeToProto(op.Created)
		}
	}
	return err
}
