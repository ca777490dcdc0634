//go:build api

package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestAPIRestoreFromACopyWhenTheStoreIsGone: nothing is released from a copy before an operator has
// answered for the ownership records that it lacks, also when everything was restored paused. Then
// the copy has the record and the journal, and an origin that comes back fences nothing by its old
// records.
func TestAPIRestoreFromACopyWhenTheStoreIsGone(t *testing.T) {
	f := newAPIFixture(t, "copied")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	f.snapshot(s)
	origin, err := s.openStore(t.Context(), "", nil)
	must(t, err)
	source, target := servers.Connect(t, 0), servers.Connect(t, 1)
	f.ownedBy(origin, source, units[0], 2)
	copied := f.copyStore(s)
	lost := filepath.Join(f.dir, "store")
	must(t, os.Rename(lost, lost+"-lost"))
	f.loseSource(s)

	run := func(spec *mgmtv1.RestoreSpec, want catalog.State) catalog.Operation {
		t.Helper()
		spec.SourceIsGone = true
		spec.ForceCodes = append(spec.ForceCodes, string(object.CodeSourceSeenRecently))
		started, err := (&restoreService{s: s}).RunRestore(t.Context(),
			&mgmtv1.RunRestoreRequest{Spec: spec, Identity: f.identity()})
		must(t, err)
		return f.await(s, started.GetOperation().GetId(), want)
	}
	refused := func(spec *mgmtv1.RestoreSpec) {
		t.Helper()
		op := run(spec, catalog.Failed)
		if texts := strings.Join(unitFindings(t, s.catalog, op.ID), "; "); op.Changed ||
			!strings.Contains(texts, string(object.CodeOwnershipFromCopy)) {
			t.Errorf("changed %v: %s; %s", op.Changed, op.Message, texts)
		}
	}
	everything := func(noRelease bool) *mgmtv1.RestoreSpec {
		return &mgmtv1.RestoreSpec{Location: "offsite", Snapshot: latest, NoRelease: noRelease,
			Target:    servers.Options(1).Name,
			Selection: &mgmtv1.Selection{Namespaces: []string{f.namespace}}}
	}
	refused(everything(false))
	if f.cluster(1, units[0]) != nil {
		t.Error("a refused restore has created something")
	}
	paused := run(everything(true), catalog.Succeeded)
	_, err = (&operationService{s: s}).RollbackOperation(t.Context(),
		&mgmtv1.RollbackOperationRequest{Id: string(paused.ID)})
	must(t, err)
	f.await(s, string(paused.ID), catalog.RolledBack)

	paused = run(everything(true), catalog.Succeeded)
	f.assertCopyKnowsNoOwners(s)
	refused(&mgmtv1.RestoreSpec{ReleaseOf: string(paused.ID)})
	if !isPaused(f.cluster(1, units[0])) {
		t.Error("a refused release has released something")
	}
	op := run(&mgmtv1.RestoreSpec{ReleaseOf: string(paused.ID),
		ForceCodes: []string{string(object.CodeOwnershipFromCopy)}}, catalog.Succeeded)
	f.assertReleasedFromCopy(copied, origin.ID(), op)

	must(t, os.Rename(lost+"-lost", lost))
	if lost := f.lost(s, target, origin); len(lost) > 0 {
		t.Errorf("the origin that came back fences %v on the target", lost)
	}
	if lost := f.lost(s, source, copied); len(lost) != len(units) {
		t.Errorf("by the records of the copy the source that comes back has lost %v", lost)
	}
	// One that came back to the source by a later record of the origin is not lost by the copy's.
	kinds, err := source.Reader().Kinds(t.Context())
	must(t, err)
	k, _ := kube.FindKind(kinds, capi.Cluster)
	must(t, kube.Retry(t.Context(), func() error {
		live := f.cluster(0, units[1])
		capi.Annotate(live.Object, capi.AnnotationEpoch, ownership.EpochMark(origin.ID(), 7))
		_, err := source.Writer().Update(t.Context(), k, live)
		return err
	}))
	if lost := f.lost(s, source, copied); len(lost) != len(units)-1 {
		t.Errorf("what came back later is lost by the records of the copy: %v", lost)
	}
}

// assertCopyKnowsNoOwners asserts that a copy does not say who owns what: neither to a rollback
// from marks, nor to a fence by records, nor to a check of a management cluster.
func (f *apiFixture) assertCopyKnowsNoOwners(s *Server) {
	f.t.Helper()
	marks, err := (&restoreService{s: s}).PlanRollbackFromMarks(f.t.Context(),
		&mgmtv1.PlanRollbackFromMarksRequest{Spec: &mgmtv1.MarksSpec{Location: "offsite",
			Target:    servers.Options(1).Name,
			Selection: &mgmtv1.Selection{Namespaces: []string{f.namespace}}}})
	must(f.t, err)
	mgmts := &mgmtService{s: s}
	fenced, err := mgmts.FenceMgmt(f.t.Context(), &mgmtv1.FenceMgmtRequest{
		Name: servers.Options(1).Name, Location: "offsite", DryRun: true})
	must(f.t, err)
	checked, err := mgmts.CheckMgmt(f.t.Context(), &mgmtv1.CheckMgmtRequest{
		Name: servers.Options(1).Name, Location: "offsite"})
	must(f.t, err)
	for code, findings := range map[object.Code][]*mgmtv1.Finding{
		object.CodeOwnersUnread:      marks.GetFindings(),
		object.CodeOwnershipFromCopy: fenced.GetFindings(),
	} {
		if !hasCode(findings, code) {
			f.t.Errorf("no %s: %v", code, findings)
		}
	}
	if !hasCode(checked.GetFindings(), object.CodeOwnershipFromCopy) {
		f.t.Errorf("the check of a management cluster: %v", checked.GetFindings())
	}
}

func hasCode(findings []*mgmtv1.Finding, code object.Code) bool {
	return slices.ContainsFunc(findings, func(f *mgmtv1.Finding) bool {
		return f.GetCode() == string(code)
	})
}

// ownedBy writes records up to an epoch by which a management cluster owns a workload cluster.
func (f *apiFixture) ownedBy(st *store.Store, m *kube.Mgmt, unit string, epoch int64) {
	f.t.Helper()
	side := object.Side{Name: m.Name(), UID: m.UID()}
	for n := range epoch {
		must(f.t, ownership.Claim(f.t.Context(), st, ownership.Request{WorkloadID: f.ids[unit],
			Workload: f.namespace + "/" + unit, Operation: "0123456789a" + string(rune('0'+n)),
			From: side, To: side, Epoch: n}))
	}
}

// copyStore copies the store to the location "offsite", which it adds to the daemon.
func (f *apiFixture) copyStore(s *Server) *store.Store {
	f.t.Helper()
	offsite := s.cfg.Locations[0]
	offsite.Name, offsite.Default = "offsite", false
	offsite.Store.URL = "file://" + filepath.Join(f.dir, "offsite")
	s.cfg.Locations = append(s.cfg.Locations, offsite)
	run, err := s.beginCopy(f.t.Context(), copyRequest{to: "offsite"})
	must(f.t, err)
	must(f.t, run.Wait())
	copied, err := s.openStore(f.t.Context(), "offsite", nil)
	must(f.t, err)
	return copied
}

// assertReleasedFromCopy asserts what an operation that released everything has left in the copy
// and on the target: the first unit had epoch 2 in the origin, the others had no record.
func (f *apiFixture) assertReleasedFromCopy(copied *store.Store, origin string,
	op catalog.Operation) {
	f.t.Helper()
	for i, unit := range units {
		record, err := copied.GetOwner(f.t.Context(), f.ids[unit])
		must(f.t, err)
		want := map[bool]int64{true: 3, false: 1}[i == 0]
		if record.Owner.Owner.UID != op.Target.UID || record.Epoch != want ||
			record.Operation != string(op.ID) || !copied.Vouches(record) {
			f.t.Errorf("%s: record %+v", unit, record)
		}
		live := f.cluster(1, unit)
		if mark := live.GetAnnotations()[capi.AnnotationEpoch]; isPaused(live) ||
			mark != ownership.EpochMark(origin, want) {
			f.t.Errorf("%s is paused, or has mark %q", unit, mark)
		}
	}
	mirrored, err := mirror.List(f.t.Context(), copied)
	must(f.t, err)
	for _, found := range mirrored {
		if found.ID == op.ID && found.Head.Final {
			return
		}
	}
	f.t.Errorf("operation %s has no mirror in the copy that has ended: %+v", op.ID, mirrored)
}

// lost returns the workload clusters that a management cluster has lost by the records of a store.
func (f *apiFixture) lost(s *Server, m *kube.Mgmt, st *store.Store) (names []string) {
	f.t.Helper()
	fencing, err := s.newFencing(f.t.Context(), m)
	must(f.t, err)
	owners, err := readOwnersIn(f.t.Context(), st, m)
	must(f.t, err)
	lost, _ := owners.Lost(fencing.clusters)
	for _, c := range lost {
		if c.Namespace == f.namespace {
			names = append(names, c.Name)
		}
	}
	return names
}
