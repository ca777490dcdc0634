package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"

	"github.com/mgmtd/mgmtd/internal/store/keys"
)

// ancestry remembers which envelopes of a source are predecessors of the snapshots that a stolen
// key is trusted for. A hash proves it, so that what was found once stays true.
type ancestry struct {
	mu    sync.Mutex
	known map[string]map[string]bool // by source and heads: the SHA-256 of envelopes
}

// openProven is openEnvelope that also asks whether an envelope of a stolen key is a predecessor of
// a snapshot that the key is trusted for. A gap in the chain of parents ends it, unless a prune
// record leads over it: what is behind the gap, somebody could have made up later.
func (s *Store) openProven(ctx context.Context, key EnvelopeKey, data []byte) (Signed, error) {
	return s.openProvenWith(ctx, key, data, false)
}

// openProvenHidden is openProven for a repair: the chain also leads over envelopes that a delete
// marker hides, since these are about to be brought back.
func (s *Store) openProvenHidden(ctx context.Context, key EnvelopeKey, data []byte) (Signed,
	error) {
	return s.openProvenWith(ctx, key, data, true)
}

func (s *Store) openProvenWith(ctx context.Context, key EnvelopeKey, data []byte, hidden bool) (
	Signed, error) {
	e, err := s.openEnvelope(key, data)
	if err != nil {
		return e, err
	}
	heads := e.Heads()
	if len(heads) == 0 {
		return e, nil
	}
	proven, err := s.ancestry.of(ctx, s, key.Source, heads, hidden)
	if err != nil {
		return Signed{}, err
	}
	if proven[e.SHA256] {
		e.Signature = e.Proven()
	}
	return e, nil
}

// of returns the hashes of the envelopes of a source that are heads or their predecessors.
func (a *ancestry) of(ctx context.Context, s *Store, source string, heads []keys.LastTrusted,
	hidden bool) (map[string]bool, error) {
	var name strings.Builder
	name.WriteString(source)
	for _, h := range heads {
		name.WriteString(" " + h.Hash)
	}
	if hidden {
		name.WriteString(" hidden")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if proven, ok := a.known[name.String()]; ok {
		return proven, nil
	}
	proven, err := s.predecessors(ctx, source, heads, hidden)
	if err != nil {
		return nil, err
	}
	if a.known == nil {
		a.known = map[string]map[string]bool{}
	}
	a.known[name.String()] = proven
	return proven, nil
}

// forget makes the next question follow the chains again: a repair has closed gaps in them.
func (a *ancestry) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = nil
}

// fatal returns an error because of which it cannot be said what the store has.
func fatal(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrStoreMissing) {
		return err
	}
	return nil
}

// OfStore returns err unless it is about the one key that was read: what is under it is gone,
// damaged or of another store, or the storage refuses to give it, or the disk cannot read it. What
// anybody may put beside the other keys must not stop all work; any other error may be about all of
// them, such as that of a file system whose server is away.
func OfStore(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil && (IsMissing(err) || IsUnusable(err) ||
		errors.Is(err, ErrDenied) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL)) {
		return nil
	}
	return err
}
