package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// snapshotRequest is a snapshot that an operator or a schedule asks for.
type snapshotRequest struct {
	source, location string // names
	namespaces       []string
	selector         string
	full             bool // write everything
	ttl              time.Duration
	// schedule is the name of the schedule, interval the time between two of its runs; empty when
	// an operator asks.
	schedule string
	interval time.Duration
}

// beginSnapshot begins the operation that takes a snapshot.
func (s *Server) beginSnapshot(ctx context.Context, w snapshotRequest) (*operationRun, error) {
	scope, err := scopeOf(w.namespaces, w.selector)
	if err != nil {
		return nil, err
	}
	location, err := s.location(w.location)
	if err != nil {
		return nil, err
	}
	source, err := s.connect(ctx, sourceSide, w.source)
	if err != nil {
		return nil, err
	}
	if o := location.Store; o.SigningKeyFile == "" && !o.Plain {
		return nil, &Error{Reason: ReasonUsage, Message: "no signing key: a restore refuses snapshots " +
			"that are not signed", Hint: "give one, or make one first", HintKey: object.HintNewSigningKey}
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	// last: it makes the store when there is none
	st, err := s.openLocation(ctx, location, nil, true)
	if err == nil {
		err = st.AcceptsSnapshots()
	}
	if err != nil {
		return nil, err
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindSnapshot, Source: catalog.Side{Name: source.Name(), UID: source.UID()},
		Store: st.ID(), Location: location.Name, Schedule: w.schedule,
	})
	if err != nil {
		return nil, err
	}
	s.metrics.snapshots.attempts.WithLabelValues(w.schedule).Inc()
	return s.start(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		o := snapshot.OptionsFor(source, s.cfg.Rows)
		o.Store, o.Scope = st, scope
		o.Full, o.TTL, o.Interval, o.Schedule = w.full, w.ttl, w.interval, w.schedule
		return s.snapshotInto(ctx, c, j, location.Name, o)
	})
}

// scopeOf reads what a snapshot or a coverage is asked to hold. Errors are usage errors.
func scopeOf(namespaces []string, selector string) (capture.Scope, error) {
	parsed, err := graph.ParseSelector(selector)
	if err != nil {
		return capture.Scope{}, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("selector %q: %v",
			selector, err), Hint: "use the syntax of Kubernetes label selectors", err: err}
	}
	return capture.Scope{Namespaces: namespaces, Selector: parsed}, nil
}

// snapshotInto takes the snapshot of an operation. It compares what this host knows of the store
// with what the store shows, and updates the metrics.
func (s *Server) snapshotInto(ctx context.Context, c *catalog.Catalog, j *catalog.Journal,
	location string, o snapshot.Options) (err error) {
	began := time.Now()
	var r *snapshot.Result
	// However it ends, also by a panic: then r is nil.
	defer func() { s.metrics.snapshotEnded(o.Schedule, began, time.Since(began), r, err) }()
	o.Writer, o.Progress = s.program(), j.Progress
	o.State, o.Cache = c.SnapshotState(o.Store.ID(), o.SourceUID), s.runCache
	known, err := readKnown(ctx, c, o.Store, o.SourceUID)
	if err != nil {
		return err
	}
	s.metrics.snapshotsMissing(location, o.SourceName, len(known.missing))
	o.Known = known.highest
	r, err = takeSnapshot(ctx, c, j, o, missingFindings(known.missing)...)
	if err != nil {
		return err
	}
	s.metrics.snapshotTaken(location, o.SourceName, r.Signed)
	s.changed(location, 1)
	if s.verifier != nil {
		s.verifier.NewSnapshot(location, o.SourceUID)
	}
	return nil
}

// program is what envelopes say of who wrote them.
func (s *Server) program() string {
	name := "mgmtctl "
	if s.cfg.Daemon {
		name = "mgmtd "
	}
	// Snapshots of other rows may have other edges of the same objects.
	return strings.TrimSpace(name + s.cfg.Version + " " + s.cfg.Rows.Tag())
}

// takeSnapshot takes a snapshot, and records it together with findings about the store.
func takeSnapshot(ctx context.Context, c *catalog.Catalog, j *catalog.Journal, o snapshot.Options,
	about ...object.Finding) (*snapshot.Result, error) {
	r, err := snapshot.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // it is stored: what nobody knows of is not missed when it goes
	if err := c.UpdateOperation(ctx, j.Operation(),
		func(op *catalog.Operation) { op.SnapshotID = string(r.ID) }); err != nil {
		return r, err
	}
	if err := c.PutSnapshot(ctx, catalog.RecordOf(r.Signed)); err != nil {
		return r, err
	}
	var events []catalog.Event
	for _, f := range slices.Concat(about, overwritten(o.Store),
		passedOver(r.PassedOver, object.Warning)) {
		events = append(events, catalog.FindingEvent("", f))
	}
	for _, m := range r.Missing {
		events = append(events, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
			Code: object.CodeMissing, Ref: m.Ref,
			Message: fmt.Sprintf("%s needs it (%s) and it is not in the snapshot", m.By, m.Field),
			Hint:    "the coverage of the source shows why"}))
	}
	for _, f := range slices.Concat(relatedFindings(r), omittedFindings(r.Omitted)) {
		events = append(events, catalog.FindingEvent("", f))
	}
	if f, ok := checkSelected(o.Scope, r.Counts); ok {
		events = append(events, catalog.FindingEvent("", f))
	}
	if f, ok := checkShrunk(r.Counts, r.Before); ok {
		events = append(events, catalog.FindingEvent("", f))
	}
	if r.NotRemembered != nil {
		events = append(events, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
			Code: object.CodeNotRemembered, Message: r.NotRemembered.Error(),
			Hint: "the next snapshot writes everything; check the catalog's disk"}))
	}
	return r, j.Emit(ctx, events...)
}

// relatedFindings reports what a snapshot says of kinds of which nothing is known: objects that are
// needed and cannot be restored, and kinds that were not read.
func relatedFindings(r *snapshot.Result) (findings []object.Finding) {
	for _, m := range r.NotRestorable {
		findings = append(findings, object.Finding{Severity: object.Warning,
			Code: object.CodeCapturedOnly, Ref: m.Ref,
			Message: fmt.Sprintf("%s needs it (%s), and nothing is known of its kind: it is captured and "+
				"not restored", m.By, m.Field),
			Hint: "add " + m.GroupKind().String() + " to spec.kinds of mgmtd"})
	}
	byReason := map[string][]string{}
	for _, k := range r.Unread {
		byReason[k.Reason] = append(byReason[k.Reason], k.String())
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		kinds := byReason[reason]
		findings = append(findings, object.Finding{Severity: object.Warning,
			Code: object.CodeKindsNotRead,
			Message: fmt.Sprintf("%d kinds were not searched for objects that belong to workload "+
				"clusters, since %s: %s", len(kinds), reason, strings.Join(kinds, ", ")),
			Hint: "allow to list them; nothing is known of these kinds, so that a restore does not need " +
				"them"})
	}
	return findings
}

// reportedOmitted is how many omitted objects are findings of their own: a tenant may make many.
const reportedOmitted = 20

// omittedFindings reports objects that have too many references.
func omittedFindings(omitted []graph.Omitted) (findings []object.Finding) {
	for i, o := range omitted {
		f := object.Finding{Severity: object.Warning, Code: object.CodeTooManyReferences, Ref: o.Ref,
			Unit: o.Unit, Message: fmt.Sprintf("it has more than %d owners or references, and is not in "+
				"the snapshot", capture.MaxReferences),
			Hint: "remove references that it does not need; until then its workload cluster is " +
				"incomplete in snapshots"}
		if i == reportedOmitted {
			f.Ref, f.Unit = object.Ref{}, ""
			f.Message = fmt.Sprintf("%d more objects have more than %d owners or references, and are not "+
				"in the snapshot", len(omitted)-i, capture.MaxReferences)
			return append(findings, f)
		}
		findings = append(findings, f)
	}
	return findings
}

// checkSelected returns the finding about a selector that selects no workload cluster: a typing
// error looks like labels that nobody has given yet.
func checkSelected(scope capture.Scope, now store.Counts) (object.Finding, bool) {
	if scope.Selector.Everything() || now.Units > 0 {
		return object.Finding{}, false
	}
	in := "of the source"
	if len(scope.Namespaces) > 0 {
		in = "in " + strings.Join(scope.Namespaces, ", ")
	}
	return object.Finding{Severity: object.Warning, Code: object.CodeNothingSelected,
		Message: fmt.Sprintf("the selector %q selects no workload cluster %s: the snapshot is empty",
			scope.Selector, in),
		Hint: "correct the selector, or the labels of the Clusters"}, true
}

// shrunkBy is how many objects a snapshot has less than the one before it, at least, to be reported
// as shrunk. Below that, a workload cluster that is deleted on purpose would be.
const shrunkBy = 100

// checkShrunk returns the finding about a snapshot that lacks most of what the one before it has:
// a deletion by mistake, or CRDs that are gone, looks to a snapshot like any other change.
func checkShrunk(now store.Counts, before *store.Counts) (object.Finding, bool) {
	if before == nil || before.Objects-now.Objects < shrunkBy || now.Objects*2 > before.Objects {
		return object.Finding{}, false
	}
	return object.Finding{Severity: object.Warning, Code: object.CodeShrunk,
		Message: fmt.Sprintf("it has %d objects in %d workload clusters; the snapshot before it has %d "+
			"in %d", now.Objects, now.Units, before.Objects, before.Units),
		Hint: "if nobody deleted them on purpose, pin the snapshot before it, so that no rule of " +
			"retention removes it"}, true
}
