package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Result is what a prune did.
type Result struct {
	// Plan is the plan as it was executed, by the storage's time.
	Plan
	Removed []store.EnvelopeKey
	// Recorded are the snapshots that trusted records say were removed on purpose, by this prune or
	// an earlier one; by source.
	Recorded map[string][]store.Range
	// Freed is what is gone, envelopes included. Retained is what should have gone and the storage
	// retains.
	Freed, Retained Amount
	// Swept is what killed writes had left behind, which is gone; no snapshot ever named it.
	Swept Amount
}

// RemovedOnRecord reports whether a trusted record says that a snapshot was removed on purpose.
func (r *Result) RemovedOnRecord(source string, sequence int64) bool {
	return slices.ContainsFunc(r.Recorded[source],
		func(n store.Range) bool { return n.From <= sequence && sequence <= n.To })
}

// String is what the prune did, in a sentence.
func (r *Result) String() string {
	text := fmt.Sprintf("removed %d of %d snapshots; freed %d keys with %d bytes", len(r.Removed),
		len(r.Snapshots), r.Freed.Keys, r.Freed.Bytes)
	if r.Retained.Keys > 0 {
		text += fmt.Sprintf("; the storage retains %d keys with %d bytes", r.Retained.Keys,
			r.Retained.Bytes)
	}
	if r.Waits.Keys > 0 {
		text += fmt.Sprintf("; %d keys with %d bytes that no snapshot names are younger than %s and wait",
			r.Waits.Keys, r.Waits.Bytes, AgeText(r.Grace))
	}
	if r.Swept.Keys > 0 {
		text += fmt.Sprintf("; removed %d files with %d bytes that killed writes had left", r.Swept.Keys,
			r.Swept.Bytes)
	}
	return text
}

// Execute removes the snapshots that a plan names, and then the content that no snapshot names. It
// decides again by the storage's time, and again right before each removal: a snapshot that has
// become needed since the plan was made stays. A plan that is too old is checked against a new
// inventory first.
//
// Several prunes and runs that take snapshots may work at once, and a plan may be executed twice. A
// prune that dies leaves nothing that the next one does not find. Errors: a *BlockedError when
// content had to stay, or a *RetainedError, with the result; a *RefusedError; a *PlanChangedError.
func Execute(ctx context.Context, o Options, plan *Plan) (*Result, error) {
	if err := o.applyDefaults(); err != nil {
		return nil, err
	}
	if err := o.Store.MayRemove(); err != nil {
		return nil, err
	}
	if o.Approved != "" && o.Approved != plan.Digest() {
		return nil, &PlanChangedError{}
	}
	e := &execution{Options: o, inventory: plan.inventory}
	e.result.Plan = Plan{Now: plan.Now, Estimated: true, Grace: plan.Grace, Snapshots: plan.Snapshots}
	if err := e.putRecord(ctx); err != nil {
		return nil, err
	}
	if err := e.removeSnapshots(ctx); err != nil {
		return &e.result, err
	}
	err := e.removeContent(ctx)
	if len(e.refusals) > 0 {
		err = errors.Join(err, &RetainedError{Gone: len(e.result.Removed), Stay: e.refusals})
	}
	return &e.result, err
}

// execution is one run of a plan.
type execution struct {
	Options
	mu        sync.Mutex // guards result and refusals while several snapshots are removed
	inventory *inventory
	recorded  time.Time       // when what goes was put on record
	listed    time.Time       // when the search for content that nothing names began
	refusals  []*RefusedError // for snapshots of Delete that the storage retains
	result    Result
}

func (e *execution) report(severity object.Severity, code object.Code, message, hint string) {
	e.result.Findings = append(e.result.Findings, object.Finding{Severity: severity, Code: code,
		Message: message, Hint: hint})
}

// removeSnapshots removes the envelopes that go, oldest first: several at once for rules, and one
// after the other where they were named, so that the first that is refused ends it.
func (e *execution) removeSnapshots(ctx context.Context) error {
	var list []Verdict
	for _, v := range slices.Backward(e.result.Snapshots) {
		if v.Goes() {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return e.Step("snapshots", func() error {
		if err := e.removeEach(ctx, list); err != nil {
			return err
		}
		if len(e.refusals) > 0 && len(e.result.Removed) == 0 {
			return allRetained(e.refusals)
		}
		return nil
	})
}

// removeEach removes the envelopes of a list, unless they have to stay.
func (e *execution) removeEach(ctx context.Context, list []Verdict) error {
	g, gctx := task.WithContext(ctx)
	g.SetLimit(requests)
	if e.Delete != nil {
		g.SetLimit(1)
	}
	var late error
	var done int64
	gone := make([]bool, len(list))
	for i, v := range list {
		if gctx.Err() != nil {
			break
		}
		if store.Exceeded(e.recorded, e.Now(), recordMaxAge) {
			late = e.recordTooOld(v.Key, len(list)-i)
			break
		}
		g.Go(func() error {
			removed, err := e.removeSnapshot(gctx, v)
			e.mu.Lock()
			defer e.mu.Unlock()
			if gone[i] = removed; removed {
				done++
				e.result.Freed.add(v.Size)
				e.Progress("snapshots removed", done, int64(len(list)))
			}
			return err
		})
	}
	err := g.Wait()
	for i, v := range list {
		if gone[i] {
			e.result.Removed = append(e.result.Removed, v.Key)
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return late
}

// recordTooOld reports that the remaining snapshots stay, key the first of them. It is an error
// when they were named.
func (e *execution) recordTooOld(key store.EnvelopeKey, remaining int) error {
	if e.Delete != nil {
		return &RefusedError{Key: key, Reason: "it took longer than " + AgeText(recordMaxAge) +
			" since that was put on record", Tip: "run it again"}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report(object.Info, object.CodeSlow, fmt.Sprintf("%d snapshots stay for now: the prune "+
		"took longer "+
		"than %s since it put them on record", remaining, AgeText(recordMaxAge)), "run it again")
	return nil
}

// removeSnapshot removes one envelope, unless it has to stay.
func (e *execution) removeSnapshot(ctx context.Context, v Verdict) (removed bool, err error) {
	reason, err := e.newReason(ctx, &v)
	if err != nil {
		return false, err
	}
	if reason != nil {
		if e.Delete != nil {
			return false, reason.refused(v.Key)
		}
		code := object.CodePinned
		if reason.Kind == InUse {
			code = object.CodeInUse
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.report(object.Info, code, v.Key.String()+" is since just now "+reason.String()+": it stays", "")
		return false, nil
	}
	err = e.Store.RemoveSnapshot(ctx, v.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrRetained) && e.Delete == nil:
		e.reportRetained(v.Key.String(), v.Size, err)
		return false, nil
	case errors.Is(err, store.ErrRetained):
		// Rules try it again by themselves; who named it has to know.
		e.result.Retained.add(v.Size)
		e.refusals = append(e.refusals, retainedByStorage(v.Key, err))
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// newReason returns a reason to stay that a snapshot has got since the inventory, or nil. It is
// called right before the envelope is removed.
func (e *execution) newReason(ctx context.Context, v *Verdict) (*Reason, error) {
	pinned, err := e.Store.Pinned(ctx, v.Key)
	if err != nil {
		return nil, err
	}
	used, err := e.InUse(ctx)
	if err != nil {
		return nil, err
	}
	switch operation := neededBy(used, v); {
	case pinned:
		return &Reason{Kind: Pinned}, nil
	case operation != "":
		return &Reason{InUse, operation}, nil
	}
	return nil, nil
}

// reportRetained reports that the storage retains a key. All such keys share one finding.
func (e *execution) reportRetained(key string, size int64, err error) {
	e.result.Retained.add(size)
	i := slices.IndexFunc(e.result.Findings,
		func(f object.Finding) bool { return f.Code == object.CodeRetained })
	if i < 0 {
		e.report(object.Info, object.CodeRetained, "", "nothing to do: a later prune removes "+
			"them when their "+
			"retention has ended")
		i = len(e.result.Findings) - 1
	}
	e.result.Findings[i].Message = fmt.Sprintf("the storage retains %d keys with %d bytes that "+
		"were to go, such as %s: %v", e.result.Retained.Keys, e.result.Retained.Bytes, key, err)
}

// removeContent removes what killed writes left, lists the snapshots again, and removes the content
// that none of them names.
func (e *execution) removeContent(ctx context.Context) error {
	// First of all: it depends on no snapshot, so that one that blocks content does not matter.
	if err := e.Store.Sweep(ctx, e.result.Now.Add(-e.Grace), e.result.Swept.add); err != nil {
		return err
	}
	e.listed = e.Now()
	present, err := listSnapshots(ctx, &e.Options, e.inventory.snapshots)
	if err != nil {
		return err
	}
	g, err := findGarbage(ctx, &e.Options, present, present, e.result.Now)
	e.result.add(g)
	e.result.Recorded = g.recorded
	if err != nil {
		return err
	}
	if len(g.blocking) > 0 {
		return &BlockedError{Envelopes: len(g.blocking)}
	}
	if len(g.content) > 0 {
		err = e.Step("content", func() error { return e.sweep(ctx, g.content) })
	}
	if err != nil {
		return err
	}
	there := map[[2]string]bool{}
	for _, s := range present {
		there[[2]string{s.Key.Source, s.Key.Name()}] = true
	}
	if err := e.removeRuns(ctx); err != nil {
		return err
	}
	_, err = e.Store.RemoveLeftovers(ctx, e.result.Now.Add(-e.Grace),
		func(source, name string) bool { return there[[2]string{source, name}] })
	return err
}
