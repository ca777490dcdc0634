package retention

import (
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
)

// mandatoryReasons gives the snapshots of one source, newest first, the reasons to stay that no
// policy and no deletion overrides.
func mandatoryReasons(o *Options, inv *inventory, list []Verdict, now time.Time) {
	var usable []*Verdict
	for i := range list {
		v := &list[i]
		if pin, ok := inv.pins[v.Key]; ok {
			v.Pinned = true
			v.retain(pin)
		}
		if operation := inv.used[v.Key.ID]; operation != "" {
			v.retain(Reason{InUse, operation})
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
	if len(usable) == 0 {
		return
	}
	usable[0].retain(Reason{Kind: Newest})
	retainNewestWhole(usable)
	retainNewestVerified(usable, o.Verified)
	retainNewestStored(usable)
	retainPossibleParents(usable, now, o.Grace)
}

// retainNewestWhole retains the newest snapshot that is not partial.
func retainNewestWhole(usable []*Verdict) {
	for i, v := range usable {
		if !v.Envelope.Partial {
			if i > 0 {
				v.retain(Reason{Kind: NewestWhole})
			}
			return
		}
	}
}

// retainNewestVerified retains the newest verified snapshot, and the newest verified one that is
// not partial.
func retainNewestVerified(usable []*Verdict, verified func(store.EnvelopeKey) bool) {
	found, foundWhole := false, false
	for _, v := range usable {
		whole := !v.Envelope.Partial
		if verified(v.Key) && (!found || !foundWhole && whole) {
			found, foundWhole = true, foundWhole || whole
			v.retain(Reason{Kind: NewestVerified})
		}
	}
}

// retainNewestStored retains the snapshot that the storage received last. A host with a wrong
// clock, or an attacker, can date its snapshots in the future, where they are the newest for ever.
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
