package retention

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// The grace of a prune. MinGrace leaves an hour between the end of the longest run and the removal
// of what it may need, for writes that are slow to arrive.
const (
	DefaultGrace = 6 * time.Hour
	MinGrace     = store.MaxRun + time.Hour
)

// Options of NewPlan, CountContent and Execute. Execute needs those that its plan was made with.
type Options struct {
	Store  *store.Store
	Policy Policy
	// Grace is DefaultGrace when it is zero.
	Grace time.Duration
	// Source is the UID of the one source whose snapshots may go; empty means all.
	Source string
	// Delete names the snapshots that go, in place of those that the policy does not retain. One
	// that has to stay is a *RefusedError, and then none goes. Those that the storage retains are
	// an error, too: a *RefusedError when it retains all of them, a *RetainedError when others
	// went.
	Delete []store.EnvelopeKey
	// DropScopes names scopes (store.Envelope.InScope) that are taken no more: no rule and no expiry
	// retains their snapshots, and their newest ones go, too. Pins, operations and the grace hold.
	DropScopes []string
	// Damaged allows Delete to name snapshots that are damaged, or not signed by a trusted key.
	Damaged bool
	// AcceptGaps records that snapshots which are missing without a record were removed on purpose.
	// Damaged does so, too.
	AcceptGaps bool
	// Missing are snapshots that are known from elsewhere and not in the store. They block the removal
	// of content like gaps, and AcceptGaps records them.
	Missing []Missing
	// Approved is the digest of the plan that was approved: Execute returns a *PlanChangedError for
	// a plan with another digest. Empty approves any plan.
	Approved string
	// Verified reports whether a snapshot is known to be whole; nil means none.
	Verified func(store.EnvelopeKey) bool
	// InUse returns the snapshots that operations need, by the ids of the operations; nil means none.
	// It is called for each inventory, and again right before each envelope is removed.
	InUse func(context.Context) (map[string]store.SnapshotID, error)
	// HiddenInUse is InUse for operations whose records somebody hid. It is called for each inventory.
	HiddenInUse func(context.Context) (map[string]store.SnapshotID, error)
	Now         func() time.Time
	// Step runs fn, which deletes; nil calls it.
	Step func(name string, fn func() error) error
	// Progress receives what is counted, how far it is, and the total or 0.
	Progress func(what string, done, total int64)
}

// Check returns a *store.UsageError for options that no prune accepts. It needs no store.
func (o *Options) Check() error {
	if o.Grace != 0 && o.Grace < MinGrace {
		return &store.UsageError{
			Text: fmt.Sprintf("prune: a grace of %s is too short", AgeText(o.Grace)),
			Tip: fmt.Sprintf("give at least %s: a snapshot that is being taken needs that",
				AgeText(MinGrace))}
	}
	if slices.ContainsFunc(o.DropScopes, func(scope string) bool {
		return scope == "" || scope == store.ScopeWhole || scope == store.ScopeAny
	}) {
		return &store.UsageError{Text: "prune: whole snapshots are not a scope that can be dropped",
			Tip: "name the scope of partial snapshots; a list of the snapshots shows them"}
	}
	if err := o.Policy.Check(); err != nil {
		return &store.UsageError{Text: "prune: " + err.Error()}
	}
	return nil
}

// drops reports whether a snapshot is of a scope that is dropped.
func (o *Options) drops(v *Verdict) bool {
	return (o.Source == "" || o.Source == v.Key.Source) &&
		slices.ContainsFunc(o.DropScopes, v.Envelope.InScope)
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
	none := func(context.Context) (map[string]store.SnapshotID, error) { return nil, nil }
	if o.InUse == nil {
		o.InUse = none
	}
	if o.HiddenInUse == nil {
		o.HiddenInUse = none
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

// Missing is a snapshot that the store does not show and no record explains.
type Missing struct {
	Source   string // UID
	ID       store.SnapshotID
	Sequence int64
}

// Verdict is what a plan decides about one snapshot.
type Verdict struct {
	Snapshot
	Pinned bool
	// Reasons are why it stays. Without any it goes.
	Reasons []Reason
}

func (v *Verdict) retain(r Reason) { v.Reasons = append(v.Reasons, r) }

// Goes reports whether the snapshot is removed.
func (v *Verdict) Goes() bool { return len(v.Reasons) == 0 }

// Amount of what is stored.
type Amount struct {
	Keys  int64
	Bytes int64
}

func (a *Amount) add(size int64) { a.Keys, a.Bytes = a.Keys+1, a.Bytes+size }

// Plan is what a prune would do.
type Plan struct {
	// Now is the time that ages are counted from. Estimated means that it is of our own clock.
	Now       time.Time
	Estimated bool
	Grace     time.Duration
	Snapshots []Verdict // by source, newest first
	Findings  []object.Finding
	// Blocked means that no content is removed, since something cannot be read.
	Blocked bool
	// Frees is what goes. Waits is what no snapshot names then and is younger than the grace.
	Frees, Waits Amount

	inventory *inventory // that the plan was decided from
}

// Digest identifies the snapshots that go: two plans with one digest remove the same ones.
func (p *Plan) Digest() string {
	h := sha256.New()
	for _, v := range p.Snapshots {
		if v.Goes() {
			h.Write([]byte(v.Key.String() + "\n")) // never fails
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// NewPlan decides which snapshots go. It changes nothing and may run any number of times.
func NewPlan(ctx context.Context, o Options) (*Plan, error) {
	if err := o.applyDefaults(); err != nil {
		return nil, err
	}
	p := &Plan{Now: o.Now().UTC(), Estimated: true, Grace: o.Grace}
	var err error
	if p.inventory, err = newInventory(ctx, &o, nil); err != nil {
		return nil, err
	}
	p.Snapshots, err = decide(&o, p.inventory, p.Now)
	return p, err
}

// CountContent adds to a plan how much would go, content included, and the findings that block
// the removal of content. It reads the trees of all snapshots that stay, and changes nothing in
// the store.
func CountContent(ctx context.Context, o Options, p *Plan) error {
	if err := o.applyDefaults(); err != nil {
		return err
	}
	var stay []Snapshot
	for _, v := range p.Snapshots {
		if v.Goes() {
			p.Frees.add(v.Size)
		} else {
			stay = append(stay, v.Snapshot)
		}
	}
	g, err := findGarbage(ctx, &o, stay, p.inventory.snapshots, p.Now)
	p.add(g)
	return err
}

// add adds what findGarbage found.
func (p *Plan) add(g *garbage) {
	p.Blocked = p.Blocked || len(g.blocking) > 0
	p.Frees.Keys, p.Frees.Bytes = p.Frees.Keys+g.frees.Keys, p.Frees.Bytes+g.frees.Bytes
	p.Waits = g.waits
	p.Findings = append(append(p.Findings, g.blocking...), g.warnings...)
	slices.SortStableFunc(p.Findings,
		func(a, b object.Finding) int { return strings.Compare(a.Message, b.Message) })
}
