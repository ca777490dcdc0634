package retention

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/store"
)

// pruneReads is how many envelopes and trees are read, and keys deleted, at once: each is a small
// request.
const pruneReads = 8

// look lists the snapshots of all sources, reads the envelopes that were not read before, and lists
// the pins.
func (p *pruner) look(ctx context.Context) error {
	p.looked = p.Now()
	stored, err := p.Store.StoredSnapshots(ctx)
	if err != nil {
		return err
	}
	if err := p.lookForPins(ctx); err != nil {
		return err
	}
	if p.used, err = p.InUse(ctx); err != nil {
		return err
	}
	list := make([]Verdict, len(stored))
	var mu sync.Mutex
	var done int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pruneReads)
	for i, s := range stored {
		if known, ok := p.read[s.Key]; ok && known.Size == s.Size && known.Envelope != nil {
			list[i] = known
			continue
		}
		g.Go(func() error {
			v := Verdict{StoredSnapshot: s}
			e, err := p.Store.GetEnvelope(gctx, s.Key)
			switch {
			case err == nil:
				v.Envelope = &e
			case notThere(err):
				gone, lookErr := p.Store.SnapshotGone(gctx, s.Key)
				if lookErr != nil {
					return lookErr
				}
				if gone { // another prune was faster
					break
				}
				v.Err = err
			case notReadable(err):
				v.Err = err
			default:
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			list[i], done = v, done+1
			p.Progress("envelopes read", done, int64(len(stored)))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(v Verdict) bool { return v.Envelope == nil && v.Err == nil })
	slices.SortFunc(list, bySourceAndTime)
	p.read = map[store.EnvelopeKey]Verdict{}
	for _, v := range list {
		p.read[v.Key] = v
	}
	p.result.Snapshots = list
	return nil
}

// lookForPins lists the pins and reads why they are there. One that cannot be read, or that nobody
// knows who signed, pins all the same.
func (p *pruner) lookForPins(ctx context.Context) error {
	pins, err := p.Store.Pins(ctx, "")
	if err != nil {
		return err
	}
	p.pins = map[store.EnvelopeKey]string{}
	for k := range pins {
		pin, err := p.Store.GetPin(ctx, k)
		switch {
		case err == nil && pin.Reason == "":
			p.pins[k] = keepPinned
		case err == nil:
			p.pins[k] = keepPinned + ": " + pin.Reason
		case notReadable(err):
			p.pins[k] = keepPinned + ", though the pin is damaged"
		case notThere(err):
			// taken away just now, or the storage does not find it just now: its being in the list
			// counts
			p.pins[k] = keepPinned
		default:
			return err
		}
	}
	return nil
}

// notReadable tells that it is the envelope or the tree that is wrong, not the way to it.
func notReadable(err error) bool {
	_, corrupt := errors.AsType[*store.CorruptError](err)
	_, format := errors.AsType[*store.FormatError](err)
	return corrupt || format || errors.Is(err, store.ErrForeign)
}

// notThere tells that a key is not found in a store that is there.
func notThere(err error) bool {
	return errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrStoreMissing)
}

// decide finds the reasons for which each snapshot stays, as of a time.
func (p *pruner) decide(now time.Time) error {
	list := p.result.Snapshots
	for from := 0; from < len(list); {
		to := from
		for to < len(list) && list[to].Key.Source == list[from].Key.Source {
			list[to].Keep, list[to].Pinned = nil, false
			to++
		}
		source := list[from:to]
		from = to
		p.protect(source, now)
		if p.Delete == nil {
			p.applyPolicy(source, now)
		} else if err := p.choose(source, now); err != nil {
			return err
		}
	}
	return nil
}

// The reasons of protect, those that have more to say by how they begin.
const (
	keepPinned     = "pinned"
	keepInUse      = "in use by operation "
	keepUnreadable = "unreadable"
	keepUntrusted  = "not trusted"
	keepNewest     = "newest"
	keepWhole      = "newest whole one"
	keepLatest     = "newest to the storage"
	keepVerified   = "newest verified"
	keepGrace      = "grace until "
)

// protect finds, for the snapshots of a source, the newest first, the reasons that nobody can set
// aside.
func (p *pruner) protect(list []Verdict, now time.Time) {
	superseded := time.Time{} // when the first came that is newer; zero while there is none
	whole, verified, verifiedWhole := false, false, false
	// by the clock of the storage: a host with a wrong one, or a liar, dates snapshots as he likes
	latest := -1
	for i := range list {
		if list[i].usable(p.Store) && (latest < 0 || list[i].Modified.After(list[latest].Modified)) {
			latest = i
		}
	}
	for i := range list {
		v := &list[i]
		keep := func(reason string) { v.Keep = append(v.Keep, reason) }
		if why, pinned := p.pins[v.Key]; pinned {
			v.Pinned = true
			keep(why)
		}
		if op := p.used[v.Key.ID]; op != "" {
			keep(keepInUse + op)
		}
		if !v.usable(p.Store) {
			if v.Envelope == nil {
				keep(keepUnreadable)
			} else {
				keep(keepUntrusted)
			}
			continue
		}
		if superseded.IsZero() {
			keep(keepNewest)
		}
		if isWhole := !v.Envelope.Partial; isWhole && !whole {
			if whole = true; !superseded.IsZero() {
				keep(keepWhole)
			}
		}
		if p.Verified(v.Key) && (!verified || !verifiedWhole && !v.Envelope.Partial) {
			verified, verifiedWhole = true, verifiedWhole || !v.Envelope.Partial
			keep(keepVerified)
		}
		if i == latest && !superseded.IsZero() {
			keep(keepLatest)
		}
		if !superseded.IsZero() {
			if v.Modified.After(superseded) {
				p.keepForGrace(v, v.Modified, now) // it came after those that say they are newer
			} else {
				p.keepForGrace(v, superseded, now)
			}
		}
		if superseded.IsZero() || v.Modified.Before(superseded) {
			superseded = v.Modified
		}
	}
}

// keepForGrace keeps a snapshot that a run may have as its base which began before a time.
func (p *pruner) keepForGrace(v *Verdict, before, now time.Time) {
	if ends := before.Add(p.Grace); !ends.Before(now) {
		v.Keep = append(v.Keep, keepGrace+ends.UTC().Format(time.RFC3339))
	}
}

func (v *Verdict) usable(st *store.Store) bool {
	return v.Envelope != nil &&
		st.CanBeParent(v.Envelope)
}

// told is when a snapshot was taken: what it says itself, but not later than the storage got it.
func told(v *Verdict) time.Time {
	if v.Modified.Before(v.Key.Time) {
		return v.Modified
	}
	return v.Key.Time
}

// applyPolicy finds the reasons of the rules and of the snapshots' own expiry, for the snapshots of
// a source, the newest first. Whole ones and partial ones count apart.
func (p *pruner) applyPolicy(list []Verdict, now time.Time) {
	if p.Source != "" && list[0].Key.Source != p.Source {
		for i := range list {
			list[i].Keep = append(list[i].Keep, "not asked")
		}
		return
	}
	for _, partial := range []bool{false, true} {
		var group []*Verdict
		for i := range list {
			if v := &list[i]; v.usable(p.Store) && v.Envelope.Partial == partial {
				group = append(group, v)
			}
		}
		slices.SortStableFunc(group, func(a, b *Verdict) int { return told(b).Compare(told(a)) })
		times := make([]time.Time, len(group))
		for i, v := range group {
			times[i] = told(v)
		}
		for i, reasons := range p.Policy.Keep(times) {
			v := group[i]
			v.Keep = append(v.Keep, reasons...)
			switch expires := v.Envelope.Expires; {
			case expires.After(now):
				v.Keep = append(v.Keep, "until "+expires.Format(time.RFC3339))
			case expires.IsZero() && p.Policy.IsZero():
				v.Keep = append(v.Keep, "no rule")
			}
		}
	}
}

// choose keeps, of the snapshots of a source, all but what Delete names, and refuses what may not
// go.
func (p *pruner) choose(list []Verdict, now time.Time) error {
	for i := range list {
		v := &list[i]
		switch {
		case !slices.Contains(p.Delete, v.Key):
			v.Keep = append(v.Keep, "not asked")
			continue
		case !v.usable(p.Store) && !p.Damaged:
			return &RefusedError{Key: v.Key, Reason: "it is damaged, or not signed by a trusted key",
				Tip: "look into it first; to delete it all the same, add --damaged"}
		case !v.usable(p.Store):
			v.Keep = v.Keep[:len(v.Keep)-1] // which says just that
			// somebody who trusts another key may have it as a base
			p.keepForGrace(v, v.Modified, now)
		}
		if len(v.Keep) > 0 {
			return refused(v.Key, v.Keep[0])
		}
	}
	return nil
}

// refused makes a sentence of a reason to keep.
func refused(key store.EnvelopeKey, reason string) error {
	e := &RefusedError{Key: key, Reason: "it is the " + reason + " of its source",
		Tip: "it can be deleted once there is a newer one, and the grace has passed"}
	switch {
	case strings.HasPrefix(reason, keepPinned):
		e.Reason, e.Tip = "it is pinned", "take the pin away with mgmtctl snapshot unpin"
	case strings.HasPrefix(reason, keepInUse):
		e.Reason, e.Tip = "it is "+reason, "let the operation end first; mgmtctl operation show tells "+
			"how it stands"
	case strings.HasPrefix(reason, keepGrace):
		e.Reason, e.Tip = "a snapshot that is being taken may need it ("+reason+")",
			"run it again after that time"
	}
	return e
}
