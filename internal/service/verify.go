package service

import (
	"context"
	"errors"
	"slices"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
)

// verifyRequest asks for a verification, for a client or for the daemon's schedule.
type verifyRequest struct {
	location string
	of       snapshotRef
	// exactly is the key of the snapshot, instead of of.ref; nil for none.
	exactly *store.EnvelopeKey
	// scheduled says that the beginner counts the result for the newest snapshots of the source.
	scheduled bool
	level     store.VerifyLevel
	percent   int // of the packs, at level sample; 0 for the default
	subset    store.Subset
	identity  []byte
	noRecord  bool
}

// verifyOperation is a run that verifies. It implements schedule.VerifyRun.
type verifyOperation struct {
	*operationRun
	result *store.Verification // of the run; read it after its end
	opened *verifyRun
}

// Wait waits until the end is recorded and returns the outcome: "" when the verification came to
// none.
func (o *verifyOperation) Wait() (store.VerifyOutcome, error) {
	err := o.operationRun.Wait()
	return o.result.Outcome, err
}

// verifyRun is a verification with its store and its snapshot opened.
type verifyRun struct {
	options  verify.Options
	location string
	source   catalog.Side
	newest   bool // the request was for the newest snapshot of its scope
}

// openVerify opens what a request names.
func (s *Server) openVerify(ctx context.Context, w verifyRequest) (*verifyRun, error) {
	location, err := s.location(w.location)
	if err != nil {
		return nil, err
	}
	st, err := s.openLocation(ctx, location, w.identity, false)
	if err != nil {
		return nil, err
	}
	if w.level != store.LevelStructure && st.Encrypted() && len(w.identity) == 0 {
		return nil, &Error{Reason: ReasonIdentity, Message: "this level of verify reads what is " +
			"encrypted, and there is no identity", Hint: "give one, or verify the structure alone",
			HintKey: object.HintIdentityOrStructure}
	}
	percent, err := verify.Percent(w.level, w.percent)
	if err != nil {
		return nil, err
	}
	if err := verify.CheckSubset(w.level, w.percent, w.subset); err != nil {
		return nil, err
	}
	source, err := findSource(ctx, st, w.of.source)
	if err != nil {
		return nil, err
	}
	var e store.Signed
	var passed []store.PassedOver
	if w.exactly != nil {
		e, err = st.GetEnvelope(ctx, *w.exactly)
	} else {
		e, passed, err = findSnapshot(ctx, st, snapshotRef{source, w.of.ref, w.of.scope})
	}
	unreadable, isUnreadable := errors.AsType[*store.CorruptError](err)
	if err != nil && !isUnreadable {
		return nil, err
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	known, err := readKnown(ctx, c, st, source)
	if err != nil {
		return nil, err
	}
	r := &verifyRun{location: location.Name, source: catalog.Side{Name: e.Source.Name, UID: source},
		newest: !w.scheduled && (w.of.ref == "" || w.of.ref == latest),
		options: verify.Options{Store: st, Rows: s.cfg.Rows, Catalog: c, Snapshot: e,
			Unreadable: unreadable,
			About: slices.Concat(overwritten(st), passedOver(passed, object.Error),
				missingFindings(known.missing)),
			Level: w.level, Percent: percent, Subset: w.subset, Writer: s.program(),
			CatalogOnly: w.noRecord}}
	if !isUnreadable {
		r.options.Untrusted = mayRead(st, e)
	}
	if isUnreadable || r.options.Untrusted != nil { // what it says of itself proves nothing
		r.source.Name = sourceName(ctx, c, source)
	}
	return r, nil
}

// beginVerify begins the operation that verifies a snapshot.
func (s *Server) beginVerify(ctx context.Context, w verifyRequest) (*verifyOperation, error) {
	r, err := s.openVerify(ctx, w)
	if err != nil {
		return nil, err
	}
	c := r.options.Catalog
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindVerify, Source: r.source, Store: r.options.Store.ID(), Location: r.location,
		SnapshotID: string(r.options.Snapshot.ID),
	})
	if err != nil {
		return nil, err
	}
	result := &store.Verification{}
	run, err := s.start(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) (err error) {
		*result, err = runVerify(ctx, j, r.options)
		s.metrics.verifies.ended(*result)
		// Without a name its signature is not accepted, or its source is unknown: it is only
		// counted.
		if r.source.Name != "" && r.newest && result.Outcome != "" {
			s.metrics.verifies.one(verifySeries{r.location, r.source.Name, result.Level},
				r.options.Snapshot.ScopeID(), *result)
		}
		s.changed(r.location, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &verifyOperation{operationRun: run, result: result, opened: r}, nil
}

// runVerify verifies a snapshot, reports the findings and records the result. The result is zero
// when the verification did not come to one.
func runVerify(ctx context.Context, j *catalog.Journal, o verify.Options) (store.Verification,
	error) {
	o.Progress = j.Progress
	result, err := verify.Run(ctx, o)
	if err != nil {
		return store.Verification{}, err
	}
	if until := result.Retained.Until; !until.IsZero() {
		err = o.Catalog.UpdateOperation(ctx, j.Operation(),
			func(op *catalog.Operation) { op.RetainedUntil = until.UTC() })
	}
	err = errors.Join(err, j.EmitFindings(ctx, result.Findings))
	further, recordErr := verify.Record(ctx, o, result)
	return result.Verification, errors.Join(result.Err(), err, recordErr, j.EmitFindings(ctx, further))
}

// sourceName returns the display name of a source in the index, or "".
func sourceName(ctx context.Context, c *catalog.Catalog, source string) string {
	if list, err := c.Snapshots(ctx, catalog.SnapshotFilter{Source: source, Limit: 1}); err == nil &&
		len(list) > 0 {
		return list[0].SourceName
	}
	return ""
}

// mayRead returns an error for a snapshot that no trusted key signed: nothing inside it is read
// (invariant I8: signature first). Without trusted keys, and for a plain store, nobody asked for
// that; what changes a management cluster requires the signature itself.
func mayRead(st *store.Store, e store.Signed) error {
	if e.Trust == store.Unchecked || !st.Encrypted() {
		return nil
	}
	return e.RequireTrusted()
}
