package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/replicate"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// CopyStore implements the API.
func (s *storeService) CopyStore(ctx context.Context, req *mgmtv1.CopyStoreRequest) (
	*mgmtv1.CopyStoreResponse, error) {
	run, err := s.s.beginCopy(ctx, copyRequest{location: req.GetLocation(),
		to: req.GetToLocation(), last: int(req.GetLast())})
	if err != nil {
		return nil, err
	}
	return &mgmtv1.CopyStoreResponse{Operation: operationToProto(run.begun)}, nil
}

// copyRequest is a copy that an operator, or the daemon by itself, asks for.
type copyRequest struct {
	location, to string // names; to may be empty where the configuration says it
	last         int    // as in replicate.Options
}

// errCopying says that a copy to the same location is going.
var errCopying = &Error{Reason: ReasonLocked, Message: "a copy to this location is running",
	Hint: "wait for it; a list of the operations shows it", HintKey: object.HintOperations}

// beginCopy begins the operation that copies a store. There is one at a time for each copy: a
// second one would bring the same snapshots.
func (s *Server) beginCopy(ctx context.Context, q copyRequest) (*operationRun, error) {
	from, err := s.location(q.location)
	if err != nil {
		return nil, err
	}
	if q.to == "" {
		q.to = from.CopyTo
	}
	if q.to == "" {
		return nil, &Error{Reason: ReasonUsage, Message: "the place of the copy is not named",
			Hint: "name a storage location"}
	}
	to, err := s.location(q.to)
	if err != nil {
		return nil, err
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	if !s.claimCopy(to.Name) {
		return nil, errCopying
	}
	run, err := s.startCopy(ctx, c, from, to, q.last)
	if err != nil {
		s.releaseCopy(to.Name)
	}
	return run, err
}

func (s *Server) claimCopy(to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copying[to] {
		return false
	}
	s.copying[to] = true
	return true
}

func (s *Server) releaseCopy(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.copying, to)
}

// startCopy opens both stores and starts the operation, which ends the claim.
func (s *Server) startCopy(ctx context.Context, c *catalog.Catalog, from, to *Location,
	last int) (*operationRun, error) {
	o := replicate.Options{Last: last}
	var err error
	if o.From, o.To, err = s.openCopy(ctx, from, to); err != nil {
		return nil, err
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{Kind: catalog.KindCopy,
		Store: o.From.ID(), Location: from.Name,
		Copy: &catalog.StoreCopy{Location: to.Name, Store: o.To.ID(), Behind: -1}})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	return s.start(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		defer s.releaseCopy(to.Name)
		r, err := s.copyStore(ctx, c, j, o, to.Name)
		s.metrics.copied(from.Name, to.Name, began, r, err)
		return err
	})
}

// openCopy opens the store that is copied, for reading only, and its copy. A copy run decrypts and
// encrypts nothing.
func (s *Server) openCopy(ctx context.Context, from, to *Location) (origin, copied *store.Store,
	err error) {
	open := func(l *Location) (store.Options, error) {
		b, err := s.bucket(l)
		if err != nil {
			return store.Options{}, err
		}
		keys, err := store.LoadKeys(store.KeyOptions{SigningKeyFile: l.Store.SigningKeyFile,
			TrustedKeyFiles: l.Store.TrustedKeyFiles})
		return store.Options{Bucket: b, Keys: keys, Plain: l.Store.Plain,
			ReadOnly: l.Store.ReadOnly}, err
	}
	o, err := open(from)
	if err != nil {
		return nil, nil, err
	}
	o.ReadOnly = true
	if origin, err = store.Open(ctx, o); errors.Is(err, store.ErrStoreMissing) {
		err = s.checkMissing(ctx, from, err)
	}
	if err != nil {
		return nil, nil, &store.OriginError{Err: err}
	}
	if err := s.checkPlace(ctx, from, origin); err != nil {
		return nil, nil, &store.OriginError{Err: err}
	}
	if o, err = open(to); err != nil {
		return nil, nil, err
	}
	if origin.Encrypted() && !o.Keys.CanSign() {
		return nil, nil, &Error{Reason: ReasonUsage, Message: "copy store: no key to sign with",
			Hint: "give the signing key", HintKey: object.HintSigningKey}
	}
	if copied, err = store.OpenCopy(ctx, o, origin); err == nil {
		err = copied.MayCopy(origin)
	}
	if err == nil {
		err = s.checkPlace(ctx, to, copied)
	}
	return origin, copied, err
}

// copyStore copies and reports what it did. The result is nil when the run did not begin.
func (s *Server) copyStore(ctx context.Context, c *catalog.Catalog, j *catalog.Journal,
	o replicate.Options, to string) (*replicate.Result, error) {
	o.Progress = j.Progress
	o.Step = func(name string, fn func() error) error {
		return j.Do(ctx, catalog.Step{Phase: "copy-" + name},
			func(context.Context, *catalog.StepHandle) error { return fn() })
	}
	o.OnCopy = func(e store.Signed) error { // so that one that goes from the copy is missed there
		return c.PutSnapshot(context.WithoutCancel(ctx), catalog.RecordOf(e))
	}
	var err error
	if o.Known, err = knownNumbers(ctx, c, o.From.ID(), o.To.ID()); err != nil {
		return nil, err
	}
	r, err := replicate.Run(ctx, o)
	if r == nil {
		return nil, err
	}
	if err == nil {
		err = incompleteCopy(r)
	}
	if err != nil && !r.Wrote() {
		err = &untouchedError{err}
	}
	late := context.WithoutCancel(ctx)
	events := []catalog.Event{{Type: catalog.EventMessage, Message: r.String()}}
	for _, f := range r.Findings {
		events = append(events, catalog.FindingEvent("", f))
	}
	return r, errors.Join(err, c.UpdateOperation(late, j.Operation(),
		func(op *catalog.Operation) { op.Copy = copyRecord(r, to, o.To.ID()) }),
		j.Emit(late, events...))
}

// knownNumbers returns what the index has of the snapshots of stores.
func knownNumbers(ctx context.Context, c *catalog.Catalog, stores ...string) (func(string,
	store.EnvelopeKey) (int64, bool), error) {
	numbers := map[string]map[string]int64{}
	for _, id := range stores {
		numbers[id] = map[string]int64{}
		list, err := c.Snapshots(ctx, catalog.SnapshotFilter{StoreID: id})
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			numbers[id][s.Key] = s.Sequence
		}
	}
	return func(id string, k store.EnvelopeKey) (int64, bool) {
		n, ok := numbers[id][k.String()]
		return n, ok && n > 0
	}, nil
}

// incompleteCopy returns an error for a run that left out what it should have copied.
func incompleteCopy(r *replicate.Result) error {
	wrong := r.Behind > 0
	for _, f := range r.Findings {
		wrong = wrong || f.Severity >= object.Error
	}
	if !wrong {
		return nil
	}
	return &leftBehindError{&Error{Reason: ReasonIncomplete,
		Message: fmt.Sprintf("snapshots that are not in the copy: %d", r.Behind),
		Hint:    "the findings say why; the next run tries them again"}}
}

// leftBehindError is the error of a copy run that copied what it could.
type leftBehindError struct{ cause *Error }

// Error implements error.
func (e *leftBehindError) Error() string { return e.cause.Error() }

// Unwrap returns the error, and what it is for the schedule of copies.
func (e *leftBehindError) Unwrap() []error { return []error{e.cause, schedule.ErrLeftBehind} }

func copyRecord(r *replicate.Result, location, id string) *catalog.StoreCopy {
	return &catalog.StoreCopy{Location: location, Store: id, Copied: len(r.Copied),
		Present: r.Present, Removed: r.Removed, LeftOut: r.LeftOut, Untrusted: r.Untrusted,
		Behind: r.Behind, Keys: r.Keys, Bytes: r.Bytes}
}

func copyToProto(c *catalog.StoreCopy) *mgmtv1.StoreCopy {
	if c == nil {
		return nil
	}
	return &mgmtv1.StoreCopy{Location: c.Location, StoreId: c.Store, Copied: int64(c.Copied),
		Present: int64(c.Present), Removed: int64(c.Removed), LeftOut: int64(c.LeftOut),
		Untrusted: int64(c.Untrusted), Behind: int64(c.Behind), WrittenKeys: c.Keys,
		WrittenBytes: c.Bytes}
}

// BeginCopy implements schedule.Copies.
func (r *scheduledRuns) BeginCopy(ctx context.Context, c schedule.Copy) (schedule.Run, error) {
	run, err := r.s.beginCopy(ctx, copyRequest{location: c.From, to: c.To})
	switch {
	case err == nil:
		return run, nil
	case errors.Is(err, errCopying),
		as[*store.OriginError](err) && errors.Is(err, store.ErrStoreMissing): // before the first snapshot
		return nil, nil
	case ctx.Err() == nil:
		r.s.metrics.copied(c.From, c.To, time.Time{}, nil, err)
	}
	return nil, err
}

// copyHistory is how many operations are searched for the last copies of all locations.
const copyHistory = 1000

// copiesKnown makes the series of copies, with what the catalog has of their last runs.
func (r *scheduledRuns) copiesKnown(ctx context.Context, copies []schedule.Copy) error {
	if len(copies) == 0 {
		return nil
	}
	ops, err := r.catalog.Operations(ctx, catalog.OperationFilter{
		Kinds: []catalog.Kind{catalog.KindCopy}, States: []catalog.State{catalog.Succeeded},
		Limit: copyHistory})
	for _, c := range copies {
		var last time.Time
		for _, op := range ops {
			if op.Location == c.From && op.Copy != nil && op.Copy.Location == c.To {
				last = op.Created
				break
			}
		}
		r.s.metrics.copyKnown(c.From, c.To, last)
	}
	return err
}
