package service

import (
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
)

// storeState is what the last assertStore found. The next one must find all of it that was not
// removed.
type storeState struct {
	there  map[store.EnvelopeKey]bool
	pinned map[store.EnvelopeKey]bool       // and were not unpinned since; guarded by mu, too
	newest map[string]store.EnvelopeKey     // whole ones, by source
	read   map[store.EnvelopeKey]store.Tree // and Signed.Partial
	part   map[store.EnvelopeKey]bool
	number map[store.EnvelopeKey]int64 // Signed.Sequence
}

func newStoreState() storeState {
	return storeState{newest: map[string]store.EnvelopeKey{}, read: map[store.EnvelopeKey]store.Tree{},
		part: map[store.EnvelopeKey]bool{}, number: map[store.EnvelopeKey]int64{}}
}

// note remembers a whole snapshot if it is the newest.
func (k *storeState) note(key store.EnvelopeKey) {
	if last, ok := k.newest[key.Source]; !ok || k.isNewer(key, last) {
		k.newest[key.Source] = key
	}
}

// isNewer reports whether a snapshot may count as newer than another one of its source. Two runs at
// once may take the same number, and the one that began later may be stored first: then either may.
func (k *storeState) isNewer(a, b store.EnvelopeKey) bool {
	return a.Source == b.Source && a != b && k.number[a] >= k.number[b]
}

func compareKeys(a, b store.EnvelopeKey) int { return strings.Compare(a.String(), b.String()) }

// leaves reports whether a finding says why a snapshot stays that was to be removed.
func leaves(f object.Finding) bool {
	return f.Code == object.CodePinned || f.Code == object.CodeInUse ||
		f.Code == object.CodeSlow
}

// assertStore waits until no operation runs. It asserts that each missing snapshot was removed by
// an operation that may do so, and that the others have all content that they name. It does not use
// the rules of the prune for that.
func (k *soak) assertStore() {
	k.t.Helper()
	k.alone.Lock()
	defer k.alone.Unlock()
	stored, err := k.direct.StoredSnapshots(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	content := map[store.Key]bool{}
	if err := k.direct.Content(k.t.Context(),
		func(c store.StoredContent) error { content[c.Key] = true; return nil }); err != nil {
		k.t.Fatal(err)
	}
	there := map[store.EnvelopeKey]store.StoredSnapshot{}
	for _, s := range stored {
		there[s.Key] = s
		k.assertWhole(s.Key, content)
	}
	for key := range k.pruned.gone {
		if _, ok := there[key]; ok {
			k.t.Errorf("%s is there, and it was said that it was removed", key)
		}
	}
	now := map[store.EnvelopeKey]bool{}
	for key := range there {
		now[key] = true
	}
	for key := range k.last.there {
		if !now[key] {
			k.assertRemoved(key, there)
		}
	}
	for key := range k.last.pinned {
		if !now[key] {
			k.t.Errorf("%s was pinned and is gone", key)
		}
	}
	for _, of := range k.taken { // since the last check
		k.last.number[of.Key()] = of.Sequence
		if !of.Partial {
			k.last.note(of.Key())
		}
	}
	for source, key := range k.last.newest {
		newer := now[key]
		for other := range now {
			newer = newer || !k.last.part[other] && k.last.isNewer(other, key)
		}
		if !newer {
			k.t.Errorf("%s was the newest whole snapshot of %s and is gone", key, source)
		}
	}
	k.taken = slices.DeleteFunc(k.taken, func(of taken) bool {
		if !now[of.Key()] && !k.last.there[of.Key()] {
			k.assertRemoved(of.Key(), there) // it was created and removed since the last check
		}
		return !now[of.Key()]
	})
	k.remember(now)
}

// remember makes what is there what may not be gone next time.
func (k *soak) remember(now map[store.EnvelopeKey]bool) {
	k.t.Helper()
	pins, err := k.direct.Pins(k.t.Context(), "")
	if err != nil {
		k.t.Fatal(err)
	}
	k.last.there, k.last.pinned = now, map[store.EnvelopeKey]bool{}
	for key := range now {
		if pins[key] {
			k.last.pinned[key] = true
		}
		if !k.last.part[key] {
			k.last.note(key)
		}
	}
	clear(k.pruned.gone)
	clear(k.pruned.meant)
}

// assertWhole asserts that all content exists that a snapshot names. check reads the content
// itself.
func (k *soak) assertWhole(key store.EnvelopeKey, content map[store.Key]bool) {
	k.t.Helper()
	tree, known := k.last.read[key]
	if !known {
		e, err := k.direct.GetEnvelope(k.t.Context(), key)
		if err != nil || e.Trust != store.Trusted {
			k.t.Errorf("an envelope is not whole: %v", err)
			return
		}
		if tree, err = k.direct.GetTree(k.t.Context(), e.Tree); err != nil {
			k.t.Errorf("%s: %v", key, err)
			return
		}
		tree.Shards = append(tree.Shards, e.Tree)
		k.last.read[key], k.last.part[key], k.last.number[key] = tree, e.Partial, e.Sequence
	}
	for _, name := range slices.Concat(tree.Shards, tree.Packs) {
		if !content[name] {
			k.t.Errorf("%s is there, and %s that it names is not", key, name)
		}
	}
}

// assertRemoved asserts that an operation removed a missing snapshot, and that a newer one has
// existed for the grace period.
func (k *soak) assertRemoved(key store.EnvelopeKey,
	there map[store.EnvelopeKey]store.StoredSnapshot) {
	k.t.Helper()
	if !k.pruned.gone[key] && !k.pruned.meant[key] {
		k.t.Errorf("%s is gone, and nobody removed it", key)
	}
	for _, s := range there {
		if k.last.isNewer(s.Key, key) &&
			k.clock.Now().Sub(s.Modified) >= retention.MinGrace {
			return
		}
	}
	k.t.Errorf("%s is gone, and no newer one has been there for %s", key, retention.MinGrace)
}
