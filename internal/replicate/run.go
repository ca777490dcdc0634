package replicate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// requests limits how many small documents are read at once.
const requests = 8

// Run copies what is missing. It may run any number of times: a run that is interrupted leaves
// whole snapshots, and content that the next run uses. Snapshots that cannot be copied are findings
// and do not end it. Errors: *store.UsageError when the two stores are not origin and copy, or keys
// are missing; those of both buckets. The result is returned with an error, too.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.applyDefaults(); err != nil {
		return nil, err
	}
	if err := o.To.MayCopy(o.From); err != nil {
		return nil, err
	}
	r := &run{Options: o, result: &Result{Behind: -1}}
	defer r.result.capFindings()
	if err := r.list(ctx); err != nil {
		return r.result, err
	}
	wanted, err := r.choose(ctx)
	if err != nil {
		return r.result, err
	}
	r.result.Behind = len(wanted) + r.result.Missing
	if len(wanted) > 0 {
		err = o.Step("snapshots", func() error { return r.copyAll(ctx, wanted) })
	}
	if err == nil {
		err = o.Step("records", func() error { return r.copyRecords(ctx) })
	}
	return r.result, err
}

// run is one Run.
type run struct {
	Options
	result *Result
	// present are the snapshots that are in the copy; at the end also those that were copied.
	present map[store.EnvelopeKey]bool
	toRead  []store.StoredSnapshot // of the origin: those not in the copy, or with Last all
	// removed are the records of prunes, of the origin and of the copy.
	removed struct{ from, to store.Pruned }
	// numbers are the sequence numbers of the origin's snapshots that were read, by source.
	numbers map[string][]int64
	// lacking counts the keys that the copy lacked, of all batches so far.
	lacking int64
	leftOut map[string][]store.Range
}

// list compares the envelopes of both stores by their keys.
func (r *run) list(ctx context.Context) error {
	there, err := r.To.StoredSnapshots(ctx)
	if err != nil {
		return err
	}
	from, err := r.From.StoredSnapshots(ctx)
	if err != nil {
		return &store.OriginError{Err: err}
	}
	r.present = map[store.EnvelopeKey]bool{}
	sizes := map[store.EnvelopeKey]int64{}
	for _, s := range there {
		r.present[s.Key], sizes[s.Key] = true, s.Size
	}
	for _, s := range from {
		size, ok := sizes[s.Key]
		switch {
		case !ok:
			r.toRead = append(r.toRead, s)
			continue
		case size != s.Size:
			same, err := r.compare(ctx, s.Key)
			if err != nil {
				return err
			}
			if !same {
				delete(r.present, s.Key)
				continue
			}
		}
		r.result.Present++
		if r.Last > 0 { // what is there counts among the newest
			r.toRead = append(r.toRead, s)
		}
	}
	return nil
}

// compare reports an envelope that has another size in the copy than in the origin, unless it is
// the one in the origin that is not as it was. same says that the copy has the snapshot.
func (r *run) compare(ctx context.Context, key store.EnvelopeKey) (same bool, err error) {
	e, err := r.To.GetEnvelope(ctx, key)
	switch {
	case err == nil && r.To.Accepted(&e) && e.Overwritten == nil, store.IsMissing(err):
		return true, nil
	case store.OfStore(ctx, err) != nil:
		return false, err
	case err == nil:
		err = e.RequireTrusted()
	}
	if same = err == nil; same { // an older version counts
		err = e.Overwritten
	} else {
		r.result.Missing++
	}
	r.result.report(object.Error, object.CodeCopyDiffers, fmt.Sprintf("%s is not in the copy what it "+
		"is in the origin: %v", key, err), "find out who wrote to the copy")
	return same, nil
}

// catchUp is from how many snapshots of a scope on its newest one comes first: the first copy of a
// store may take days, and until then it is the one that a restore wants. A prune of the copy
// removes no content beside the gap.
const catchUp = 10

// choose reads the envelopes that are not in the copy, and returns those to copy: by source, oldest
// first, but for the newest ones of scopes that are far behind.
func (r *run) choose(ctx context.Context) ([]*store.Signed, error) {
	if err := r.readRemoved(ctx); err != nil {
		return nil, err
	}
	r.numbers, r.leftOut = map[string][]int64{}, map[string][]store.Range{}
	count := r.passKnown()
	envelopes, err := r.readEnvelopes(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.toRead) > 0 { // a prune may have removed one of them meanwhile
		if err := r.readRemoved(ctx); err != nil {
			return nil, err
		}
	}
	for _, e := range envelopes {
		r.numbers[e.Source.UID] = append(r.numbers[e.Source.UID], e.Sequence)
		count[number{e.Source.UID, e.Sequence}]++
	}
	old := r.tooOld(envelopes)
	envelopes = slices.DeleteFunc(envelopes, func(e *store.Signed) bool { return r.present[e.Key()] })
	var wanted []*store.Signed
	for _, e := range envelopes {
		removed, err := r.pruned(ctx, e, count)
		switch {
		case err != nil:
			return nil, err
		case removed:
			r.result.Removed++
		case old[e]:
			r.result.LeftOut++
			r.leftOut[e.Source.UID] = append(r.leftOut[e.Source.UID],
				store.Range{From: e.Sequence, To: e.Sequence})
		default:
			wanted = append(wanted, e)
		}
	}
	first := farBehind(wanted)
	slices.SortFunc(wanted, func(a, b *store.Signed) int {
		if first[a] != first[b] {
			return map[bool]int{true: -1, false: 1}[first[a]]
		}
		return cmp.Or(strings.Compare(a.Source.UID, b.Source.UID), cmp.Compare(a.Sequence, b.Sequence),
			strings.Compare(a.Key().String(), b.Key().String()))
	})
	return wanted, nil
}

// number is a sequence number of a source.
type number struct {
	source   string
	sequence int64
}

// readRemoved reads the records of prunes, after the lists: a prune records before it removes.
func (r *run) readRemoved(ctx context.Context) (err error) {
	if r.removed.from, err = r.From.Pruned(ctx); err != nil {
		return &store.OriginError{Err: err}
	}
	r.removed.to, err = r.To.Pruned(ctx)
	return err
}

// removedFromCopy reports whether a prune of the copy removed the snapshot with a number, or an
// earlier run left it out. Two writers may have given one number: then the record may be of the
// other snapshot.
func (r *run) removedFromCopy(n number, count map[number]int) bool {
	return r.removed.to.Explains(n.source, n.sequence) && count[n] == 1 &&
		!r.removed.from.Explains(n.source, n.sequence)
}

// pruned is removedFromCopy for one snapshot. Where others have its number, it is gone if it was in
// the copy once.
func (r *run) pruned(ctx context.Context, e *store.Signed, count map[number]int) (bool, error) {
	n := number{e.Source.UID, e.Sequence}
	if count[n] > 1 && r.removedFromCopy(n, map[number]int{n: 1}) {
		return r.To.WasCopied(ctx, e)
	}
	return r.removedFromCopy(n, count), nil
}

// passKnown takes out of toRead what this host knows and a prune removed from the copy, and counts
// its numbers.
func (r *run) passKnown() map[number]int {
	count := map[number]int{}
	if r.Last > 0 { // the scopes of all decide
		return count
	}
	known := map[store.EnvelopeKey]number{}
	for _, s := range r.toRead {
		if sequence, ok := r.Known(r.From.ID(), s.Key); ok {
			known[s.Key] = number{s.Key.Source, sequence}
			count[known[s.Key]]++
		}
	}
	passed := map[number]int{}
	r.toRead = slices.DeleteFunc(r.toRead, func(s store.StoredSnapshot) bool {
		n, ok := known[s.Key]
		if !ok || !r.removedFromCopy(n, count) {
			return false
		}
		r.result.Removed++
		r.numbers[n.source] = append(r.numbers[n.source], n.sequence)
		passed[n]++
		return true
	})
	return passed
}

// farBehind returns the newest snapshots of the scopes of which many are to be copied.
func farBehind(wanted []*store.Signed) map[*store.Signed]bool {
	first := map[*store.Signed]bool{}
	for _, list := range byScope(wanted) {
		if len(list) >= catchUp {
			first[list[0]] = true
		}
	}
	return first
}

// byScope returns the envelopes of each source and scope, by their numbers and newest first.
func byScope(envelopes []*store.Signed) map[[2]string][]*store.Signed {
	groups := map[[2]string][]*store.Signed{}
	for _, e := range envelopes {
		group := [2]string{e.Source.UID, e.ScopeID()}
		groups[group] = append(groups[group], e)
	}
	for _, list := range groups {
		slices.SortFunc(list, func(a, b *store.Signed) int { return cmp.Compare(b.Sequence, a.Sequence) })
	}
	return groups
}

// tooOld returns the envelopes that are not among the newest Last of their source and scope.
func (r *run) tooOld(envelopes []*store.Signed) map[*store.Signed]bool {
	old := map[*store.Signed]bool{}
	if r.Last == 0 {
		return old
	}
	for _, list := range byScope(envelopes) {
		for _, e := range list[min(len(list), r.Last):] {
			old[e] = true
		}
	}
	return old
}

// readEnvelopes reads the envelopes that are not in the copy, and returns those that may be copied.
func (r *run) readEnvelopes(ctx context.Context) ([]*store.Signed, error) {
	read := make([]*store.Signed, len(r.toRead))
	junk := map[store.EnvelopeKey]error{}
	var mu sync.Mutex
	var done int64
	g, gctx := task.WithContext(ctx)
	g.SetLimit(requests)
	for i, s := range r.toRead {
		g.Go(func() error {
			e, err := r.From.GetEnvelope(gctx, s.Key)
			mu.Lock()
			defer mu.Unlock()
			done++
			r.Progress("envelopes read", done, int64(len(r.toRead)))
			switch {
			case store.IsMissing(err): // a prune of the origin has removed it
			case errors.Is(err, store.ErrForeign):
				r.untrusted(err)
			case store.OfStore(gctx, err) != nil:
				return &store.OriginError{Err: err}
			case err != nil:
				junk[s.Key] = err
			case !r.From.Accepted(&e):
				r.untrusted(e.RequireTrusted())
			default:
				read[i] = &e
			}
			return nil
		})
	}
	err := g.Wait()
	list := slices.DeleteFunc(read, func(e *store.Signed) bool { return e == nil })
	if err == nil {
		err = r.judge(ctx, list, junk)
	}
	slices.SortFunc(r.result.Findings, func(a, b object.Finding) int {
		return strings.Compare(a.Message, b.Message)
	})
	return list, err
}

// judge reports the envelopes that cannot be read. One of them is a snapshot when this host has
// read it before, or when a number of its source is missing in the origin. Otherwise anybody may
// have put it there.
func (r *run) judge(ctx context.Context, read []*store.Signed,
	junk map[store.EnvelopeKey]error) error {
	gaps := map[string]bool{} // of the sources of junk
	for key, err := range junk {
		if _, known := r.Known(r.From.ID(), key); known {
			r.notCopied(key, err)
			continue
		}
		missing, asked := gaps[key.Source]
		if !asked {
			var err error
			if missing, err = r.numberMissing(ctx, key.Source, read); err != nil {
				return err
			}
			gaps[key.Source] = missing
		}
		if missing {
			r.notCopied(key, err)
		} else {
			r.untrusted(err)
		}
	}
	return nil
}

// numberMissing reports whether a source has a gap in the origin that no record explains.
func (r *run) numberMissing(ctx context.Context, source string, read []*store.Signed) (bool,
	error) {
	chain := map[store.EnvelopeKey]store.Signed{}
	for _, e := range read {
		chain[e.Key()] = *e
	}
	listed, err := r.From.ListedSnapshots(ctx, source)
	if err != nil {
		return false, &store.OriginError{Err: err}
	}
	var numbers []int64
	for _, s := range listed {
		sequence, known := r.Known(r.From.ID(), s.Key)
		if e, ok := chain[s.Key]; ok && !known {
			sequence, known = e.Sequence, true
		}
		if !known {
			e, err := r.From.GetEnvelope(ctx, s.Key)
			switch {
			case store.OfStore(ctx, err) != nil:
				return false, &store.OriginError{Err: err}
			case err != nil || !r.From.Accepted(&e):
				continue
			}
			sequence = e.Sequence
		}
		numbers = append(numbers, sequence)
	}
	if len(numbers) == 0 {
		return false, nil
	}
	slices.Sort(numbers)
	for i, n := range numbers[1:] {
		if n > numbers[i]+1 &&
			!r.removed.from.ExplainsAll(source, store.Range{From: numbers[i] + 1, To: n - 1}) {
			return true, nil
		}
	}
	return false, nil
}

// untrusted reports an envelope that anybody may have written.
func (r *run) untrusted(err error) {
	r.result.Untrusted++
	r.result.report(object.Warning, object.CodeNotCopied, err.Error(), "find out where it comes from")
}

// notCopied reports a snapshot that cannot be copied, since it is damaged in the origin.
func (r *run) notCopied(key store.EnvelopeKey, err error) {
	r.result.Missing++
	r.result.report(object.Error, object.CodeNotCopied, fmt.Sprintf("%s: %v", key, err),
		"verify it in the origin")
}
