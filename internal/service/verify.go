package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// wantedVerify is what somebody, or the daemon by itself, wants verified.
type wantedVerify struct {
	location, source, id string // names, as in a request
	level                store.CheckLevel
	percent              int // of the packs, at level sample; 0 for the default
	identity             []byte
	noRecord             bool
	// ended is told what it came to, once that is on record: "" when it did not come to an end. nil
	// tells nobody.
	ended func(outcome store.CheckOutcome, err error)
}

// beginVerify begins the operation that verifies a snapshot.
func (s *Server) beginVerify(ctx context.Context, w wantedVerify) (*mgmtv1.Operation, error) {
	location, err := s.location(w.location)
	if err != nil {
		return nil, err
	}
	st, err := s.openLocation(ctx, location, w.identity, false)
	if err != nil {
		return nil, err
	}
	if w.level != store.CheckStructure && st.Encrypted() && len(w.identity) == 0 {
		return nil, &Error{Reason: ReasonIdentity, Message: "this level of verify reads what is " +
			"encrypted, and there is no identity", Hint: "give --identity, or verify with --level structure"}
	}
	percent := 100
	switch {
	case w.percent < 0 || w.percent > 100 || w.percent > 0 && w.level != store.CheckSample:
		return nil, &Error{Reason: ReasonUsage, Message: "the percentage is of a sample, and " +
			"from 1 to 100", Hint: "give --level sample --percent 25, for example; --level full " +
			"reads everything"}
	case w.level == store.CheckSample:
		percent = cmp.Or(w.percent, snapshot.DefaultSample)
	}
	source, err := findSource(ctx, st, w.source)
	if err != nil {
		return nil, err
	}
	e, err := findSnapshot(ctx, st, source, w.id)
	damaged, isDamaged := errors.AsType[*store.CorruptError](err)
	if err != nil && !isDamaged {
		return nil, err
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	var forged error
	name := e.Source.Name
	if !isDamaged {
		forged = mayRead(st, e)
	}
	if isDamaged || forged != nil { // what it says of itself is nobody's word
		name = sourceName(ctx, c, source)
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindVerify, Source: catalog.Side{Name: name, UID: source}, Store: st.ID(),
		Location: location.Name, SnapshotID: string(e.ID),
	})
	if err != nil {
		return nil, err
	}
	v := &verifying{catalog: c, store: st, envelope: e, forged: forged, rows: s.cfg.Rows,
		record:  !w.noRecord,
		percent: percent, check: store.Check{Level: w.level, Writer: s.program()}}
	return s.startThen(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		v.journal = j
		var err error
		if isDamaged {
			v.of, v.what = 1, "keys"
			v.find(object.Error, object.CodeDamaged, "", object.Ref{}, damaged.Key+": "+damaged.Reason,
				"somebody changed the envelope, or the store lost it: use another snapshot")
			err = v.notWhole(ctx)
		} else {
			err = v.run(ctx)
		}
		// With no name it was forged, or nothing is known of its source: then it is only counted.
		s.metrics.verifyEnded(location.Name, name, name != "" && (w.id == "" || w.id == latest), v.check)
		return err
	}, func(err error) {
		if w.ended != nil {
			w.ended(v.check.Outcome, err)
		}
	})
}

// sourceName is the display name that the index knows of a source, or "".
func sourceName(ctx context.Context, c *catalog.Catalog, source string) string {
	if list, err := c.Snapshots(ctx, catalog.SnapshotFilter{Source: source, Limit: 1}); err == nil &&
		len(list) > 0 {
		return list[0].SourceName
	}
	return ""
}

// verifying is a verify and what it has found so far.
type verifying struct {
	catalog  *catalog.Catalog
	journal  *catalog.Journal
	store    *store.Store
	envelope store.Signed // zero when it is damaged
	forged   error        // why nobody vouches for the envelope; nil when somebody does
	rows     *capi.Table
	record   bool
	percent  int // of the packs whose objects are compared

	check    store.Check // its outcome is set when the verify has come to one
	findings []object.Finding
	bad, of  int
	what     string
}

// find adds a finding. key is the one of the store that it is about, if any.
func (v *verifying) find(severity object.Severity, code object.Code, key store.Key, ref object.Ref,
	message,
	hint string) {
	v.findings = append(v.findings, object.Finding{Severity: severity, Code: code, Ref: ref,
		Message: message, Hint: hint})
	v.check.Findings++
	if named := (store.CheckedKey{Code: string(code), Key: string(key)}); severity >= object.Error {
		v.check.First = slices.Insert(v.check.First, min(v.bad, len(v.check.First)), named)
		v.bad++
	} else {
		v.check.First = append(v.check.First, named)
	}
}

// run checks the signature of the snapshot, and what the level says. It reports all findings of a
// level before it fails.
func (v *verifying) run(ctx context.Context) error {
	if untrusted, ok := errors.AsType[*store.TrustError](v.envelope.RequireTrusted()); ok {
		f := object.Finding{Severity: object.Warning, Code: object.CodeSignature,
			Message: untrusted.Error(),
			Hint:    untrusted.Hint()}
		if v.forged != nil {
			f.Severity = object.Error
		}
		v.findings = append(v.findings, f)
	}
	broken, err := chain(ctx, v.catalog, v.store, v.envelope)
	if err != nil {
		return err
	}
	v.findings = append(v.findings, broken...)
	v.what = "keys"
	level := v.check.Level
	if level != store.CheckSample {
		if err := v.structure(ctx); err != nil {
			return err
		}
	}
	// else it is known to be of no use
	if v.bad == 0 && v.forged == nil && level != store.CheckStructure {
		v.what = "objects"
		if err := v.content(ctx); err != nil {
			return err
		}
	} else {
		v.check.Level = store.CheckStructure // no more was looked at
	}
	if v.bad > 0 {
		return v.notWhole(ctx)
	}
	if v.forged != nil {
		return errors.Join(v.emit(ctx), v.forged)
	}
	v.check.Outcome = store.CheckOK
	return errors.Join(v.emit(ctx), v.keep(ctx))
}

func (v *verifying) structure(ctx context.Context) error {
	report, err := v.store.VerifyStructure(ctx, v.envelope.Envelope,
		func(p store.VerifyProgress) {
			v.journal.Progress("keys checked", int64(p.Done),
				int64(p.Total))
		})
	if err != nil {
		return err
	}
	v.of, v.check.Keys, v.check.Bytes = report.Keys, int64(report.Keys), report.Bytes
	for _, f := range report.Findings {
		v.find(object.Error, f.Code, f.Key, object.Ref{}, fmt.Sprintf("%s: %s", f.Key, f.Message),
			"restore from another snapshot; older versions of the key may be in a versioned bucket")
	}
	return nil
}

// chain tells what is not there, or another one, beside a snapshot: the one before, by its
// envelope, and the newest, by what the catalog remembers. Neither makes the snapshot less than
// whole.
func chain(ctx context.Context, c *catalog.Catalog, st *store.Store, e store.Signed) (
	[]object.Finding, error) {
	keys, err := st.Snapshots(ctx, e.Source.UID)
	if err != nil {
		return nil, err
	}
	there := map[store.SnapshotID]store.EnvelopeKey{}
	for _, key := range keys {
		there[key.ID] = key
	}
	const hint = "if nobody deleted it on purpose, somebody hid it: look at the access log " +
		"of the store"
	var findings []object.Finding
	if e.Parent != nil {
		if key, ok := there[e.Parent.ID]; !ok {
			findings = append(findings, object.Finding{Severity: object.Info, Code: object.CodeChain,
				Message: fmt.Sprintf("the snapshot before it, %s (number %d), is not in the store", e.Parent.ID,
					e.Sequence-1), Hint: hint})
		} else if parent, err := st.GetEnvelope(ctx, key); err == nil &&
			parent.SHA256 != e.Parent.SHA256 {
			findings = append(findings, object.Finding{Severity: object.Warning, Code: object.CodeChain,
				Message: fmt.Sprintf("the snapshot before it, %s, is not the one that it was made after",
					e.Parent.ID),
				Hint: "somebody changed that envelope: do not restore from it, and look at the access log " +
					"of the store"})
		} // one that cannot be read is for the verify of that one to tell
	}
	newest, err := c.Snapshots(ctx, catalog.SnapshotFilter{StoreID: st.ID(), Source: e.Source.UID,
		Limit: 1})
	if err != nil {
		return nil, err
	}
	for _, s := range newest {
		if _, ok := there[store.SnapshotID(s.ID)]; !ok && s.Sequence > e.Sequence {
			findings = append(findings, object.Finding{Severity: object.Warning, Code: object.CodeChain,
				Message: fmt.Sprintf("a later snapshot, %s (number %d), was in the store and is not there now",
					s.ID, s.Sequence), Hint: hint})
		}
	}
	return findings, nil
}

// mayRead refuses what is inside a snapshot that no trusted key signed (invariant I8: signature
// first). Who gives no trusted keys, or reads a plain store, did not ask for that; what changes a
// management cluster asks anew.
func mayRead(st *store.Store, e store.Signed) error {
	if e.Trust == store.Unchecked || !st.Encrypted() {
		return nil
	}
	return e.RequireTrusted()
}

// content opens the snapshot and compares objects with their shards. Damage is a finding, also
// where it keeps the snapshot from being opened.
func (v *verifying) content(ctx context.Context) error {
	const useless = "do not restore from this snapshot"
	s, err := snapshot.Open(ctx, v.store, v.envelope.Envelope, v.rows)
	if corrupt, ok := errors.AsType[*store.CorruptError](err); ok {
		v.of = 1
		v.find(object.Error, object.CodeDamaged, keyOf(corrupt.Key), object.Ref{}, corrupt.Key+": "+
			corrupt.Reason, useless)
		return nil
	}
	if errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrStoreMissing) {
		v.of = 1
		v.find(object.Error, object.CodeMissing, "", object.Ref{}, err.Error(), useless)
		return nil
	}
	if err != nil {
		return err
	}
	r, err := s.Check(ctx, v.percent, func(done, total int64) {
		v.journal.Progress("objects checked",
			done, total)
	})
	if err != nil {
		return err
	}
	v.of, v.check.Objects = r.Objects, int64(r.Objects)
	for _, f := range r.Findings {
		severity, hint := object.Error, useless
		if f.Code == object.CodeEdges && !sameVersion(v.envelope.Writer, v.check.Writer) {
			severity, hint = object.Warning, "it was taken by another version ("+v.envelope.Writer+
				"), which may know other edges; a restore goes by those: verify with that version to be sure"
		}
		v.find(severity, f.Code, f.Pack, f.Ref, f.Message, hint)
	}
	return nil
}

// sameVersion tells whether two programs, as envelopes name them, are of one version.
func sameVersion(a, b string) bool {
	_, a, _ = strings.Cut(a, " ")
	_, b, _ = strings.Cut(b, " ")
	return a == b && a != ""
}

// keyOf takes a key out of an error, where it is one of the store's own; a tree may name anything.
func keyOf(text string) store.Key {
	key, err := store.ParseKey(text)
	if err != nil {
		return ""
	}
	return key
}

// keep notes the result in the catalog and, where it would count, records it in the store. A store
// that does not take it is no fault of the snapshot.
func (v *verifying) keep(ctx context.Context) error {
	v.check.Time = time.Now()
	result := catalog.Verification{Time: v.check.Time.UTC().Truncate(time.Millisecond),
		Level: v.check.Level, OK: v.check.Outcome == store.CheckOK}
	err := v.catalog.PutVerification(ctx, recordOf(v.envelope), result)
	if !v.record || !v.store.CanRecordChecks() {
		return err
	}
	if _, failed := v.store.PutCheck(ctx, v.envelope, v.check); failed != nil {
		f := object.Finding{Severity: object.Warning, Code: object.CodeNotRecorded,
			Message: failed.Error(),
			Hint: "the result is in this catalog only; look at what the store lets us write, or " +
				"give --no-record"}
		err = errors.Join(err, v.journal.Emit(ctx, catalog.FindingEvent("", f)))
	}
	return err
}

func (v *verifying) emit(ctx context.Context) error { return emit(ctx, v.journal, v.findings) }

// notWhole reports what is wrong, keeps the result, and makes the next snapshot of the source a
// full one: it would name the same keys. That a snapshot which was removed meanwhile is not whole
// says nothing about the store.
func (v *verifying) notWhole(ctx context.Context) error {
	if v.envelope.ID != "" {
		if gone, err := v.store.SnapshotGone(ctx, v.envelope.Key()); err != nil {
			return err
		} else if gone {
			return &Error{Reason: ReasonNotFound,
				Message: "the snapshot was removed while it was verified: " + v.envelope.Key().String(),
				Hint:    "verify another one; mgmtctl snapshot list shows them"}
		}
	}
	v.check.Outcome = store.CheckDamaged
	err := v.emit(ctx)
	if v.envelope.ID != "" && v.forged == nil {
		err = errors.Join(err, v.keep(ctx))
	}
	if v.envelope.ID != "" {
		err = errors.Join(err, v.catalog.ForgetSnapshotState(ctx, v.store.ID(), v.envelope.Source.UID))
	}
	return errors.Join(err, &Error{
		Reason: ReasonFindings, Message: fmt.Sprintf("%d of %d %s are not as they should be", v.bad, v.of,
			v.what), Hint: "do not rely on this snapshot; take a new one where snapshots are taken, with " +
			"mgmtctl snapshot create --full, or restore from another",
	})
}

func emit(ctx context.Context, j *catalog.Journal, findings []object.Finding) error {
	events := make([]catalog.Event, 0, len(findings))
	for _, f := range findings {
		events = append(events, catalog.FindingEvent(f.Unit, f))
	}
	return j.Emit(ctx, events...)
}
