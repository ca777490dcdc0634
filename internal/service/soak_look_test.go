package service

import (
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
)

// keeping is what the last look at the store found: what may not be gone at the next one.
type keeping struct {
	there  map[store.EnvelopeKey]bool
	pinned map[store.EnvelopeKey]bool       // and were not unpinned since; guarded by mu, too
	newest map[string]store.EnvelopeKey     // whole ones, by source
	read   map[store.EnvelopeKey]store.Tree // and Signed.Partial
	part   map[store.EnvelopeKey]bool
}

func newKeeping() keeping {
	return keeping{newest: map[string]store.EnvelopeKey{}, read: map[store.EnvelopeKey]store.Tree{},
		part: map[store.EnvelopeKey]bool{}}
}

// note remembers a whole snapshot if it is the newest.
func (k *keeping) note(key store.EnvelopeKey) {
	if last, ok := k.newest[key.Source]; !ok || compareKeys(key, last) > 0 {
		k.newest[key.Source] = key
	}
}

func compareKeys(a, b store.EnvelopeKey) int { return strings.Compare(a.String(), b.String()) }

// leaves tells of a finding that says why a snapshot stays that was to go.
func leaves(f object.Finding) bool {
	return f.Code == object.CodePinned || f.Code == object.CodeInUse ||
		f.Code == object.CodeSlow
}

// look waits until nobody does anything and sees whether what is gone was removed by those who may,
// and whether all that is left has all that it names. It goes by its own memory, not by the rules
// of the prune.
func (k *soak) look() {
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
		k.lookAt(s.Key, content)
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
	for key := range k.keep.there {
		if !now[key] {
			k.lookFor(key, there)
		}
	}
	for key := range k.keep.pinned {
		if !now[key] {
			k.t.Errorf("%s was pinned and is gone", key)
		}
	}
	for _, of := range k.taken { // since the last look
		if !of.Partial {
			k.keep.note(of.Key())
		}
	}
	for source, key := range k.keep.newest {
		newer := now[key]
		for other := range now {
			newer = newer || other.Source == source && !k.keep.part[other] && compareKeys(other, key) > 0
		}
		if !newer {
			k.t.Errorf("%s was the newest whole snapshot of %s and is gone", key, source)
		}
	}
	k.taken = slices.DeleteFunc(k.taken, func(of taken) bool {
		if !now[of.Key()] && !k.keep.there[of.Key()] {
			k.lookFor(of.Key(), there) // it came and went since the last look
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
	k.keep.there, k.keep.pinned = now, map[store.EnvelopeKey]bool{}
	for key := range now {
		if pins[key] {
			k.keep.pinned[key] = true
		}
		if !k.keep.part[key] {
			k.keep.note(key)
		}
	}
	clear(k.pruned.gone)
	clear(k.pruned.meant)
}

// lookAt sees whether a snapshot has all that it names. Names are those of bytes: what is there has
// been read, or will be, by check.
func (k *soak) lookAt(key store.EnvelopeKey, content map[store.Key]bool) {
	k.t.Helper()
	tree, known := k.keep.read[key]
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
		k.keep.read[key], k.keep.part[key] = tree, e.Partial
	}
	for _, name := range slices.Concat(tree.Shards, tree.Packs) {
		if !content[name] {
			k.t.Errorf("%s is there, and %s that it names is not", key, name)
		}
	}
}

// lookFor asks for a reason why a snapshot is gone: that somebody removed it, and that one which is
// newer has been there for the grace.
func (k *soak) lookFor(key store.EnvelopeKey, there map[store.EnvelopeKey]store.StoredSnapshot) {
	k.t.Helper()
	if !k.pruned.gone[key] && !k.pruned.meant[key] {
		k.t.Errorf("%s is gone, and nobody removed it", key)
	}
	for _, s := range there {
		if s.Key.Source == key.Source && compareKeys(s.Key, key) > 0 &&
			k.clock.Now().Sub(s.Modified) >= retention.MinGrace {
			return
		}
	}
	k.t.Errorf("%s is gone, and no newer one has been there for %s", key, retention.MinGrace)
}
