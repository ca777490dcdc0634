package service

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// checkLevels are the levels of the API; one that is left out is the one that needs no identity.
var checkLevels = map[mgmtv1.VerifyLevel]store.VerifyLevel{
	mgmtv1.VerifyLevel_VERIFY_LEVEL_UNSPECIFIED: store.LevelStructure,
	mgmtv1.VerifyLevel_VERIFY_LEVEL_STRUCTURE:   store.LevelStructure,
	mgmtv1.VerifyLevel_VERIFY_LEVEL_SAMPLE:      store.LevelSample,
	mgmtv1.VerifyLevel_VERIFY_LEVEL_FULL:        store.LevelFull,
}

var levelsToProto = map[store.VerifyLevel]mgmtv1.VerifyLevel{
	store.LevelStructure: mgmtv1.VerifyLevel_VERIFY_LEVEL_STRUCTURE,
	store.LevelSample:    mgmtv1.VerifyLevel_VERIFY_LEVEL_SAMPLE,
	store.LevelFull:      mgmtv1.VerifyLevel_VERIFY_LEVEL_FULL,
}

// recorded is what the store's records of these keys say of a snapshot: nil when none counts.
// untrusted says that there are some; damaged are those that cannot be read.
func recorded(ctx context.Context, st *store.Store, e store.Signed, keys []store.VerificationKey) (
	v *catalog.Verification, untrusted bool, damaged []error, err error) {
	checks, damaged, err := st.ReadVerifications(ctx, keys)
	if err != nil {
		return nil, false, nil, err
	}
	if c, ok := st.DecidingVerification(e, checks); ok {
		return &catalog.Verification{Time: c.Time, Level: c.Level, OK: c.Outcome == store.OutcomeOK},
			false,
			damaged, nil
	}
	return nil, len(checks) > 0, damaged, nil
}

// verified is what is known of a snapshot: from the store, and from the catalog where it is open,
// for a store that takes no records.
func (s *Server) verified(ctx context.Context, st *store.Store, e store.Signed,
	keys []store.VerificationKey) (*mgmtv1.Verification, error) {
	v, untrusted, _, err := recorded(ctx, st, e, keys)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	c := s.catalog
	s.mu.Unlock()
	if c != nil {
		r, err := c.GetSnapshot(ctx, string(e.ID), catalog.SnapshotFilter{StoreID: st.ID(),
			Source: e.Source.UID})
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			return nil, err
		}
		v = catalog.LaterVerification(v, r.Verified)
	}
	switch {
	case v == nil && untrusted:
		return &mgmtv1.Verification{Result: mgmtv1.VerifyResult_VERIFY_RESULT_UNTRUSTED}, nil
	case v == nil:
		return nil, nil
	}
	p := &mgmtv1.Verification{Time: timestamppb.New(v.Time), Level: levelsToProto[v.Level],
		Result: mgmtv1.VerifyResult_VERIFY_RESULT_OK}
	if !v.OK {
		p.Result = mgmtv1.VerifyResult_VERIFY_RESULT_DAMAGED
	}
	return p, nil
}
