package service

import (
	"context"
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// CheckKeys implements the API.
func (s *storeService) CheckKeys(ctx context.Context, req *mgmtv1.CheckKeysRequest) (
	*mgmtv1.CheckKeysResponse, error) {
	st, err := s.s.openStore(ctx, req.GetLocation(), req.GetIdentity())
	if err != nil {
		return nil, err
	}
	if st.Encrypted() && len(req.GetIdentity()) == 0 {
		return nil, &Error{Reason: ReasonIdentity, Message: "there is no identity to check",
			Hint: "give one", HintKey: object.HintIdentity}
	}
	snapshots, passed, err := toCheck(ctx, st, req)
	if err != nil {
		return nil, err
	}
	checked, findings, err := verify.CheckKeys(ctx, st, snapshots)
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.CheckKeysResponse{Encrypted: st.Encrypted(), Identities: st.Identities(),
		Recipients: st.Recipients()}
	for _, c := range checked {
		resp.Snapshots = append(resp.Snapshots, &mgmtv1.CheckedSnapshot{
			Snapshot: snapshotToProto(c.Snapshot), Opens: c.Opens})
	}
	for _, f := range append(findings, passed...) {
		resp.Findings = append(resp.Findings, findingToProto(f))
	}
	return resp, nil
}

// toCheck returns the snapshot that a request names; else the newest of each source and scope. The
// findings are about envelopes that did not count.
func toCheck(ctx context.Context, st *store.Store, req *mgmtv1.CheckKeysRequest) ([]store.Signed,
	[]object.Finding, error) {
	if req.GetId() != "" {
		e, passed, err := findSnapshot(ctx, st, snapshotRef{source: req.GetSource(), ref: req.GetId(),
			scope: req.GetScope()})
		return []store.Signed{e}, passedOver(passed, object.Error), err
	}
	sources, err := sourcesOf(ctx, st, req.GetSource())
	if err != nil {
		return nil, nil, err
	}
	var all []store.Signed
	var findings []object.Finding
	for _, source := range sources {
		var list []store.Signed
		passed := source.Passed
		if counts(source) {
			if list, passed, err = st.NewestOfScopes(ctx, source.UID); err != nil {
				return nil, nil, err
			}
		}
		f := passedOver(passed, object.Error)
		if len(list) == 0 && len(f) > 0 { // nothing of this source can be restored
			f[0].Severity = object.Error
			if as[*store.TrustError](passed[len(passed)-1].Err) {
				f[0].Code = object.CodeSignature
			}
		}
		all, findings = append(all, list...), append(findings, f...)
	}
	return all, findings, nil
}

// sourcesOf returns the source with a name or UID; without a name all sources.
func sourcesOf(ctx context.Context, st *store.Store, name string) ([]store.FoundSource, error) {
	sources, _, err := st.SearchSources(ctx)
	if err != nil || name == "" && len(sources) > 0 {
		return sources, err
	}
	uid, err := findSource(ctx, st, name) // says that there are none
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(sources, func(f store.FoundSource) bool { return f.UID == uid })
	if i < 0 { // one that was not read
		e, passed, err := st.Newest(ctx, uid, store.Which{})
		return []store.FoundSource{{UID: uid, Snapshot: e, Passed: passed}}, err
	}
	return sources[i : i+1], nil
}
