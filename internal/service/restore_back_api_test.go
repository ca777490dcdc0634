//go:build api

package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
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

// TestAPII1ARollbackListsAgainWhatTheRestoreTookOffThePolicy: the restore was about to release a
// workload cluster into a management cluster that it had moved away from, and is rolled back. A
// GitOps tool that still applies it there must not create it.
func TestAPII1ARollbackListsAgainWhatTheRestoreTookOffThePolicy(t *testing.T) {
	t.Parallel()
	f, policy, cluster, unit := denying(t, "listed")
	denied := func() string {
		t.Helper()
		id, err := policy.DeniedID(t.Context(), cluster.Ref)
		must(t, err)
		return id
	}
	for range 2 { // it was fenced again before a resume
		must(t, policy.Arm(t.Context(), []fence.Cluster{cluster}))
		must(t, f.allow(t.Context(), f.journal, unit))
	}
	if id := denied(); id != "" {
		t.Errorf("it is denied before the release: %q", id)
	}
	u := &restoreUndo{target: f.target, kinds: f.kinds, store: f.store, journal: f.journal,
		stored: storedRestore{Plan: *f.plan}}
	for range 2 {
		must(t, u.giveBack(t.Context(), unit))
	}
	if id := denied(); id != cluster.ID {
		t.Errorf("after the rollback %q is denied, want %q", id, cluster.ID)
	}
}

// TestAPII1TheRecordIsReadAsTheLastThingBeforeARelease: another operation claims the workload
// cluster while the policy of the target is lifted.
func TestAPII1TheRecordIsReadAsTheLastThingBeforeARelease(t *testing.T) {
	t.Parallel()
	f, policy, cluster, unit := denying(t, "claimed")
	must(t, policy.Arm(t.Context(), []fence.Cluster{cluster}))
	j := f.catalog.Journal(f.journal.Operation(), catalog.JournalOptions{
		Sync: func(context.Context) error { // of what is about to be taken off the list
			f.restoreElsewhere(t)
			return nil
		}})
	hook, err := f.lastChecks(t.Context(), j, f.plan, true)
	must(t, err)
	err = hook(t.Context(), unit)
	if owned, refused := errors.AsType[*ownership.OwnedError](err); !refused || owned.By.UID != "uid-c" {
		t.Errorf("it is released, or not because of its owner: %v", err)
	}
}

// denying is a fixture whose target has an admission policy that may deny the Cluster of a unit.
func denying(t *testing.T, name string) (*ownedFixture, *fence.Policy, fence.Cluster,
	restore.Unit) {
	t.Helper()
	f := newOwnedFixture(t, true)
	f.target = servers.Connect(t, 1)
	var err error
	f.kinds, err = f.target.Reader().Kinds(t.Context())
	must(t, err)
	unit := restore.Unit{Name: "denying/" + name, WorkloadID: ownedUnit.WorkloadID}
	cluster := fence.Cluster{ID: unit.WorkloadID}
	cluster.Ref, err = clusterOf(unit)
	must(t, err)
	policy := f.policy()
	t.Cleanup(func() { must(t, policy.Disarm(context.Background(), []object.Ref{cluster.Ref})) })
	return f, policy, cluster, unit
}

// fence pauses a Cluster on the source as a fence does, and waits for the acknowledgement.
func (f *apiFixture) fence(unit string) {
	f.t.Helper()
	m := servers.Connect(f.t, 0)
	kinds, err := m.Reader().Kinds(f.t.Context())
	must(f.t, err)
	k, _ := kube.FindKind(kinds, capi.Cluster)
	must(f.t, kube.Retry(f.t.Context(), func() error { // its controller may write at the same time
		u := f.cluster(0, unit)
		must(f.t, unstructured.SetNestedField(u.Object, true, "spec", "paused"))
		capi.Annotate(u.Object, capi.AnnotationFenced, capi.FencedByOperator)
		_, err := m.Writer().Update(f.t.Context(), k, u)
		return err
	}))
	end := time.Now().Add(time.Minute)
	for why := "not read"; why != ""; time.Sleep(20 * time.Millisecond) {
		if why = capi.NotAcknowledged(f.cluster(0, unit).Object, "True"); time.Now().After(end) {
			f.t.Fatalf("%s is paused on the source, and not acknowledged: %s", unit, why)
		}
	}
}

// damageRecord writes over the ownership record of a workload cluster, and returns what puts it
// back.
func (f *apiFixture) damageRecord(unit string) (mend func()) {
	f.t.Helper()
	file := filepath.Join(f.dir, "store", "owners", f.ids[unit]+".json")
	text, err := os.ReadFile(file)
	must(f.t, err)
	must(f.t, os.WriteFile(file, []byte("{"), 0o600))
	return func() { must(f.t, os.WriteFile(file, text, 0o600)) }
}

// TestAPIAfterARollbackWhatIsReleasedIsFinished: a restore is stopped when it has released one of
// three workload clusters, and rolled back. The other two are removed. A resume finishes the one
// that stays, and what it shares; it does not bring the others again, which the source has back and
// reconciles. The record of one cannot be read in a first rollback: that holds up no other one, nor
// a resume of what stays.
func TestAPIAfterARollbackWhatIsReleasedIsFinished(t *testing.T) {
	f := newAPIFixture(t, "partly")
	s := f.daemon()
	t.Cleanup(func() { must(t, s.Close()) })
	f.snapshot(s)
	sides := s.cfg.Sources
	id := f.stopAtClaim(s, 2)
	released := f.states(s, id)[catalog.UnitReleased]
	if len(released) != 1 || !f.addonsPaused() {
		t.Fatalf("%q are released before the stop, want one; the addons are paused: %t", released,
			f.addonsPaused())
	}
	mend := f.damageRecord(f.states(s, id)[catalog.UnitCopied][0]) // that was claimed
	f.rollBack(s, id, catalog.Failed)
	c, err := s.openCatalog(t.Context())
	must(t, err)
	op, err := findOperation(t.Context(), c, id)
	must(t, err)
	if len(f.states(s, id)[catalog.UnitRolledBack]) != 1 || op.Back ||
		!strings.Contains(op.Message, "the rollback of others failed") {
		t.Errorf("beside a record that cannot be read: %v, back %t: %s", f.states(s, id), op.Back,
			op.Message)
	}
	mend()
	f.rollBack(s, id, catalog.Failed)
	if len(f.states(s, id)[catalog.UnitRolledBack]) != 2 || !f.addonsPaused() {
		t.Errorf("after the rollback: %v, the addons are paused: %t", f.states(s, id), f.addonsPaused())
	}
	s.cfg.Sources, s.cfg.Targets = sides, sides // the source answers
	f.fence(released[0])
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
