package verify

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Options of Run and Record.
type Options struct {
	Store   *store.Store
	Rows    *capi.Table // what is known of kinds; nil is the built-in table
	Catalog *catalog.Catalog
	// Snapshot is the envelope of the snapshot. It is zero when that cannot be read: Unreadable.
	Snapshot store.Signed
	// About are findings of the search for the snapshot; they are part of the result.
	About []object.Finding
	// Unreadable is why the envelope cannot be read.
	Unreadable *store.CorruptError
	// Untrusted is why the content of the snapshot must not be read: its signature is not accepted.
	Untrusted error
	Level     store.VerifyLevel
	// Percent of the packs whose objects are compared; see Percent.
	Percent int
	// Subset of the packs whose objects are compared at level sample, instead of Percent.
	Subset store.Subset
	// Writer names this program and its version.
	Writer string
	// CatalogOnly leaves the result out of the store.
	CatalogOnly bool
	// Progress receives what is counted, how far it is, and the total.
	Progress func(what string, done, total int64)
}

// Percent returns how much of the packs a level reads, given the percentage that was asked for, or
// 0. It returns a *store.UsageError when that makes no sense.
func Percent(level store.VerifyLevel, percent int) (int, error) {
	switch {
	case percent < 0 || percent > 100 || percent > 0 && level != store.LevelSample:
		return 0, &store.UsageError{Text: "the percentage is of a sample, and from 1 to 100",
			Tip: "choose the level sample and a percentage such as 25; the level full reads all"}
	case level == store.LevelSample:
		return cmp.Or(percent, snapshot.DefaultSample), nil
	}
	return 100, nil
}

// CheckSubset returns a *store.UsageError for a subset that a level, or a percentage that was asked
// for, leaves without a meaning.
func CheckSubset(level store.VerifyLevel, percent int, subset store.Subset) error {
	if subset != (store.Subset{}) && (percent != 0 || level != store.LevelSample) {
		return &store.UsageError{Text: "a subset is of a sample, and replaces the percentage",
			Tip: "choose the level sample and no percentage; the level full reads all"}
	}
	return subset.Check()
}

// Result is what a verification found.
type Result struct {
	// Verification is what is recorded. Its level is structure when no more was checked. Its
	// outcome is empty when the signature alone is not accepted: that says nothing about the store.
	Verification store.Verification
	Findings     []object.Finding
	// Retained is until when the storage retains everything that the snapshot names.
	Retained store.Retained

	damaged, of int // how many of the checked things are damaged
	elsewhere   int // errors that are about the store, not about this snapshot
	what        string
	untrusted   error
}

// Err returns a *DamagedError, also for an error in Options.About, or why the signature is not
// accepted; nil when the snapshot is whole.
func (r *Result) Err() error {
	switch {
	case r.damaged > 0:
		return &DamagedError{Damaged: r.damaged, Of: r.of, What: r.what}
	case r.elsewhere > 0:
		return &DamagedError{Damaged: r.elsewhere, Of: r.elsewhere, What: "other envelopes"}
	}
	return r.untrusted
}

// add adds a finding about the snapshot itself. Its key is empty when it is about no single key.
func (r *Result) add(f store.Finding) {
	r.Findings = append(r.Findings, f.Finding)
	r.Verification.Findings++
	named := store.VerificationFinding{Code: string(f.Code), Key: string(f.Key)}
	if f.Severity < object.Error {
		r.Verification.First = append(r.Verification.First, named)
		return
	}
	// What the outcome is for comes first.
	r.Verification.First = slices.Insert(r.Verification.First,
		min(r.damaged, len(r.Verification.First)), named)
	r.damaged++
}

// run is one verification.
type run struct {
	Options
	Result
}

// Run verifies a snapshot and returns all findings of its level. It changes nothing. Errors are
// about the verification itself: a cancelled context, the store gone or not answering, a
// *RemovedError.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	r := &run{Options: o, Result: Result{what: "keys", untrusted: o.Untrusted,
		Verification: store.Verification{Level: o.Level, Writer: o.Writer}}}
	var err error
	if o.Unreadable == nil {
		err = r.verify(ctx)
	} else {
		r.of = 1
		r.add(store.Finding{Finding: object.Finding{Severity: object.Error, Code: object.CodeDamaged,
			Message: o.Unreadable.Key + ": " + o.Unreadable.Reason,
			Hint:    "somebody changed the envelope, or the store lost it: use another snapshot"}})
	}
	if err != nil {
		return nil, err
	}
	switch {
	case r.damaged > 0:
		r.Verification.Outcome = store.OutcomeDamaged
	case o.Untrusted == nil:
		r.Verification.Outcome = store.OutcomeOK
	}
	r.Verification.Time = time.Now()
	return &r.Result, nil
}

func (r *run) verify(ctx context.Context) error {
	for _, f := range r.About {
		r.Findings = append(r.Findings, f)
		r.Verification.Findings++
		if f.Severity >= object.Error {
			r.elsewhere++
		}
	}
	r.signature()
	if err := r.chain(ctx); err != nil {
		return err
	}
	if r.Level != store.LevelSample {
		if err := r.structure(ctx); err != nil {
			return err
		}
	}
	if err := r.retained(ctx); err != nil {
		return err
	}
	if r.damaged == 0 && r.Untrusted == nil && r.Level != store.LevelStructure {
		r.what = "objects"
		if err := r.content(ctx); err != nil {
			return err
		}
	} else {
		r.Verification.Level = store.LevelStructure // no more was checked
	}
	if r.damaged == 0 {
		return nil
	}
	// A prune may have removed the snapshot meanwhile: that it is not whole says nothing then.
	gone, err := r.Store.SnapshotGone(ctx, r.Snapshot.Key())
	if err == nil && gone {
		err = &RemovedError{Key: r.Snapshot.Key()}
	}
	return err
}

// signature reports a signature that no trusted key made.
func (r *run) signature() {
	untrusted, ok := errors.AsType[*store.TrustError](r.Snapshot.RequireTrusted())
	if !ok {
		return
	}
	f := object.Finding{Severity: object.Warning, Code: object.CodeSignature,
		Message: untrusted.Error(),
		Hint:    untrusted.Hint()}
	if r.Untrusted != nil {
		f.Severity = object.Error
	}
	r.Findings = append(r.Findings, f)
}

// structure checks that every key is there with the bytes of its name.
func (r *run) structure(ctx context.Context) error {
	report, err := r.Store.VerifyStructure(ctx, r.Snapshot.Envelope, func(p store.VerifyProgress) {
		r.Progress("keys checked", int64(p.Done), int64(p.Total))
	})
	if err != nil {
		return err
	}
	r.of, r.Verification.Keys, r.Verification.Bytes = report.Keys, int64(report.Keys), report.Bytes
	for _, f := range report.Findings {
		f.Hint = "restore from another snapshot; older versions of the key may be in a versioned bucket"
		r.add(f)
	}
	return nil
}

// content opens the snapshot and compares objects with their shards. Damage because of which the
// snapshot cannot be opened is a finding.
func (r *run) content(ctx context.Context) error {
	const useless = "do not restore from this snapshot"
	unusable := func(key store.Key, code object.Code, message string) {
		r.of = 1
		r.add(store.Finding{Key: key, Finding: object.Finding{Severity: object.Error, Code: code,
			Message: message, Hint: useless}})
	}
	s, err := snapshot.Open(ctx, r.Store, r.Snapshot.Envelope, r.Rows)
	if corrupt, ok := errors.AsType[*store.CorruptError](err); ok {
		unusable(storeKey(corrupt.Key), object.CodeDamaged, corrupt.Key+": "+corrupt.Reason)
		return nil
	}
	if store.IsMissing(err) {
		unusable("", object.CodeMissing, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	progress := func(done, total int64) { r.Progress("objects checked", done, total) }
	var report snapshot.Verification
	if r.Subset != (store.Subset{}) {
		report, err = s.VerifySubset(ctx, r.Subset, progress)
	} else {
		report, err = s.Verify(ctx, r.Percent, progress)
	}
	if err != nil {
		return err
	}
	r.of, r.Verification.Objects = report.Objects, int64(report.Objects)
	for _, f := range report.Findings {
		f.Hint = useless
		if f.Code == object.CodeEdges && !sameVersion(r.Snapshot.Writer, r.Writer) {
			f.Severity, f.Hint = object.Warning, "it was taken by another version ("+r.Snapshot.Writer+
				"), which may know other edges; a restore uses those: verify with that version to be sure"
		}
		r.add(f)
	}
	return nil
}

// sameVersion reports whether two programs, as envelopes name them, have one version.
func sameVersion(a, b string) bool {
	_, a, _ = strings.Cut(a, " ")
	_, b, _ = strings.Cut(b, " ")
	return a == b && a != ""
}

// storeKey returns the key that an error names, if it is one of the store's own: a tree may name
// anything.
func storeKey(text string) store.Key {
	key, err := store.ParseKey(text)
	if err != nil {
		return ""
	}
	return key
}
