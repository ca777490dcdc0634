package preflight

import (
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
)

// Owners checks the ownership records of workload clusters.
type Owners struct {
	Records map[string]ownership.Record // by id of the workload cluster
	// Expected are the UIDs of the management clusters that may own a workload cluster here.
	Expected []string
	// Force turns its findings into warnings: that about another owner only when it names this
	// one.
	Force object.Forced
	// Elsewhere and Damaged are the hints of these findings.
	Elsewhere, Damaged string
}

// Check returns the finding about one workload cluster, without its ref and unit; ok is false when
// its record is as expected, or when there is none. A record that went back, and that the operator
// has answered for, is checked like any other.
func (o Owners) Check(workloadID string) (f object.Finding, ok bool) {
	r, recorded := o.Records[workloadID]
	if !recorded {
		return f, false
	}
	f, ok = o.owner(r)
	if !r.WentBack() {
		return f, ok
	}
	why := ownership.WentBackError{Epoch: r.Epoch, Seen: r.Seen}
	back := object.Finding{Severity: object.Error, Code: object.CodeEpochWentBack, Message: why.Why(),
		Hint: why.Hint()}
	if o.Force.Has(back.Code) {
		back = o.Force.Override(back)
		if ok && f.Severity >= object.Error {
			return f, true
		}
	}
	return back, true
}

// Overridden is the evidence of whether a management cluster is gone that owns workload clusters by
// records which the operator overrides (invariant I1).
type Overridden struct {
	Owner object.Side
	Dial  Dial
	// Seen is when it was last known to live, by its snapshots and its ownership records; zero when
	// nothing shows that. Interval is that of the schedule of its snapshots.
	Seen     time.Time
	Interval time.Duration
	// Planned is Seen of the plan that is carried out; nil in the plan itself.
	Planned *time.Time
}

// AtWork returns the findings about a unit that the owner may reconcile.
func (o Overridden) AtWork(unit string, now time.Time) (findings []object.Finding) {
	name := fmt.Sprintf("management cluster %s (%s), which owns it,", o.Owner.Name, o.Owner.UID)
	add := func(code object.Code, message, hint string) {
		findings = append(findings, object.Finding{Severity: object.Error, Unit: unit, Code: code,
			Message: message, Hint: hint})
	}
	const stopped = "make sure that its controllers do not run"
	if o.Dial.Refuses {
		add(object.CodeOwnerRefuses, "an API server at the address of "+name+" answers and refuses the "+
			"credentials: it may well be at work", "use credentials that it accepts, or "+stopped)
	} else if o.Dial.Reconciles(unit) {
		add(object.CodeOwnerAnswers, name+" answers, and its Cluster is not paused there",
			"work with that management cluster, or move the workload cluster from it")
	}
	if o.Dial.Answers || o.Seen.IsZero() {
		return findings
	}
	if age := max(0, now.Sub(o.Seen)).Round(time.Second); age < recent(o.Interval) {
		add(object.CodeOwnerSeenRecently, fmt.Sprintf("%s was seen %s ago (by its newest snapshot or "+
			"ownership record): below %s it may well be at work", name, age, recent(o.Interval)), stopped)
	}
	if o.Planned != nil && o.Seen.After(*o.Planned) {
		add(object.CodeOwnerAnswers, name+" came back after this operation was planned: it was seen at "+
			o.Seen.UTC().Format("2006-01-02 15:04:05Z"), "fence the workload cluster there or shut that "+
			"management cluster down for good, then roll this operation back and plan again")
	}
	return findings
}

// Overrides returns the owner of a workload cluster whose record is another one than expected and
// is overridden by the operator; the zero side when there is none.
func (o Owners) Overrides(workloadID string) object.Side {
	r := o.Records[workloadID]
	if r.Damaged != nil || !r.Trusted || r.Epoch == 0 || slices.Contains(o.Expected, r.By.UID) ||
		!o.Force.HasFor(object.CodeOwnedElsewhere, r.By) {
		return object.Side{}
	}
	return r.By
}

// owner is Check for a record that is the newest one.
func (o Owners) owner(r ownership.Record) (f object.Finding, ok bool) {
	switch {
	case r.Damaged == nil && r.Epoch == 0:
		return f, false
	case r.Damaged != nil:
		f = object.Finding{Severity: object.Error, Code: object.CodeOwnerDamaged,
			Message: "its ownership record cannot be read: " + r.Damaged.Error(), Hint: o.Damaged}
	case slices.Contains(o.Expected, r.By.UID):
		return f, false
	default:
		f = object.Finding{Severity: object.Error, Code: object.CodeOwnedElsewhere,
			Message: fmt.Sprintf("its ownership record says since %s (epoch %d, operation %s) that "+
				"management cluster %s (%s) owns it", r.Time.UTC().Format("2006-01-02 15:04:05Z"), r.Epoch,
				r.Operation, r.By.Name, r.By.UID), Hint: o.Elsewhere}
		if !r.Trusted {
			f.Severity, f.Code = object.Warning, object.CodeOwnerUntrusted
			f.Hint = "no trusted key signed the record, so it is not obeyed; find out who wrote it"
		}
	}
	switch {
	case f.Code != object.CodeOwnedElsewhere:
		f = o.Force.Override(f)
	case o.Force.HasFor(f.Code, r.By):
		f.Severity, f.Message = object.Warning, f.Message+" (overridden)"
	case o.Force.Has(f.Code):
		f.Message += "; the override names " + o.Force[f.Code]
	}
	return f, true
}
