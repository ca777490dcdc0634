package store

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/task"
)

// ancestry remembers which envelopes of a source are predecessors of the snapshots that a stolen
// key is trusted for. A hash proves it, so that what was found once stays true.
type ancestry struct {
	mu    sync.Mutex
	known map[string]map[string]bool // by source and heads: the SHA-256 of envelopes
}

// ancestryReads is how many envelopes are read at once in search of predecessors.
const ancestryReads = 64

// openProven is openEnvelope that also asks whether an envelope of a stolen key is a predecessor of
// a snapshot that the key is trusted for. A gap in the chain of parents ends it: what is behind the
// gap, somebody could have made up later.
func (s *Store) openProven(ctx context.Context, key EnvelopeKey, data []byte) (Signed, error) {
	e, err := s.openEnvelope(key, data)
	if err != nil {
		return e, err
	}
	heads := e.Heads()
	if len(heads) == 0 {
		return e, nil
	}
	proven, err := s.ancestry.of(ctx, s, key.Source, heads)
	if err != nil {
		return Signed{}, err
	}
	if proven[e.SHA256] {
		e.Signature = e.Proven()
	}
	return e, nil
}

// of returns the hashes of the envelopes of a source that are heads or their predecessors.
func (a *ancestry) of(ctx context.Context, s *Store, source string, heads []keys.LastTrusted) (
	map[string]bool, error) {
	var name strings.Builder
	name.WriteString(source)
	for _, h := range heads {
		name.WriteString(" " + h.Hash)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if proven, ok := a.known[name.String()]; ok {
		return proven, nil
	}
	proven, err := s.predecessors(ctx, source, heads)
	if err != nil {
		return nil, err
	}
	if a.known == nil {
		a.known = map[string]map[string]bool{}
	}
	a.known[name.String()] = proven
	return proven, nil
}

// predecessors reads the envelopes of a source, and where somebody wrote over one its older
// versions, and follows the parents from heads.
func (s *Store) predecessors(ctx context.Context, source string, heads []keys.LastTrusted) (
	map[string]bool, error) {
	list, err := s.Snapshots(ctx, source)
	if err != nil {
		return nil, err
	}
	current := make([]string, len(list)) // SHA-256 of what a key has now
	parents := map[string]string{}       // SHA-256 of an envelope to that of its parent
	var mu sync.Mutex
	add := func(data []byte) string {
		sum, parent := layout.SHA256Hex(data), parentOf(data)
		mu.Lock()
		defer mu.Unlock()
		parents[sum] = parent
		return sum
	}
	g, readCtx := task.WithContext(ctx)
	g.SetLimit(ancestryReads)
	for i, key := range list {
		g.Go(func() error {
			data, err := bucket.ReadAll(readCtx, s.bucket, key.String(), maxEnvelope)
			if err == nil {
				current[i] = add(data)
			}
			return fatal(readCtx, err)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	proven := follow(parents, heads)
	for i, key := range list {
		if proven[current[i]] {
			continue
		}
		err := previousDocuments(ctx, s.bucket, key.String(), maxEnvelope, func(data []byte) (bool,
			error) {
			add(data)
			return false, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return follow(parents, heads), nil
}

// fatal returns an error because of which it cannot be said what the store has.
func fatal(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrStoreMissing) {
		return err
	}
	return nil
}

// follow returns the hashes of the heads that are there and of their predecessors.
func follow(parents map[string]string, heads []keys.LastTrusted) map[string]bool {
	proven := map[string]bool{}
	for _, h := range heads {
		for sum := h.Hash; !proven[sum]; sum = parents[sum] {
			if _, ok := parents[sum]; !ok {
				break
			}
			proven[sum] = true
		}
	}
	return proven
}

// parentOf returns the hash that an envelope has of its parent; empty without one. The signature is
// not checked: the hash of a successor proves the bytes.
func parentOf(data []byte) string {
	var f document.File
	var e Envelope
	if document.Decode(data, &f) != nil || document.Decode([]byte(f.Payload), &e) != nil ||
		e.Parent == nil {
		return ""
	}
	return e.Parent.SHA256
}
