package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// newestCandidates is how many snapshots Newest compares by their sequence numbers: that many
	// with the latest times in their names, and that many that the storage received last. Of two
	// writers at once, or of one that was slow, the newest by either need not be the newest.
	newestCandidates = 3
	// newestReads limits how many envelopes Newest reads at once.
	newestReads = 64
)

// PassedOver is an envelope that Newest did not take into account, or only an older version of it,
// and why.
type PassedOver struct {
	Key EnvelopeKey
	Err error
}

// Which says which snapshots Newest chooses from; the zero value takes all.
type Which struct {
	// NotAfter leaves out those whose cut is later; zero leaves out none.
	NotAfter time.Time
	// Accept reports whether a snapshot counts; nil takes all. It is called for one after the other.
	Accept func(*Signed) bool
}

// Newest returns the newest snapshot of a source; nil when there is none. That is the one with the
// highest sequence number; of equal ones the one that the storage received last. Times in names
// decide nothing, since the clock of a writer may be wrong. Envelopes that cannot be read, are of
// another store, or that anybody could have written are passed over and returned: they stop neither
// a writer nor a reader. An envelope of a newer format that a trusted key signed is a *FormatError,
// and one that the storage denies is an error only where it denies all.
func (s *Store) Newest(ctx context.Context, source string, which Which) (*Signed, []PassedOver,
	error) {
	n := &newest{store: s, accept: which.Accept, read: map[EnvelopeKey]candidate{}}
	byName, err := s.ListedSnapshots(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	if at := which.NotAfter; !at.IsZero() {
		byName = slices.DeleteFunc(byName, func(k StoredSnapshot) bool { return k.Key.Time.After(at) })
	}
	slices.SortFunc(byName, func(a, b StoredSnapshot) int {
		return strings.Compare(b.Key.String(), a.Key.String())
	})
	byReceipt := slices.Clone(byName)
	slices.SortStableFunc(byReceipt, func(a, b StoredSnapshot) int {
		return b.Modified.Compare(a.Modified)
	})
	for batch := newestCandidates; ; batch = min(batch*2, newestReads) {
		unread := n.next(byName, batch)
		for _, stored := range n.next(byReceipt, batch) {
			if !slices.Contains(unread, stored) {
				unread = append(unread, stored)
			}
		}
		if len(unread) == 0 {
			return n.result()
		}
		if err := n.readAll(ctx, unread); err != nil {
			return nil, nil, err
		}
	}
}

// newest is one search of Newest.
type newest struct {
	store  *Store
	accept func(*Signed) bool
	read   map[EnvelopeKey]candidate
}

// candidate is an envelope that was read.
type candidate struct {
	envelope *Signed // nil: passed over, or not accepted
	received time.Time
	passed   error
	read     bool // it is trusted, accepted or not
	unread   bool // passed is not about what is stored: the storage does not give it
}

// next returns the next envelopes of a list to read, at most batch; none once the list has enough
// candidates.
func (n *newest) next(list []StoredSnapshot, batch int) (unread []StoredSnapshot) {
	found := 0
	for _, stored := range list {
		switch c, ok := n.read[stored.Key]; {
		case !ok:
			unread = append(unread, stored)
		case c.envelope != nil:
			found++
		}
		if len(unread) == batch || found == newestCandidates {
			break
		}
	}
	return unread
}

func (n *newest) readAll(ctx context.Context, unread []StoredSnapshot) error {
	read := make([]candidate, len(unread))
	g, ctx := task.WithContext(ctx)
	for i, stored := range unread {
		g.Go(func() (err error) {
			read[i], err = n.readOne(ctx, stored)
			return err
		})
	}
	err := g.Wait()
	for i, stored := range unread {
		c := read[i]
		if c.envelope != nil && n.accept != nil && !n.accept(c.envelope) {
			c.envelope = nil
		}
		n.read[stored.Key] = c
	}
	return err
}

func (n *newest) readOne(ctx context.Context, stored StoredSnapshot) (candidate, error) {
	c := candidate{received: stored.Modified}
	e, err := n.store.GetEnvelope(ctx, stored.Key)
	format, isFormat := errors.AsType[*FormatError](err)
	switch {
	case isFormat && format.Trusted:
		return c, err
	case IsMissing(err): // a prune has removed it since it was listed
		return c, nil
	case OfStore(ctx, err) != nil:
		return c, err
	case err != nil:
		c.passed, c.unread = err, !IsUnusable(err)
		return c, nil
	case !n.store.CanBeParent(&e):
		c.passed = e.Untrusted(e.Key().String())
	default:
		e.Received = stored.Modified
		c.envelope, c.passed, c.read = &e, e.Overwritten, true
	}
	return c, nil
}

func (n *newest) result() (*Signed, []PassedOver, error) {
	best := n.best(func(*Signed) bool { return true })
	passed, err := n.passedOver()
	return best, passed, err
}

// best returns the newest of the accepted envelopes that were read.
func (n *newest) best(accept func(*Signed) bool) *Signed {
	var best candidate
	for _, c := range n.read {
		if c.envelope != nil && accept(c.envelope) && (best.envelope == nil ||
			CompareAge(c.envelope, c.received, best.envelope, best.received) > 0) {
			best = c
		}
	}
	return best.envelope
}

// passedOver returns the envelopes that did not count, by key. It returns an error when none
// was read and the storage does not give one of them, which may be the newest.
func (n *newest) passedOver() ([]PassedOver, error) {
	var passed []PassedOver
	var unread error
	usable := false
	for _, key := range slices.SortedFunc(maps.Keys(n.read), func(a, b EnvelopeKey) int {
		return strings.Compare(a.String(), b.String())
	}) {
		c := n.read[key]
		if c.passed != nil {
			passed = append(passed, PassedOver{Key: key, Err: c.passed})
		}
		usable = usable || c.read
		if c.unread {
			unread = c.passed
		}
	}
	if unread != nil && !usable {
		return nil, unread
	}
	return passed, nil
}

// NewestOfScopes returns the newest snapshot of each scope of a source, by scope, in the order and
// with the exceptions of Newest. It reads all envelopes of the source.
func (s *Store) NewestOfScopes(ctx context.Context, source string) ([]Signed, []PassedOver, error) {
	list, err := s.ListedSnapshots(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	n := &newest{store: s, read: map[EnvelopeKey]candidate{}}
	for batch := range slices.Chunk(list, newestReads) {
		if err := n.readAll(ctx, batch); err != nil {
			return nil, nil, err
		}
	}
	scopes := map[string]bool{}
	for _, c := range n.read {
		if c.envelope != nil {
			scopes[c.envelope.ScopeID()] = true
		}
	}
	var all []Signed
	for _, scope := range slices.Sorted(maps.Keys(scopes)) {
		all = append(all, *n.best(func(e *Signed) bool { return e.ScopeID() == scope }))
	}
	passed, err := n.passedOver()
	return all, passed, err
}

// CompareAge compares two snapshots of one source, each with the time at which the storage received
// it: above 0 means that a is the newer one. The sequence number decides; of equal ones, which two
// writers at once may give, the time of the storage, and then the key.
func CompareAge(a *Signed, receivedA time.Time, b *Signed, receivedB time.Time) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), receivedA.Compare(receivedB),
		strings.Compare(a.Key().String(), b.Key().String()))
}
