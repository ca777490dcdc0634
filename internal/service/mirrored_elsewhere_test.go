package service

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// mirrored runs an operation to its end on a host.
func (m *mirroredHosts) mirrored(s *Server, c *catalog.Catalog, run func(ctx context.Context,
	j *catalog.Journal) error) catalog.OperationID {
	m.t.Helper()
	st, err := s.openLocation(m.t.Context(), &m.location, nil, true)
	if err != nil {
		m.t.Fatal(err)
	}
	id := newMirroredRun(m.t, c, st)
	begun, err := s.startMirrored(m.t.Context(), c, id, mirrorTo{store: st}, run)
	if err != nil {
		m.t.Fatal(err)
	}
	_ = begun.Wait()
	return id
}

// takeOver goes on with an operation on another host, whose run fails as well.
func (m *mirroredHosts) takeOver(id catalog.OperationID) (*Server, *catalog.Catalog) {
	m.t.Helper()
	s, c, st := m.host()
	if _, err := s.currentOperation(m.t.Context(), c, string(id), m.identity); err != nil {
		m.t.Fatal(err)
	}
	run, err := s.startMirrored(m.t.Context(), c, id, mirrorTo{store: st},
		func(ctx context.Context, j *catalog.Journal) error {
			return errors.Join(doStep(ctx, j, "copy"), errors.New("broken there, too"))
		})
	if err != nil || run.Wait() == nil {
		m.t.Fatal("the run did not fail", err)
	}
	return s, c
}

// TestTakeOverFindsTheStoreByItsID: the configuration of another daemon has another name for it.
func TestTakeOverFindsTheStoreByItsID(t *testing.T) {
	m := newMirroredHosts(t)
	m.location.Name = "backup"
	a, c, _ := m.host()
	id := m.mirrored(a, c, func(ctx context.Context, j *catalog.Journal) error {
		return errors.Join(doStep(ctx, j, "pause"), errors.New("it fails"))
	})
	offsite, other := m.location, newMirroredHosts(t).location
	offsite.Name, other.Name = "offsite", "other"
	s := New(Config{CatalogFile: t.TempDir() + "/c.db", Daemon: true,
		Locations: []Location{other, offsite}})
	defer s.Close()
	if _, err := s.openLocation(t.Context(), &other, nil, true); err != nil {
		t.Fatal(err)
	}
	imported, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	op, err := s.currentOperation(t.Context(), imported, string(id), m.identity)
	if err != nil || op.Location != "offsite" {
		t.Fatalf("imported %+v, %v", op, err)
	}
	l, st, err := s.openStoreOf(t.Context(), op, "backup", nil) // as the stored plan has it
	if err != nil || l.Name != "offsite" || st.ID() != op.Store {
		t.Fatalf("found %+v, %v", l, err)
	}
	// The daemon resumes a move by itself only when it knows that the store is away. Another
	// location has none yet.
	empty := newMirroredHosts(t).location
	empty.Name = "empty"
	s.cfg.Locations = []Location{empty, other, offsite}
	s.buckets["offsite"] = awayBucket{}
	_, _, err = s.openStoreOf(t.Context(), op, "backup", nil)
	if classify(err).Reason != ReasonStoreUnreachable {
		t.Errorf("a store that is away: %v", err)
	}
	s.cfg.Locations = []Location{empty, other}
	if _, _, err := s.openStoreOf(t.Context(), op, "backup", nil); ExitCode(err) != ExitUsage ||
		!strings.Contains(classify(err).Hint, "BackupStorageLocation") {
		t.Errorf("another store: %v", err)
	}
}

// awayBucket is a bucket that does not answer.
type awayBucket struct{ bucket.Bucket }

func (awayBucket) Get(context.Context, string) (io.ReadCloser, error) {
	return nil, &bucket.Error{Op: "get", Class: bucket.ErrUnreachable, Err: errors.New("no answer")}
}

func (awayBucket) String() string { return "away" }

// TestRunWithoutARecordOfItsEndIsUnknownElsewhere: the store was away when the run ended. Other
// hosts are told what to do; the host itself writes the end when it is asked to resume.
func TestRunWithoutARecordOfItsEndIsUnknownElsewhere(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	var folder string
	id := m.mirrored(a, c, func(ctx context.Context, j *catalog.Journal) error {
		err := doStep(ctx, j, "pause")
		folder = filepath.Join(strings.TrimPrefix(m.location.Store.URL, "file://"), "operations",
			string(j.Operation()))
		return errors.Join(err, os.Rename(folder, folder+"-away"), os.WriteFile(folder, nil, 0o600))
	})
	if err := errors.Join(os.Remove(folder), os.Rename(folder+"-away", folder)); err != nil {
		t.Fatal(err)
	}
	found, err := mirror.Newest(t.Context(), st, id)
	if err != nil || found.Head.State != "running" {
		t.Fatalf("the newest record is %+v, %v", found, err)
	}
	if p := mirroredToProto(&m.location, found, time.Now()); p.GetState() !=
		mgmtv1.OperationState_OPERATION_STATE_RUNNING {
		t.Errorf("at once: %v", p)
	}
	for _, skew := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
		p := mirroredToProto(&m.location, found, time.Now().Add(skew))
		if p.GetState() != mgmtv1.OperationState_OPERATION_STATE_UNKNOWN ||
			!strings.Contains(p.GetMessage(), found.Head.Time.Format(time.RFC3339)) ||
			p.GetHintKey() != string(object.HintResumeWithIdentity) {
			t.Errorf("after %s: %v", skew, p)
		}
	}
	resp, err := (&operationService{s: a}).ResumeOperation(t.Context(),
		&mgmtv1.ResumeOperationRequest{Id: string(id)})
	if err != nil || resp.GetOperation().GetState() !=
		mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED {
		t.Fatalf("%v, %v", resp, err)
	}
	if found, err = mirror.Newest(t.Context(), st, id); err != nil || !found.Head.Final ||
		found.Head.State != "succeeded" {
		t.Errorf("the newest record is %+v, %v", found, err)
	}
}

// slowRecords is a bucket in which a write of an operation record waits.
type slowRecords struct {
	*directory.Bucket
	until            atomic.Int32 // the write that waits, counted from 1
	arrived, proceed chan struct{}
	listed           chan struct{} // gets one for each list of records
}

func (b *slowRecords) Put(ctx context.Context, key string, data []byte) error {
	if strings.HasPrefix(key, "operations/") && b.until.Add(-1) == 0 {
		b.arrived <- struct{}{}
		<-b.proceed
	}
	return b.Bucket.Put(ctx, key, data)
}

func (b *slowRecords) List(ctx context.Context, prefix string,
	fn func(bucket.Info) error) error {
	err := b.Bucket.List(ctx, prefix, fn)
	if strings.HasPrefix(prefix, "operations/") {
		b.listed <- struct{}{}
	}
	return err
}

// TestNextRunWaitsUntilTheMirrorOfTheLastOneIsClosed: the end is in the catalog before it is in the
// store. A rollback that begins in between is not fenced out by the record of that end.
func TestNextRunWaitsUntilTheMirrorOfTheLastOneIsClosed(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, _ := m.host()
	b := &slowRecords{Bucket: directory.New(strings.TrimPrefix(m.location.Store.URL, "file://")),
		arrived: make(chan struct{}), proceed: make(chan struct{}), listed: make(chan struct{}, 100)}
	a.buckets[m.location.Name] = b
	st, err := a.openLocation(t.Context(), &m.location, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	id := newMirroredRun(t, c, st)
	run := func(phase string) (*operationRun, error) {
		return a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
			j *catalog.Journal) error {
			err := doStep(ctx, j, phase)
			b.until.Store(2) // the step ends first, then the operation
			if phase != "pause" {
				b.until.Store(0)
			}
			return errors.Join(err, errors.New("it fails"))
		})
	}
	first, err := run("pause")
	if err != nil {
		t.Fatal(err)
	}
	for len(b.listed) > 0 {
		<-b.listed
	}
	<-b.arrived
	began := make(chan error)
	go func() {
		second, err := run("hand-over")
		if err == nil {
			if lost := second.Wait(); as[*mirror.FencedError](lost) {
				err = lost
			}
		}
		began <- err
	}()
	select { // it reads the records of the first run, or waits for its end
	case <-b.listed:
	case <-time.After(100 * time.Millisecond):
	}
	close(b.proceed)
	if err := <-began; err != nil {
		t.Error(err)
	}
	_ = first.Wait()
}

// TestListShowsThatAnotherHostHasGoneOn: the catalog of the first host has what it knew.
func TestListShowsThatAnotherHostHasGoneOn(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, _ := m.host()
	id := m.mirrored(a, c, func(ctx context.Context, j *catalog.Journal) error {
		return errors.Join(doStep(ctx, j, "pause"), errors.New("it fails"))
	})
	list := func() *mgmtv1.Operation {
		t.Helper()
		resp, err := (&operationService{s: a}).ListOperations(t.Context(),
			&mgmtv1.ListOperationsRequest{Mirrored: true})
		if err != nil || len(resp.GetOperations()) != 1 {
			t.Fatalf("%v, %v", resp, err)
		}
		return resp.GetOperations()[0]
	}
	if op := list(); op.GetHost() != "" {
		t.Errorf("before the take-over: %v", op)
	}
	b, other, st := m.host()
	if _, err := b.currentOperation(t.Context(), other, string(id), m.identity); err != nil {
		t.Fatal(err)
	}
	run, err := b.startMirrored(t.Context(), other, id, mirrorTo{store: st}, func(ctx context.Context,
		j *catalog.Journal) error {
		return doStep(ctx, j, "hand-over")
	})
	if err != nil || run.Wait() != nil {
		t.Fatal(err)
	}
	if op := list(); op.GetHost() == "" || op.GetState() !=
		mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED {
		t.Errorf("after the take-over: %v", op)
	}
}

// TestAnOperationIsFoundBesideALocationThatCannotBeRead: the host of a move is lost, and so is
// one of the locations that this host has as well. A beginning of an id may be that of an
// operation there.
func TestAnOperationIsFoundBesideALocationThatCannotBeRead(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := newMirroredRun(t, c, st)
	run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
		j *catalog.Journal) error {
		return doStep(ctx, j, "pause")
	})
	if err != nil || run.Wait() != nil {
		t.Fatal(err)
	}
	b, _, _ := m.host()
	lost := m.location
	lost.Name, lost.Store.TrustedKeyFiles = "lost", []string{"/no/such/key"}
	b.cfg.Locations = append([]Location{lost}, b.cfg.Locations...)
	_, found, err := b.findMirrored(t.Context(), string(id), errors.New("there is none"))
	if err != nil || found.ID != id {
		t.Errorf("by its id: %q, %v", found.ID, err)
	}
	for _, ref := range []string{string(id)[:6], "0123456789ab"} {
		_, found, err := b.findMirrored(t.Context(), ref, errors.New("there is none"))
		if err == nil || !strings.Contains(err.Error(), "/no/such/key") {
			t.Errorf("by %q: %q, %v", ref, found.ID, err)
		}
	}
}
