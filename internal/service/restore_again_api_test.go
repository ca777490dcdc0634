//go:build api

package service

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestAPIRestoreAgainIntoTheSameTarget: after a restore of one workload cluster, a second one of
// the whole namespace adopts it and restores the others, although the ownership record names the
// target by then.
func TestAPIRestoreAgainIntoTheSameTarget(t *testing.T) {
	f := newAPIFixture(t, "again")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	f.snapshot(s)
	target := servers.Connect(t, 1).UID()
	for i, selection := range []*mgmtv1.Selection{
		{Workloads: []string{f.namespace + "/" + units[0]}},
		{Namespaces: []string{f.namespace}},
		{Namespaces: []string{f.namespace}},
	} {
		id := f.restore(s, selection)
		f.await(s, id, catalog.Succeeded)
		for _, unit := range units[:1+min(i, 1)*2] {
			if record := f.owner(s, unit); record.Owner.Owner.UID != target || record.Operation != id {
				t.Errorf("restore %d: the record of %s names %s and operation %s, want %s and %s", i+1, unit,
					record.Owner.Owner.UID, record.Operation, target, id)
			}
		}
	}
}

// TestAPIReleaseAfterARestoreWithoutRelease: everything is paused on the target until it is
// released, which needs the word of the operator that the source is gone; then the records name
// the target.
func TestAPIReleaseAfterARestoreWithoutRelease(t *testing.T) {
	f := newAPIFixture(t, "release")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	f.snapshot(s)
	run := func(spec *mgmtv1.RestoreSpec, want catalog.State) string {
		t.Helper()
		started, err := (&restoreService{s: s}).RunRestore(t.Context(),
			&mgmtv1.RunRestoreRequest{Spec: spec, Identity: f.identity()})
		must(t, err)
		f.await(s, started.GetOperation().GetId(), want)
		return started.GetOperation().GetId()
	}
	rollBack := func(id string, want catalog.State) {
		t.Helper()
		_, err := (&operationService{s: s}).RollbackOperation(t.Context(),
			&mgmtv1.RollbackOperationRequest{Id: id})
		must(t, err)
		f.await(s, id, want)
	}
	everything := &mgmtv1.RestoreSpec{Snapshot: latest, Target: servers.Options(1).Name,
		NoRelease: true, Selection: &mgmtv1.Selection{Namespaces: []string{f.namespace}}}
	rollBack(run(everything, catalog.Succeeded), catalog.RolledBack)
	for _, unit := range units {
		if f.cluster(1, unit) != nil {
			t.Errorf("%s is on the target after the rollback", unit)
		}
	}
	f.assertInUse(s, "")
	paused := run(everything, catalog.Succeeded)
	f.assertInUse(s, paused)
	run(&mgmtv1.RestoreSpec{ReleaseOf: paused}, catalog.Failed)
	for _, unit := range units {
		if !isPaused(f.cluster(1, unit)) {
			t.Errorf("%s is released", unit)
		}
	}
	gone := &mgmtv1.RestoreSpec{ReleaseOf: paused, SourceIsGone: true,
		ForceCodes: []string{string(object.CodeSourceSeenRecently)}}
	run(gone, catalog.Failed) // the source answers
	f.loseSource(s)
	id := run(gone, catalog.Succeeded)
	target := servers.Connect(t, 1).UID()
	for _, unit := range units {
		if record := f.owner(s, unit); isPaused(f.cluster(1, unit)) ||
			record.Owner.Owner.UID != target || record.Operation != id {
			t.Errorf("%s is paused, or its record names %s and operation %s", unit,
				record.Owner.Owner.UID, record.Operation)
		}
	}
	f.assertInUse(s, "")
	rollBack(paused, catalog.Failed) // they were released since
	for _, unit := range units {
		if live := f.cluster(1, unit); live == nil || isPaused(live) {
			t.Errorf("the rollback of a released restore has removed or paused %s", unit)
		}
	}
}

// assertInUse asserts which operation needs the one snapshot, by the catalog and by the mirrors;
// empty for none.
func (f *apiFixture) assertInUse(s *Server, operation string) {
	f.t.Helper()
	c, err := s.openCatalog(f.t.Context())
	must(f.t, err)
	st, err := s.openStore(f.t.Context(), "", nil)
	must(f.t, err)
	own, err := c.SnapshotsInUse(f.t.Context(), st.ID())
	must(f.t, err)
	mirrored, err := mirror.InUse(f.t.Context(), st)
	must(f.t, err)
	for from, used := range map[string]map[string]store.SnapshotID{"catalog": own,
		"mirrors": mirrored} {
		if got := slices.Collect(maps.Keys(used)); strings.Join(got, " ") != operation {
			f.t.Errorf("the %s: the snapshot is in use by %q, want %q", from, got, operation)
		}
	}
}

// claimsAtOnce is a bucket in which writes of ownership records wait.
type claimsAtOnce struct {
	*directory.Bucket
	arrived chan struct{}
	proceed chan struct{} // closed when they may proceed
}

func (b *claimsAtOnce) PutIf(ctx context.Context, key string, data []byte, tag string) (string,
	error) {
	if strings.HasPrefix(key, "owners/") {
		b.arrived <- struct{}{}
		<-b.proceed
	}
	return b.Bucket.PutIf(ctx, key, data, tag)
}

// TestAPII1ResumedRestoreLeavesAUnitPausedThatAnotherClaimed: a restore is stopped after its first
// claim and before any release, and another management cluster claims this unit and one more.
// Neither a resume with the signing key nor one without it releases them.
func TestAPII1ResumedRestoreLeavesAUnitPausedThatAnotherClaimed(t *testing.T) {
	f := newAPIFixture(t, "claimed")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	b := &claimsAtOnce{Bucket: directory.New(filepath.Join(f.dir, "store")),
		arrived: make(chan struct{}, 100), proceed: make(chan struct{})}
	s.buckets[s.cfg.Locations[0].Name] = b
	f.snapshot(s)
	id := f.restore(s, &mgmtv1.Selection{Namespaces: []string{f.namespace}})
	<-b.arrived // the others wait for the release of this one
	_, err := (&operationService{s: s}).StopOperation(t.Context(),
		&mgmtv1.StopOperationRequest{Id: id})
	must(t, err)
	close(b.proceed) // the step in flight, which is the claim, ends cleanly
	f.await(s, id, catalog.Stopped)
	st, err := s.openStore(t.Context(), "", nil)
	must(t, err)
	epochs := map[string]int64{}
	claimed := slices.Clone(units)
	owners, err := ownership.Owners(t.Context(), st)
	must(t, err)
	for _, unit := range units {
		epochs[unit] = owners[f.ids[unit]].Epoch
	}
	slices.SortStableFunc(claimed, func(a, b string) int { return int(epochs[b] - epochs[a]) })
	claimed, other := claimed[:2], claimed[2]
	if epochs[claimed[0]] == 0 || epochs[claimed[1]] > 0 {
		t.Fatalf("the epochs of the records are %v, want one", epochs)
	}
	target := servers.Connect(t, 1)
	for _, unit := range claimed {
		must(t, ownership.Claim(t.Context(), st, ownership.Request{
			WorkloadID: f.ids[unit], Workload: f.namespace + "/" + unit, Operation: "0123456789ab",
			From: object.Side{Name: target.Name(), UID: target.UID()}, Epoch: epochs[unit],
			To: object.Side{Name: "c", UID: "11111111-2222-3333-4444-555555555555"}}))
	}
	resume := &mgmtv1.ResumeOperationRequest{Id: id, Identity: f.identity()}
	_, err = (&operationService{s: s}).ResumeOperation(t.Context(), resume)
	must(t, err)
	op := f.await(s, id, catalog.Failed)
	c, err := s.openCatalog(t.Context())
	must(t, err)
	texts := unitFindings(t, c, op.ID)
	for _, unit := range claimed {
		named := slices.ContainsFunc(texts, func(text string) bool {
			return strings.Contains(text, f.namespace+"/"+unit+
				" belongs to management cluster c (11111111-2222-3333-4444-555555555555)")
		})
		if released := !isPaused(f.cluster(1, unit)); released || !named {
			t.Errorf("%s: released %v, named %v: %v", unit, released, named, texts)
		}
	}
	if state := op.Units[f.namespace+"/"+other]; state != catalog.UnitReleased {
		t.Errorf("the other unit is %s", state)
	}
	// Its journal is mirrored with a key, and does not go on without one.
	s.cfg.Locations[0].Store.SigningKeyFile = ""
	if _, err := (&operationService{s: s}).ResumeOperation(t.Context(), resume); err == nil ||
		!isPaused(f.cluster(1, claimed[0])) {
		t.Errorf("resumed without a signing key: %v", err)
	}
	// It does when the operator gives the mirror up, and releases nothing of another one even then.
	resume.ForceCodes = []string{string(object.CodeNoMirror)}
	_, err = (&operationService{s: s}).ResumeOperation(t.Context(), resume)
	must(t, err)
	f.await(s, id, catalog.Failed)
	for _, unit := range claimed {
		if !isPaused(f.cluster(1, unit)) {
			t.Errorf("%s is released by a resume without the mirror", unit)
		}
	}
}

// TestAPII1OfTwoRestoresIntoTwoTargetsTheSecondIsRefused: both restore one snapshot with a signing
// key. The first one has claimed the workload clusters. Beside a rollback on its target, a restore
// is refused before it reads anything.
func TestAPII1OfTwoRestoresIntoTwoTargetsTheSecondIsRefused(t *testing.T) {
	f := newAPIFixture(t, "two")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	f.snapshot(s)
	f.loseSource(s)
	c, err := s.openCatalog(t.Context())
	must(t, err)
	run := func(target string) (*mgmtv1.RunRestoreResponse, error) {
		return (&restoreService{s: s}).RunRestore(t.Context(), &mgmtv1.RunRestoreRequest{
			Spec: &mgmtv1.RestoreSpec{Snapshot: latest, Target: target, SourceIsGone: true,
				ForceCodes: []string{string(object.CodeSourceSeenRecently)},
				Selection:  &mgmtv1.Selection{Namespaces: []string{f.namespace}}},
			Identity: f.identity()})
	}
	first := servers.Options(1).Name
	back, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore,
		Target: catalog.Side{Name: first, UID: servers.Connect(t, 1).UID()}})
	must(t, err)
	_, err = c.SetState(t.Context(), back.ID, catalog.Running, catalog.Outcome{})
	must(t, err)
	must(t, c.UpdateOperation(t.Context(), back.ID, func(op *catalog.Operation) { op.Back = true }))
	if _, err := run(first); ExitCode(err) != ExitHeld {
		t.Errorf("a restore beside a rollback: %v", err)
	}
	_, err = c.SetState(t.Context(), back.ID, catalog.Stopped, catalog.Outcome{})
	must(t, err)

	started, err := run(first)
	must(t, err)
	f.await(s, started.GetOperation().GetId(), catalog.Succeeded)
	third := kubetest.Start(t, 1)
	options := third.Options(0)
	options.Name = "third"
	s.cfg.Targets = append(slices.Clone(s.cfg.Targets), options)
	started, err = run(options.Name)
	must(t, err)
	op := f.await(s, started.GetOperation().GetId(), catalog.Failed)
	if text := strings.Join(unitFindings(t, c, op.ID), "; "); op.Changed ||
		!strings.Contains(text, string(object.CodeOwnedElsewhere)) {
		t.Errorf("the second restore: changed %v: %s; %s", op.Changed, op.Message, text)
	}
}

// snapshot takes a snapshot of the fleet.
func (f *apiFixture) snapshot(s *Server) {
	f.t.Helper()
	taken, err := (&snapshotService{s: s}).CreateSnapshot(f.t.Context(),
		&mgmtv1.CreateSnapshotRequest{Source: servers.Options(0).Name,
			Namespaces: []string{f.namespace}})
	must(f.t, err)
	f.await(s, taken.GetOperation().GetId(), catalog.Succeeded)
}

// restore starts a restore of the newest snapshot into the target, as in an outage of the source.
func (f *apiFixture) restore(s *Server, selection *mgmtv1.Selection) (operation string) {
	f.t.Helper()
	f.loseSource(s)
	started, err := (&restoreService{s: s}).RunRestore(f.t.Context(), &mgmtv1.RunRestoreRequest{
		Spec: &mgmtv1.RestoreSpec{Snapshot: latest, Target: servers.Options(1).Name, SourceIsGone: true,
			ForceCodes: []string{string(object.CodeSourceSeenRecently)}, Selection: selection},
		Identity: f.identity()})
	must(f.t, err)
	return started.GetOperation().GetId()
}

// loseSource removes the kubeconfig of the source from the configuration of a daemon, so that it
// does not reach the source any more.
func (f *apiFixture) loseSource(s *Server) {
	if len(s.cfg.Sources) > 1 {
		s.cfg.Sources, s.cfg.Targets = s.cfg.Sources[1:], s.cfg.Targets[1:]
	}
}

func (f *apiFixture) identity() []byte {
	f.t.Helper()
	identity, err := os.ReadFile(filepath.Join(f.dir, "keys", "identity.txt"))
	must(f.t, err)
	return identity
}
