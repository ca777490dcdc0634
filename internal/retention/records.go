package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// recordClasses are what a finding about unusable records says of each class.
var recordClasses = []struct {
	class store.Class
	says  string
}{
	{store.ClassPin, "%d pins are damaged or not signed by a trusted key, and pin all the same, " +
		"such as %s: %v"},
	{store.ClassVerification, "%d results of verifies are damaged or not signed by a trusted key, " +
		"and do not count, such as %s: %v"},
	{store.ClassOwner, "%d ownership records are damaged or not signed by a trusted key, and are " +
		"not obeyed, such as %s: %v"},
	{store.ClassOperation, "%d records of operations are damaged or not signed by a trusted key, " +
		"and are not read, such as %s: %v"},
}

// checkRecords warns of records that do not count: one finding for each class, since somebody may
// write any number of them. A prune is what reads a store as a whole. A deletion by name does not.
func (g *garbage) checkRecords(ctx context.Context, o *Options) error {
	if o.Delete != nil {
		return nil
	}
	if why := o.Store.MarkerOverwritten(); why != nil {
		g.warnings = append(g.warnings, Overwritten(why))
	}
	unusable, err := o.Store.UnusableRecords(ctx)
	if err != nil {
		return err
	}
	byClass := map[store.Class][]store.UnusableRecord{}
	for _, r := range unusable {
		byClass[r.Class] = append(byClass[r.Class], r)
	}
	for _, c := range recordClasses {
		list := byClass[c.class]
		if len(list) == 0 {
			continue
		}
		last := list[len(list)-1]
		g.warnings = append(g.warnings, object.Finding{Severity: object.Warning,
			Code: object.CodeRecordUnusable, Message: fmt.Sprintf(c.says, len(list), last.Key, last.Err),
			Hint: "find out who wrote them, and whether the bucket has older versions of them"})
	}
	return nil
}

// Overwritten returns the finding about a store that was opened by an older version of mgmtd.json,
// and why the current one does not count.
func Overwritten(why error) object.Finding {
	return object.Finding{Severity: object.Warning, Code: object.CodeStoreOverwritten,
		Message: fmt.Sprintf("an older version of mgmtd.json is read: %v", why),
		Hint:    "find out who writes to the bucket, then repair the store"}
}

// checkTimes warns of snapshots that state a time which is still to come by the clock of the
// storage. Their numbers say which of them is the newest, and their age counts from when the
// storage received them; but names and lists show the time that they state.
func (g *garbage) checkTimes(o *Options, present []Snapshot, now time.Time) {
	n, last := 0, Snapshot{}
	for _, s := range present {
		if s.usable(o.Store) && s.Key.Time.Sub(now) > maxClockSkew {
			n, last = n+1, s
		}
	}
	if n == 0 {
		return
	}
	g.warnings = append(g.warnings, object.Finding{Severity: object.Warning, Code: object.CodeClock,
		Message: fmt.Sprintf("%d snapshots state a time that is still to come, such as %s", n, last.Key),
		Hint: "the clock of the host that took them was ahead: set it; they are used and removed in " +
			"the order of their numbers all the same"})
}
