package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// MaxDamaged is how many damaged keys a pass reports one by one and remembers. A store that lost a
// whole folder has one cause, not a hundred thousand.
const MaxDamaged = 1000

const (
	// treeReads is how many envelopes and trees are read at a time: each is a small request.
	treeReads = 8
	// namedSnapshots is how many snapshots a finding names.
	namedSnapshots = 5
)

// PassOptions are the options of Pass.
type PassOptions struct {
	Store  *store.Store
	Source string // UID
	// Subset is the part of the content that is read.
	Subset store.Subset
	// Known are keys that an earlier pass found damaged. They are read again, in any subset.
	Known []store.Key
	// Progress receives what is counted, how far it is, and the total.
	Progress func(what string, done, total int64)
}

// PassResult is what a pass found.
type PassResult struct {
	// Keys is how many keys the snapshots name, Read how many of them were read.
	Keys, Read int
	// Snapshots is how many snapshots were considered. Those that do not count, since no trusted
	// key signed them, name nothing that has to be there.
	Snapshots int
	Findings  []object.Finding
	// Damaged are the first MaxDamaged keys that are damaged or missing, sorted.
	Damaged []store.Key
	// Count is how many there are, and how many envelopes cannot be read.
	Count int
}

// Err returns a *DamagedError when something is damaged or missing.
func (r *PassResult) Err() error {
	if r.Count == 0 {
		return nil
	}
	return &DamagedError{Damaged: r.Count, Of: max(r.Keys, r.Count),
		What: "keys that the snapshots of the source name"}
}

// pass is one run of Pass.
type pass struct {
	PassOptions
	PassResult
	trees map[store.Key][]store.EnvelopeKey // the snapshots that name each tree
	named map[store.Key]struct{}            // by any snapshot; the trees themselves too
	// suspect are keys that are read in any subset.
	suspect map[store.Key]bool
	bad     map[store.Key]object.Finding
}

// Pass verifies what all snapshots of a source name, not only what the newest one does, which every
// other verify is about. It lists the content, so that each key is there and neither empty nor too
// large, and reads the keys of a subset: their names are hashes of the stored bytes, for which no
// identity is needed. It changes nothing. Errors are about the pass itself, and then nothing is
// known: a cancelled context, the store gone or not answering.
func Pass(ctx context.Context, o PassOptions) (*PassResult, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	p := &pass{PassOptions: o, trees: map[store.Key][]store.EnvelopeKey{},
		named: map[store.Key]struct{}{}, suspect: map[store.Key]bool{},
		bad: map[store.Key]object.Finding{}}
	// In this order: a snapshot writes its content before its envelope, so that what a listed
	// envelope names is in a later list of the content.
	for _, step := range []func(context.Context) error{p.envelopes, p.readTrees, p.listed, p.read,
		p.report} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return &p.PassResult, nil
}

// envelopes reads the envelopes that count.
func (p *pass) envelopes(ctx context.Context) error {
	list, err := p.Store.ListedSnapshots(ctx, p.Source)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	g, gctx := task.WithContext(ctx)
	g.SetLimit(treeReads)
	for _, listed := range list {
		g.Go(func() error {
			e, err := p.Store.GetEnvelope(gctx, listed.Key)
			if err != nil && !store.IsMissing(err) && !store.IsUnusable(err) {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case store.IsMissing(err): // a prune removed it
			case err != nil:
				p.Count++
				p.Findings = append(p.Findings, object.Finding{Severity: object.Error,
					Code: object.CodeDamaged, Message: listed.Key.String() + ": " + err.Error(),
					Hint: damagedHint})
			case p.Store.CanBeParent(&e):
				p.Snapshots++
				p.trees[e.Tree] = append(p.trees[e.Tree], listed.Key)
			}
			return nil
		})
	}
	return g.Wait()
}

const damagedHint = "restore the key from a copy of the store; until then, do not rely on these " +
	"snapshots"

// readTrees collects what the trees name.
func (p *pass) readTrees(ctx context.Context) error {
	var done int64
	return p.eachTree(ctx, func(key store.Key, tree store.Tree, err error) {
		p.named[key] = struct{}{}
		if err != nil {
			p.bad[key] = treeFinding(key, err)
		}
		for _, k := range slices.Concat(tree.Shards, tree.Packs) {
			p.named[k] = struct{}{}
		}
		done++
		p.Progress("trees read", done, int64(len(p.trees)))
	})
}

// eachTree reads all trees and calls fn for one at a time; with an error when one is damaged or
// missing.
func (p *pass) eachTree(ctx context.Context, fn func(store.Key, store.Tree, error)) error {
	var mu sync.Mutex
	g, gctx := task.WithContext(ctx)
	g.SetLimit(treeReads)
	for key := range p.trees {
		g.Go(func() error {
			tree, err := p.Store.GetTree(gctx, key)
			if err != nil && !store.IsMissing(err) && !store.IsUnusable(err) {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			fn(key, tree, err)
			return nil
		})
	}
	return g.Wait()
}

// listed notes which keys are not in a list of the content, or are empty, as no content is.
func (p *pass) listed(ctx context.Context) error {
	there := map[store.Key]struct{}{}
	err := p.Store.Content(ctx, func(c store.StoredContent) error {
		if _, ok := p.named[c.Key]; ok && c.Size > 0 {
			there[c.Key] = struct{}{}
		}
		return nil
	})
	for key := range p.named {
		if _, ok := there[key]; !ok {
			p.suspect[key] = true
		}
	}
	p.Keys = len(p.named)
	return err
}

// read reads the keys of the subset, those that the list lacks, and those that were damaged before.
func (p *pass) read(ctx context.Context) error {
	for _, key := range p.Known {
		p.suspect[key] = true
	}
	var keys []store.Key
	for _, key := range slices.Sorted(maps.Keys(p.named)) {
		if _, bad := p.bad[key]; !bad && (p.suspect[key] || p.Subset.Contains(key)) {
			keys = append(keys, key)
		}
	}
	report, err := p.Store.VerifyContent(ctx, keys, func(v store.VerifyProgress) {
		p.Progress("keys read", int64(v.Done), int64(v.Total))
	})
	p.Read = report.Keys
	for _, f := range report.Findings {
		p.bad[f.Key] = f.Finding
	}
	return err
}

// treeFinding is the finding for a tree that err says is damaged or missing.
func treeFinding(key store.Key, err error) object.Finding {
	f := object.Finding{Severity: object.Error, Code: object.CodeDamaged,
		Message: fmt.Sprintf("%s: %v", key, err)}
	if corrupt, ok := errors.AsType[*store.CorruptError](err); ok {
		f.Message = string(key) + ": " + corrupt.Reason
	} else if errors.Is(err, store.ErrNotFound) {
		f.Code, f.Message = object.CodeMissing, string(key)+": it is not in the store"
	}
	return f
}

// report makes findings of what is damaged, with the snapshots that need it.
func (p *pass) report(ctx context.Context) error {
	if len(p.bad) == 0 {
		return nil
	}
	needs, err := p.needs(ctx)
	if err != nil {
		return err
	}
	keys := slices.SortedFunc(maps.Keys(needs), cmp.Compare)
	p.Count += len(keys)
	p.Damaged = keys[:min(len(keys), MaxDamaged)]
	for _, key := range p.Damaged {
		f := p.bad[key]
		f.Message += "; " + neededBy(needs[key])
		f.Hint = damagedHint
		p.Findings = append(p.Findings, f)
	}
	if more := len(keys) - len(p.Damaged); more > 0 {
		p.Findings = append(p.Findings, object.Finding{Severity: object.Error,
			Code:    object.CodeDamaged,
			Message: fmt.Sprintf("%d more keys are damaged or missing", more), Hint: damagedHint})
	}
	return nil
}

// needs returns the snapshots that need each damaged key, oldest first. A key that only snapshots
// needed that a prune has removed meanwhile is not damaged.
func (p *pass) needs(ctx context.Context) (map[store.Key][]store.EnvelopeKey, error) {
	needs := map[store.Key][]store.EnvelopeKey{}
	there := map[store.EnvelopeKey]bool{}
	err := p.eachTree(ctx, func(key store.Key, tree store.Tree, _ error) {
		for _, k := range slices.Concat([]store.Key{key}, tree.Shards, tree.Packs) {
			if _, bad := p.bad[k]; bad {
				needs[k] = append(needs[k], p.trees[key]...)
				for _, snapshot := range p.trees[key] {
					there[snapshot] = true
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for snapshot := range there {
		gone, err := p.Store.SnapshotGone(ctx, snapshot)
		if err != nil {
			return nil, err
		}
		there[snapshot] = !gone
	}
	for key, list := range needs {
		list = slices.DeleteFunc(list, func(s store.EnvelopeKey) bool { return !there[s] })
		slices.SortFunc(list, func(a, b store.EnvelopeKey) int {
			return strings.Compare(a.String(), b.String())
		})
		list = slices.Compact(list)
		if needs[key] = list; len(list) == 0 {
			delete(needs, key)
		}
	}
	return needs, nil
}

// neededBy names snapshots, the newest ones.
func neededBy(list []store.EnvelopeKey) string {
	var ids []string
	for _, s := range slices.Backward(list[max(0, len(list)-namedSnapshots):]) {
		ids = append(ids, string(s.ID))
	}
	text := "snapshots that need it: " + strings.Join(ids, ", ")
	if more := len(list) - len(ids); more > 0 {
		text += fmt.Sprintf(" and %d older ones", more)
	}
	return text
}
