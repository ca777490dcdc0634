package retention

import (
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
)

// decide returns a verdict for each snapshot of an inventory, as of a time. It returns a
// *RefusedError when a snapshot that Delete names has to stay.
func decide(o *Options, inv *inventory, now time.Time) ([]Verdict, error) {
	list := make([]Verdict, len(inv.snapshots))
	for i, s := range inv.snapshots {
		list[i].Snapshot = s
	}
	for rest := list; len(rest) > 0; {
		n := slices.IndexFunc(rest,
			func(v Verdict) bool { return v.Key.Source != rest[0].Key.Source })
		if n < 0 {
			n = len(rest)
		}
		source := rest[:n]
		rest = rest[n:]
		mandatoryReasons(o, inv, source, now)
		if o.Delete == nil {
			policyReasons(o, source, now)
		} else if err := selectForDelete(o, source, now); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// policyReasons gives the snapshots of one source the reasons of the policy and of their own
// expiry. Each scope counts by itself.
func policyReasons(o *Options, list []Verdict, now time.Time) {
	if o.Source != "" && list[0].Key.Source != o.Source {
		for i := range list {
			list[i].retain(Reason{Kind: NotRequested})
		}
		return
	}
	var usable []*Verdict
	for i := range list {
		if v := &list[i]; v.usable(o.Store) {
			usable = append(usable, v)
		}
	}
	for scope, of := range byScope(usable) {
		switch {
		case o.drops(of[0]):
		case scope == "":
			expiryReasons(of, UnknownScope, now)
		case of[0].Envelope.OfOperation() != "":
			expiryReasons(of, NoRule, now)
		default:
			scopeReasons(o, of, now)
		}
	}
}

// expiryReasons gives snapshots that only an expiry ends, or a deletion by name, their reasons;
// without is that of those that have no expiry. So it is with partial snapshots of earlier
// versions, since rules would count those of different namespaces together, and with those that an
// operation took for itself, which are no series.
func expiryReasons(list []*Verdict, without ReasonKind, now time.Time) {
	for _, v := range list {
		switch expires := v.Envelope.Expires; {
		case expires.IsZero():
			v.retain(Reason{Kind: without})
		case expires.After(now):
			v.retain(until(Unexpired, expires))
		}
	}
}

// scopeReasons gives the snapshots of one scope the reasons of the policy.
func scopeReasons(o *Options, list []*Verdict, now time.Time) {
	slices.SortStableFunc(list, func(a, b *Verdict) int { return b.taken().Compare(a.taken()) })
	times := make([]time.Time, len(list))
	for i, v := range list {
		times[i] = v.taken()
	}
	for i, rules := range o.Policy.Match(times) {
		v := list[i]
		for _, rule := range rules {
			v.retain(Reason{Rule, rule})
		}
		switch expires := v.Envelope.Expires; {
		case expires.After(now):
			v.retain(until(Unexpired, expires))
		case expires.IsZero() && o.Policy.IsZero():
			v.retain(Reason{Kind: NoRule})
		}
	}
}

// selectForDelete retains all snapshots of one source but those that Delete names. It returns a
// *RefusedError for a named one that has to stay.
func selectForDelete(o *Options, list []Verdict, now time.Time) error {
	for i := range list {
		v := &list[i]
		switch {
		case !slices.Contains(o.Delete, v.Key):
			v.retain(Reason{Kind: NotRequested})
			continue
		case !v.usable(o.Store) && !o.Damaged:
			return &RefusedError{Key: v.Key, Reason: "it is damaged, or not signed by a trusted key",
				Tip: "find out what it is before you delete it", TipKey: object.HintDeleteDamaged}
		case !v.usable(o.Store):
			v.Reasons = slices.DeleteFunc(v.Reasons,
				func(r Reason) bool { return r.Kind == Unreadable || r.Kind == Untrusted })
			// A writer that trusts another key may have it as a parent.
			v.retainForGrace(v.Modified, now, o.Grace)
		}
		if len(v.Reasons) > 0 {
			return v.Reasons[0].refused(v.Key)
		}
	}
	return nil
}
