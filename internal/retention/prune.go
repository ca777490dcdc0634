package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// A run that takes a snapshot uses again only what its base names, the newest snapshot of its
// source when it began; all else that it names it wrote itself. So that a prune takes nothing from
// a run that is going, wherever that is:
//
//   - A snapshot goes only when a newer one of its source has been there for the grace: no run that is still going has it as its base, for it would be older than maxRun.
//   - Content goes only when no envelope that is there names it, and when it is older than the grace: it is not what a run is writing.
//   - Envelopes go first. Whatever a prune that dies leaves behind are whole snapshots and content that nothing names, which the next one finds.
//   - An envelope or a tree that cannot be read may name anything: then no content goes at all.

// The grace of a prune. MinGrace leaves an hour between the end of the longest run and the removal
// of what it may need, for writes that are slow to arrive.
const (
	DefaultGrace = 6 * time.Hour
	MinGrace     = store.MaxRun + time.Hour
)

// mostAccepted is how long a gap may be that is accepted: a snapshot every 30 seconds for a year
// makes fewer.
const mostAccepted = 2_000_000

// clockSkew is how far our clock may be from that of the storage before somebody is told.
const clockSkew = 5 * time.Minute

// recordHolds is how old a look may be by which snapshots are put on record, and a record by which
// they are removed. Another prune takes what it sees for not removed, and replaces records that are
// an hour old (store.PutPruneRecord): it must not be that it looked before we removed, and replaced
// our record after it.
const recordHolds = 20 * time.Minute

// Codes of findings of a prune.
const (
	// an envelope, or its tree, cannot be read: no content is removed
	FoundEnvelope = "envelope-unreadable"
	// an envelope is not signed by a trusted key: no content is removed
	FoundUntrusted = "envelope-untrusted"
	// snapshots are not there that nobody removed on purpose: no content is removed
	FoundGap = "snapshot-missing"
	// a snapshot was pinned while the prune was at work: it stays
	FoundPinned = "pinned"
	// an operation began to need a snapshot while the prune was at work: it stays
	FoundInUse    = "in-use"
	FoundRetained = "retained" // the storage does not let it be deleted yet
	// the prune took too long for its record: the other snapshots go next time
	FoundSlow   = "slow"
	FoundClock  = "clock"        // our clock and that of the storage are apart
	FoundRecord = "prune-record" // a record of earlier prunes cannot be used
)

// Options of NewPlan and Prune.
type Options struct {
	Store  *store.Store
	Policy Policy
	// Grace is DefaultGrace when it is zero.
	Grace time.Duration
	// Source is the UID of the one source whose snapshots may go; empty means all.
	Source string
	// Delete names the snapshots that are to go in place of all that the policy does not keep. One
	// that may not go is an error, a *RefusedError, and then none goes. Those that the storage
	// retains are an error, too, a *RefusedError when that is all of them and a *RetainedError when
	// others went.
	Delete []store.EnvelopeKey
	// Damaged lets snapshots go that Delete names and that are of no use: damaged, or not signed by
	// a trusted key.
	Damaged bool
	// AcceptGaps takes it that snapshots which are not there, and of which no record says why, were
	// removed on purpose, and records that. Damaged does so, too.
	AcceptGaps bool
	// Verified tells whether a snapshot is known to be whole; nil means none.
	Verified func(store.EnvelopeKey) bool
	// InUse gives the operations that need snapshots, by the ids of these; nil means none. It is
	// asked with each look, and again right before each envelope is removed.
	InUse func(context.Context) (map[store.SnapshotID]string, error)
	Now   func() time.Time
	// Step carries fn out, which deletes; nil just calls it.
	Step func(name string, fn func() error) error
	// Progress is told what is counted, how far it is, and the total or 0.
	Progress func(what string, done, total int64)
}

// Verdict is what becomes of one snapshot.
type Verdict struct {
	store.StoredSnapshot
	// Envelope is nil when it cannot be read, and Err says why.
	Envelope *store.Signed
	Err      error
	Pinned   bool
	// Keep is why it stays: "daily 2026-01-02", "pinned". It is removed when there is no reason.
	Keep []string
}

// Amount of what is stored.
type Amount struct {
	Keys  int64
	Bytes int64
}

func (a *Amount) add(size int64) { a.Keys, a.Bytes = a.Keys+1, a.Bytes+size }

// Plan is what a prune would do.
type Plan struct {
	// Now is what ages are counted from, Estimated that it is of our own clock.
	Now       time.Time
	Estimated bool
	Grace     time.Duration
	Snapshots []Verdict // by source, newest first
	Findings  []object.Finding
	// Blocked: no content is removed, since something cannot be read.
	Blocked bool
	// Frees is what goes, Waits what nothing names then and is younger than the grace.
	Frees, Waits Amount
}

// Result is what a prune did.
type Result struct {
	Plan
	Removed []store.EnvelopeKey
	// Recorded is what trusted records say was removed on purpose, by this prune or an earlier one;
	// by source.
	Recorded map[string][]store.Range
	// Freed is what is gone, snapshots' envelopes too, Retained what should have gone and the
	// storage did not let go.
	Freed, Retained Amount
}

// Check tells what cannot be, before anything is opened: a *store.UsageError.
func (o *Options) Check() error {
	if o.Grace != 0 && o.Grace < MinGrace {
		return &store.UsageError{Text: fmt.Sprintf("prune: a grace of %s is too short", AgeText(o.Grace)),
			Tip: fmt.Sprintf("give at least %s: a snapshot that is being taken needs that",
				AgeText(MinGrace))}
	}
	if err := o.Policy.Check(); err != nil {
		return &store.UsageError{Text: "prune: " + err.Error()}
	}
	return nil
}

func (o *Options) applyDefaults() error {
	if err := o.Check(); err != nil {
		return err
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Verified == nil {
		o.Verified = func(store.EnvelopeKey) bool { return false }
	}
	if o.InUse == nil {
		o.InUse = func(context.Context) (map[store.SnapshotID]string, error) { return nil, nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Step == nil {
		o.Step = func(_ string, fn func() error) error { return fn() }
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	return nil
}

// NewPlan tells what Prune would do now. It changes nothing and may run any number of times.
func NewPlan(ctx context.Context, o Options) (*Plan, error) {
	if err := o.applyDefaults(); err != nil {
		return nil, err
	}
	p, err := newPruner(ctx, o)
	if err != nil {
		return nil, err
	}
	stay := slices.DeleteFunc(slices.Clone(p.result.Snapshots),
		func(v Verdict) bool { return len(v.Keep) == 0 })
	for _, v := range p.result.Snapshots {
		if len(v.Keep) == 0 {
			p.result.Frees.add(v.Size)
		}
	}
	_, err = p.garbage(ctx, stay)
	return &p.result.Plan, err
}

// Prune removes the snapshots that nothing keeps, and then the content that no snapshot names. It
// may run any number of times, and at once with others and with runs that take snapshots; one that
// dies leaves nothing that the next does not find. Errors: a *BlockedError when content had to
// stay, or a *RetainedError, with what was done; a *RefusedError.
func Prune(ctx context.Context, o Options) (*Result, error) {
	if err := o.applyDefaults(); err != nil {
		return nil, err
	}
	if err := o.Store.MayRemove(); err != nil {
		return nil, err
	}
	p, err := newPruner(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := p.putRecord(ctx); err != nil {
		return nil, err
	}
	if err := p.removeSnapshots(ctx); err != nil {
		return &p.result, err
	}
	err = p.removeContent(ctx)
	if len(p.retains) > 0 {
		err = errors.Join(err, &RetainedError{Gone: len(p.result.Removed), Stay: p.retains})
	}
	return &p.result, err
}

// pruner is one prune.
type pruner struct {
	Options
	pins   map[store.EnvelopeKey]string  // and what each says
	used   map[store.SnapshotID]string   // by which operation
	read   map[store.EnvelopeKey]Verdict // envelopes never change
	looked time.Time                     // when the last look began
	record time.Time                     // what goes was put on record after that
	// retains are the snapshots of Delete that the storage did not let go.
	retains []*RefusedError
	result  Result
}

// newPruner looks at what is there, and decides by our own clock.
func newPruner(ctx context.Context, o Options) (*pruner, error) {
	p := &pruner{Options: o}
	p.result.Now, p.result.Estimated, p.result.Grace = p.Now().UTC(), true, p.Grace
	if err := p.look(ctx); err != nil {
		return nil, err
	}
	return p, p.decide(p.result.Now)
}

func (p *pruner) found(severity object.Severity, code, message, hint string) {
	p.result.Findings = append(p.result.Findings, object.Finding{Severity: severity, Code: code,
		Message: message, Hint: hint})
}

// putRecord writes down what is about to go, which also tells what time it is for the storage, and
// decides by that time again.
func (p *pruner) putRecord(ctx context.Context) error {
	before, err := p.Store.Pruned(ctx)
	// the host was asleep, or the storage is slow
	if err == nil && store.Exceeded(p.looked, p.Now(), recordHolds) {
		if err = p.look(ctx); err == nil {
			err = p.decide(p.Now().UTC())
		}
	}
	if err != nil {
		return err
	}
	for _, key := range before.Unusable {
		p.found(object.Warning, FoundRecord, key+" is damaged, or not signed by a trusted key",
			"it is passed over: gaps that it explains are reported as such")
	}
	removed, there := map[string][]int64{}, map[string][]int64{}
	for _, v := range p.result.Snapshots {
		switch {
		case !v.usable(p.Store): // what it says of itself proves nothing
		case len(v.Keep) == 0:
			removed[v.Key.Source] = append(removed[v.Key.Source], v.Envelope.Sequence)
		default:
			there[v.Key.Source] = append(there[v.Key.Source], v.Envelope.Sequence)
		}
	}
	if p.AcceptGaps || p.Damaged {
		for _, g := range p.gaps(before, p.result.Snapshots) {
			if g.To-g.From >= mostAccepted {
				return &store.UsageError{Text: fmt.Sprintf("accept gaps: snapshots number %d to %d of "+
					"source %s are too many to be one", g.From, g.To, g.Key.Source)}
			}
			for n := g.From; n <= g.To; n++ {
				removed[g.Key.Source] = append(removed[g.Key.Source], n)
			}
		}
	}
	p.record = p.Now()
	ours := p.record.UTC()
	at, err := p.Store.PutPruneRecord(ctx, before, removed, there, ours)
	if err != nil {
		return err
	}
	if apart := at.Sub(ours).Abs(); apart > clockSkew {
		p.found(object.Warning, FoundClock, fmt.Sprintf("the clock of the storage and that of this host "+
			"are %s apart", apart.Round(time.Second)), "set the clock: expiry and \"within\" go by that "+
			"of the storage, times of snapshots by that of the host that takes them")
	}
	recorded := map[store.EnvelopeKey]bool{}
	for _, v := range p.result.Snapshots {
		recorded[v.Key] = len(v.Keep) == 0
	}
	p.result.Now, p.result.Estimated = at, false
	if err := p.decide(at); err != nil {
		return err
	}
	for i, v := range p.result.Snapshots {
		if len(v.Keep) == 0 && !recorded[v.Key] {
			p.result.Snapshots[i].Keep = []string{"next time"} // it is not on record
		}
	}
	return nil
}

// removeSnapshots removes the envelopes that have to go, oldest first.
func (p *pruner) removeSnapshots(ctx context.Context) error {
	var gone []Verdict
	for _, v := range slices.Backward(p.result.Snapshots) {
		if len(v.Keep) == 0 {
			gone = append(gone, v)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return p.Step("snapshots", func() error {
		for i, v := range gone {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if store.Exceeded(p.record, p.Now(), recordHolds) {
				if p.Delete != nil {
					return &RefusedError{Key: v.Key, Reason: "it took longer than " + AgeText(recordHolds) +
						" since that was put on record", Tip: "run it again"}
				}
				p.found(object.Info, FoundSlow, fmt.Sprintf("%d snapshots stay for now: the prune took longer "+
					"than %s since it put them on record", len(gone)-i, AgeText(recordHolds)), "run it again")
				return nil
			}
			stays, err := p.staysAfterAll(ctx, v.Key)
			if err != nil {
				return err
			}
			if stays {
				continue
			}
			err = p.Store.RemoveSnapshot(ctx, v.Key)
			if errors.Is(err, store.ErrRetained) {
				p.retainedSnapshot(v, err)
				continue
			}
			if err != nil {
				return err
			}
			p.result.Removed = append(p.result.Removed, v.Key)
			p.result.Freed.add(v.Size)
			p.Progress("snapshots removed", int64(i+1), int64(len(gone)))
		}
		if len(p.retains) > 0 && len(p.result.Removed) == 0 {
			return allRetained(p.retains)
		}
		return nil
	})
}

// staysAfterAll asks again, right before an envelope goes, for the reasons that may have come since
// the look. Who named the snapshot to be deleted gets an error.
func (p *pruner) staysAfterAll(ctx context.Context, key store.EnvelopeKey) (bool, error) {
	pinned, err := p.Store.Pinned(ctx, key)
	if err != nil {
		return false, err
	}
	used, err := p.InUse(ctx)
	if err != nil {
		return false, err
	}
	var code, reason string
	switch op := used[key.ID]; {
	case pinned:
		code, reason = FoundPinned, keepPinned
	case op != "":
		code, reason = FoundInUse, keepInUse+op
	default:
		return false, nil
	}
	if p.Delete != nil {
		return true, refused(key, reason)
	}
	p.found(object.Info, code, key.String()+" is since just now "+reason+": it stays", "")
	return true, nil
}

// bySourceAndTime sorts the newest of each source first.
func bySourceAndTime(a, b Verdict) int {
	if a.Key.Source != b.Key.Source {
		return strings.Compare(a.Key.Source, b.Key.Source)
	}
	return strings.Compare(b.Key.String(), a.Key.String())
}
