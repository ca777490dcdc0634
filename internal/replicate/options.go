package replicate

import (
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Options of Run.
type Options struct {
	From *store.Store
	// To is a copy of From, as store.OpenCopy opens it.
	To *store.Store
	// Last limits the run to that many of the newest snapshots of each source and scope; 0 means all.
	// Those that are left out are recorded as removed, and later runs do not copy them either.
	Last int
	Now  func() time.Time
	// Known returns the number of a snapshot of a store that this host has read before, so that it
	// need not read it again; nil knows none.
	Known func(storeID string, k store.EnvelopeKey) (sequence int64, ok bool)
	// Step runs fn, which writes; nil calls it.
	Step func(name string, fn func() error) error
	// OnCopy receives each snapshot that has come, as it is read from the copy; nil does nothing. Its
	// error ends the run.
	OnCopy func(e store.Signed) error
	// Progress receives what is counted, how far it is, and the total or 0.
	Progress func(what string, done, total int64)
}

func (o *Options) applyDefaults() error {
	if o.Last < 0 {
		return &store.UsageError{Text: "copy store: the number of snapshots is negative"}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Step == nil {
		o.Step = func(_ string, fn func() error) error { return fn() }
	}
	if o.Known == nil {
		o.Known = func(string, store.EnvelopeKey) (int64, bool) { return 0, false }
	}
	if o.OnCopy == nil {
		o.OnCopy = func(store.Signed) error { return nil }
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	return nil
}

// Result is what a run did, and what it found.
type Result struct {
	// Copied are the snapshots that this run brought, in the order in which they came.
	Copied []store.EnvelopeKey
	// Present counts the snapshots of the origin that were in the copy before.
	Present int
	// Removed counts those that are not copied, since a prune of the copy removed them or an earlier
	// run left them out.
	Removed int
	// LeftOut counts those that are older than Last allows.
	LeftOut int
	// Missing counts those that should be in the copy and are not, each of which has a finding.
	Missing int
	// Behind counts the snapshots that should be in the copy and are not, at any time of a run; -1
	// before they have been counted.
	Behind int
	// Untrusted counts envelopes that no trusted key signed.
	Untrusted int
	// Keys and Bytes are what was copied, besides the envelopes.
	Keys, Bytes         int64
	Pins, Verifications int
	// Explained says that numbers were recorded that are not in the copy on purpose.
	Explained bool
	Findings  []object.Finding
}

// Wrote reports whether the run changed the copy, but for records of its own.
func (r *Result) Wrote() bool {
	return r.Keys > 0 || len(r.Copied) > 0 || r.Pins > 0 || r.Verifications > 0 || r.Explained
}

// String is what the run did, in a sentence.
func (r *Result) String() string {
	text := fmt.Sprintf("snapshots copied: %d, with %d keys of %d bytes; there before: %d",
		len(r.Copied), r.Keys, r.Bytes, r.Present)
	for _, part := range []struct {
		count int
		what  string
	}{{r.Removed, "removed from the copy before"}, {r.LeftOut, "left out"},
		{r.Untrusted, "not trusted"}, {r.Missing, "not copied"}} {
		if part.count > 0 {
			text += fmt.Sprintf("; %s: %d", part.what, part.count)
		}
	}
	return text
}

// most is how many findings of one code and severity a run reports.
const most = 10

// capFindings leaves the first findings of each code and severity, and says how many more there
// were: anybody who may write to the origin can make as many as he likes.
func (r *Result) capFindings() {
	type kind struct {
		code     object.Code
		severity object.Severity
	}
	count := map[kind]int{}
	var list []object.Finding
	for _, f := range r.Findings {
		k := kind{f.Code, f.Severity}
		if count[k]++; count[k] <= most {
			list = append(list, f)
		}
	}
	for _, f := range slices.Clone(list) {
		k := kind{f.Code, f.Severity}
		if more := count[k] - most; more > 0 {
			list = append(list, object.Finding{Severity: f.Severity, Code: f.Code,
				Message: fmt.Sprintf("there are %d more like these", more), Hint: f.Hint})
			delete(count, k)
		}
	}
	r.Findings = list
}

func (r *Result) report(severity object.Severity, code object.Code, message, hint string) {
	r.Findings = append(r.Findings, object.Finding{Severity: severity, Code: code, Message: message,
		Hint: hint})
}
