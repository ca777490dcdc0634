package preflight

import (
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
)

// Owners checks the ownership records of workload clusters.
type Owners struct {
	Records map[string]ownership.Record // by id of the workload cluster
	// Expected are the UIDs of the management clusters that may own a workload cluster here.
	Expected []string
	// Force turns what it holds into warnings.
	Force object.Forced
	// Elsewhere and Damaged are the hints of these findings.
	Elsewhere, Damaged string
}

// Check returns the finding about one workload cluster, without its ref and unit; ok is false when
// its record is as expected, or when there is none.
func (o Owners) Check(workloadID string) (f object.Finding, ok bool) {
	r, recorded := o.Records[workloadID]
	switch {
	case !recorded:
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
	if o.Force.Has(f.Code) {
		f.Severity = object.Warning
	}
	return f, true
}
