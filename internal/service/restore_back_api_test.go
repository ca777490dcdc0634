//go:build api

package service

import (
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// stopAtClaim restores the fleet and stops the operation at its nth claim, which ends cleanly.
func (f *apiFixture) stopAtClaim(s *Server, nth int) (operation string) {
	f.t.Helper()
	b := &claimsAtOnce{Bucket: directory.New(filepath.Join(f.dir, "store")),
		arrived: make(chan struct{}), proceed: make(chan struct{})}
	s.buckets[s.cfg.Locations[0].Name] = b
	id := f.restore(s, &mgmtv1.Selection{Namespaces: []string{f.namespace}})
	for range nth - 1 {
		<-b.arrived
		b.proceed <- struct{}{}
	}
	<-b.arrived
	_, err := (&operationService{s: s}).StopOperation(f.t.Context(),
		&mgmtv1.StopOperationRequest{Id: id})
	must(f.t, err)
	go func() { // claims of the next runs, if there are any
		for range b.arrived {
		}
	}()
	close(b.proceed)
	f.await(s, id, catalog.Stopped)
	return id
}

// states returns the units of an operation by their state.
func (f *apiFixture) states(s *Server, id string) map[catalog.UnitState][]string {
	f.t.Helper()
	c, err := s.openCatalog(f.t.Context())
	must(f.t, err)
	op, err := findOperation(f.t.Context(), c, id)
	must(f.t, err)
	states := map[catalog.UnitState][]string{}
	for _, unit := range units {
		state := op.Units[f.namespace+"/"+unit]
		states[state] = append(states[state], unit)
	}
	return states
}

// addonsPaused reports whether the ClusterResourceSet of the namespace is paused on the target.
func (f *apiFixture) addonsPaused() bool {
	f.t.Helper()
	reader := servers.Connect(f.t, 1).Reader()
	kinds, err := reader.Kinds(f.t.Context())
	must(f.t, err)
	k, _ := kube.FindKind(kinds, object.GroupKind{Group: "addons.cluster.x-k8s.io",
		Kind: "ClusterResourceSet"})
	u, err := reader.Get(f.t.Context(), k, f.namespace, "addons")
	must(f.t, err)
	return capi.PausedByUs(u.Object)
}

func (f *apiFixture) resume(s *Server, id string, want catalog.State) {
	f.t.Helper()
	_, err := (&operationService{s: s}).ResumeOperation(f.t.Context(),
		&mgmtv1.ResumeOperationRequest{Id: id, Identity: f.identity()})
	must(f.t, err)
	f.await(s, id, want)
}

func (f *apiFixture) rollBack(s *Server, id string, want catalog.State) {
	f.t.Helper()
	_, err := (&operationService{s: s}).RollbackOperation(f.t.Context(),
		&mgmtv1.RollbackOperationRequest{Id: id})
	must(f.t, err)
	f.await(s, id, want)
}

// TestAPIAfterARollbackWhatIsReleasedIsFinished: a restore is stopped when it has released one of
// three workload clusters, and rolled back. The other two are removed. A resume finishes the one
// that stays, and what it shares; it does not bring the others again.
func TestAPIAfterARollbackWhatIsReleasedIsFinished(t *testing.T) {
	f := newAPIFixture(t, "partly")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	f.snapshot(s)
	id := f.stopAtClaim(s, 2)
	released := f.states(s, id)[catalog.UnitReleased]
	if len(released) != 1 || !f.addonsPaused() {
		t.Fatalf("%q are released before the stop, want one; the addons are paused: %t", released,
			f.addonsPaused())
	}
	f.rollBack(s, id, catalog.Failed)
	if len(f.states(s, id)[catalog.UnitRolledBack]) != 2 || !f.addonsPaused() {
		t.Errorf("after the rollback: %v, the addons are paused: %t", f.states(s, id), f.addonsPaused())
	}
	f.resume(s, id, catalog.Succeeded)
	for _, unit := range units {
		live := f.cluster(1, unit)
		if stays := slices.Contains(released, unit); (live != nil) != stays || stays && isPaused(live) {
			t.Errorf("%s: to stay %t, on the target: %v", unit, stays, live)
		}
	}
	if f.addonsPaused() {
		t.Error("what they share is still paused")
	}
}

// TestAPII1ResumedRestoreLeavesAReleasedUnitThatAnotherClaimed: the target was away after the
// release of one workload cluster, another management cluster took it over, and a daemon fenced it
// here. A resume finishes the others. The ClusterResourceSet, which would act on it as well, stays
// paused.
func TestAPII1ResumedRestoreLeavesAReleasedUnitThatAnotherClaimed(t *testing.T) {
	f := newAPIFixture(t, "taken")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	f.snapshot(s)
	id := f.stopAtClaim(s, 2)
	released := f.states(s, id)[catalog.UnitReleased]
	if len(released) != 1 {
		t.Fatalf("%q are released before the stop, want one", released)
	}
	taken := released[0]
	st, err := s.openStore(t.Context(), "", nil)
	must(t, err)
	target := servers.Connect(t, 1)
	must(t, ownership.Claim(t.Context(), st, ownership.Request{WorkloadID: f.ids[taken],
		Workload: f.namespace + "/" + taken, Operation: "0123456789ab",
		From: object.Side{Name: target.Name(), UID: target.UID()}, Epoch: f.owner(s, taken).Epoch,
		To: object.Side{Name: "c", UID: "11111111-2222-3333-4444-555555555555"}}))
	live := f.cluster(1, taken)
	var rows *capi.Table
	rows.Pause(live.Object)
	capi.Annotate(live.Object, capi.AnnotationFenced, capi.FencedByRecord)
	must(t, unstructured.SetNestedField(live.Object, true, "spec", "paused"))
	kinds, err := target.Reader().Kinds(t.Context())
	must(t, err)
	k, _ := kube.FindKind(kinds, capi.Cluster)
	_, err = target.Writer().Update(t.Context(), k, live)
	must(t, err)
	f.resume(s, id, catalog.Failed)
	for _, unit := range units {
		if isPaused(f.cluster(1, unit)) != (unit == taken) {
			t.Errorf("%s is paused: %t", unit, isPaused(f.cluster(1, unit)))
		}
	}
	if !f.addonsPaused() {
		t.Error("the addons are at work beside a workload cluster of another management cluster")
	}
	c, err := s.openCatalog(t.Context())
	must(t, err)
	reported := false
	for e, err := range c.Events(t.Context(), catalog.OperationID(id), 0) {
		must(t, err)
		reported = reported || e.Finding != nil && e.Finding.Code == object.CodeOwnedElsewhere &&
			e.Unit == f.namespace+"/"+taken
	}
	if !reported {
		t.Error("that it was taken over is not reported")
	}
}

// TestAPII1RollbackLeavesTheRecordOfWhatWasAtWorkHere: a restore without a signing key releases
// everything, and no record says so. A second one with a key adopts it, and is stopped and rolled
// back after a claim. The record names the target then, and not the source, which is dead.
func TestAPII1RollbackLeavesTheRecordOfWhatWasAtWorkHere(t *testing.T) {
	f := newAPIFixture(t, "adopted")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	f.snapshot(s)
	key := s.cfg.Locations[0].Store.SigningKeyFile
	s.cfg.Locations[0].Store.SigningKeyFile = ""
	f.await(s, f.restore(s, &mgmtv1.Selection{Namespaces: []string{f.namespace}}), catalog.Succeeded)
	s.cfg.Locations[0].Store.SigningKeyFile = key
	id := f.stopAtClaim(s, 1)
	f.rollBack(s, id, catalog.RolledBack)
	st, err := s.openStore(t.Context(), "", nil)
	must(t, err)
	owners, err := ownership.Owners(t.Context(), st)
	must(t, err)
	target, named := servers.Connect(t, 1).UID(), 0
	for _, unit := range units {
		record := owners[f.ids[unit]]
		if record.Epoch > 0 {
			named++
		}
		if record.Epoch > 0 && record.By.UID != target || isPaused(f.cluster(1, unit)) {
			t.Errorf("the record of %s names %s, paused: %t", unit, record.By.UID,
				isPaused(f.cluster(1, unit)))
		}
	}
	if named == 0 {
		t.Error("nothing was claimed before the rollback")
	}
}
