package service

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// verifyLevels are the levels of the API. The default is the one that needs no identity.
var verifyLevels = map[mgmtv1.VerifyLevel]store.VerifyLevel{
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

// verification returns what is known about a snapshot: from the results in the store, and from the
// catalog where it is open.
func (s *Server) verification(ctx context.Context, st *store.Store, e store.Signed,
	keys []store.VerificationKey) (*mgmtv1.Verification, error) {
	s.mu.Lock()
	c := s.catalog
	s.mu.Unlock()
	known, err := verify.Lookup(ctx, c, st, e, keys)
	return verificationToProto(known), err
}

func verificationToProto(known verify.Known) *mgmtv1.Verification {
	v := known.Verification
	switch {
	case v == nil && known.Untrusted:
		return &mgmtv1.Verification{Result: mgmtv1.VerifyResult_VERIFY_RESULT_UNTRUSTED}
	case v == nil:
		return nil
	}
	p := &mgmtv1.Verification{Time: timestamppb.New(v.Time), Level: levelsToProto[v.Level],
		Result: mgmtv1.VerifyResult_VERIFY_RESULT_OK}
	if !v.OK {
		p.Result = mgmtv1.VerifyResult_VERIFY_RESULT_DAMAGED
	}
	return p
}
