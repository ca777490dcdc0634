package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// checkPlace compares the store that was found at a place with what this daemon found there before,
// and remembers it. mgmtd.json of a store is not signed, and in a bucket without versions nothing
// shows what it was once all snapshots are gone. Without a daemon nothing is remembered.
func (s *Server) checkPlace(ctx context.Context, l *Location, st *store.Store) error {
	if !s.cfg.Daemon {
		return nil
	}
	if st.Origin() == "" {
		if err := s.refuseCopyTarget(l.Name); err != nil {
			return &Error{Reason: ReasonDamaged, Message: fmt.Sprintf("the store at %s says that it is no "+
				"copy: %v", st, err), Hint: "find out who wrote its mgmtd.json; to read it as it is, " +
				"name its URL without a configuration"}
		}
	}
	c, err := epochMemory{s}.catalog(ctx)
	if c == nil {
		return err
	}
	found := catalog.Place{StoreID: st.ID(), Origin: st.Origin()}
	before, err := c.Place(ctx, st.String())
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return c.PutPlace(ctx, st.String(), found)
	case err == nil && before != found:
		return &Error{Reason: ReasonDamaged, Message: fmt.Sprintf("%s was %s, and is %s now", st,
			describePlace(before), describePlace(found)),
			Hint: "find out who wrote its mgmtd.json; if the store was replaced on purpose, rebuild the " +
				"index of this location in the catalog"}
	}
	return err
}

// checkMissing returns the error for a location without a store: missing, or a *goneError when this
// daemon has found a store there before. What is done before the first snapshot, such as to go on
// without ownership records, must not be done with a store that is not mounted or was emptied.
func (s *Server) checkMissing(ctx context.Context, l *Location, missing error) error {
	if !s.cfg.Daemon {
		return missing
	}
	b, err := s.bucket(l)
	if err != nil {
		return missing
	}
	c, err := epochMemory{s}.catalog(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		return missing
	}
	before, err := c.Place(ctx, b.String())
	if errors.Is(err, catalog.ErrNotFound) {
		return missing
	}
	if err != nil {
		return err
	}
	return &goneError{place: b.String(), before: before, why: missing.Error()}
}

// goneError means that a store is not there that this daemon has found there before. It is no
// store.ErrStoreMissing.
type goneError struct {
	place  string
	before catalog.Place
	why    string
}

func (e *goneError) Error() string {
	return fmt.Sprintf("%s was %s, and there is no store now: %s", e.place, describePlace(e.before),
		e.why)
}

// Hint says what the operator can do.
func (*goneError) Hint() string {
	return "mount its folder, or find out who removed it and restore it from a copy; for a new, " +
		"empty store give the location another URL"
}

func isGone(err error) bool { return as[*goneError](err) }

// rememberPlace records which store is at its place, whatever was there before.
func (s *Server) rememberPlace(ctx context.Context, c *catalog.Catalog, st *store.Store) error {
	return c.PutPlace(ctx, st.String(), catalog.Place{StoreID: st.ID(), Origin: st.Origin()})
}

func describePlace(p catalog.Place) string {
	if p.Origin != "" {
		return fmt.Sprintf("store %s, a copy of store %s", p.StoreID, p.Origin)
	}
	return "store " + p.StoreID
}
