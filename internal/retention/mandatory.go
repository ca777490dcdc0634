package retention

import (
	"maps"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
)

// mandatoryReasons gives the snapshots of one source the reasons to stay that no policy and no
// deletion overrides.
func mandatoryReasons(o *Options, inv *inventory, list []Verdict, now time.Time) {
	var usable []*Verdict
	for i := range list {
		v := &list[i]
		if pin, ok := inv.pins[v.Key]; ok {
			v.Pinned = true
			v.retain(pin)
		}
		if operation := neededBy(inv.used, v); operation != "" {
			v.retain(Reason{InUse, operation})
		} else if operation = neededBy(inv.hiddenUsed, v); operation != "" {
			v.retain(Reason{InUse, operation + ", though somebody hid its records"})
		}
		switch {
		case v.usable(o.Store):
			usable = append(usable, v)
		case v.Envelope == nil:
			v.retain(Reason{Kind: Unreadable})
		default:
			v.retain(Reason{Kind: Untrusted})
		}
	}
	for _, of := range byScope(usable) {
		if of[0].Envelope.OfOperation() != "" {
			for _, v := range of { // no run has it as its parent, but one may be about to name it as used
				v.retainForGrace(v.Modified, now, o.Grace)
			}
			continue
		}
		if !o.drops(of[0]) {
			of[0].retain(Reason{Kind: Newest})
			retainNewestVerified(of, o.Verified)
			retainNewestStored(of)
		}
		retainPossibleParents(of, now, o.Grace)
	}
}

// neededBy returns the operation that needs a snapshot: one that names it, or that took it for
// itself and is not at its end. It is empty when there is none.
func neededBy(used map[string]store.SnapshotID, v *Verdict) string {
	if v.Envelope != nil {
		if _, needs := used[v.Envelope.OfOperation()]; needs {
			return v.Envelope.OfOperation()
		}
	}
	for _, operation := range slices.Sorted(maps.Keys(used)) {
		if used[operation] == v.Key.ID {
			return operation
		}
	}
	return ""
}

// byScope divides the usable snapshots of one source by what they were asked to hold, each group
// newest first: a snapshot of some namespaces never replaces one of others.
func byScope(usable []*Verdict) map[string][]*Verdict {
	groups := map[string][]*Verdict{}
	for _, v := range usable {
		groups[v.Envelope.ScopeID()] = append(groups[v.Envelope.ScopeID()], v)
	}
	for _, of := range groups {
		slices.SortFunc(of, func(a, b *Verdict) int {
			return store.CompareAge(b.Envelope, b.Modified, a.Envelope, a.Modified)
		})
	}
	return groups
}

// retainNewestVerified retains the newest snapshot that is known to be whole.
func retainNewestVerified(list []*Verdict, verified func(store.EnvelopeKey) bool) {
	for _, v := range list {
		if verified(v.Key) {
			v.retain(Reason{Kind: NewestVerified})
			return
		}
	}
}

// retainNewestStored retains the snapshot that the storage received last: a writer that knew no
// other snapshot gave it a number that is too low.
func retainNewestStored(usable []*Verdict) {
	latest := 0
	for i, v := range usable {
		if v.Modified.After(usable[latest].Modified) {
			latest = i
		}
	}
	if latest > 0 {
		usable[latest].retain(Reason{Kind: NewestStored})
	}
}

// retainPossibleParents retains the snapshots that a run in progress may have as its parent: those
// of which a newer one has not been there for the grace.
func retainPossibleParents(usable []*Verdict, now time.Time, grace time.Duration) {
	superseded := usable[0].Modified // when the first snapshot came that is newer
	for _, v := range usable[1:] {
		// One that came after snapshots that say they are newer may have been a parent since then.
		possibleUntil := superseded
		if v.Modified.After(superseded) {
			possibleUntil = v.Modified
		}
		v.retainForGrace(possibleUntil, now, grace)
		if v.Modified.Before(superseded) {
			superseded = v.Modified
		}
	}
}

// retainForGrace retains v for the grace after the last time at which a run may have begun that has
// it as its parent.
func (v *Verdict) retainForGrace(lastBegin, now time.Time, grace time.Duration) {
	if ends := lastBegin.Add(grace); !ends.Before(now) {
		v.retain(until(Grace, ends))
	}
}
