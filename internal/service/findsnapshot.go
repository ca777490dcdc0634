package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
)

// findSource returns the UID of the source with this name or UID; without a name, that of the only
// source. A name is that which a snapshot that counts gives its source, and a source without such
// a snapshot is none when another one has some: write access to the store must not be enough to
// make a name ambiguous.
func findSource(ctx context.Context, st *store.Store, name string) (string, error) {
	uids, err := st.Sources(ctx)
	if err != nil {
		return "", err
	}
	switch {
	case len(uids) == 0:
		return "", &Error{Reason: ReasonNotFound, Message: "the store holds no snapshots",
			Hint:    "take one, or check whether this is the right store",
			HintKey: object.HintFirstSnapshot}
	case slices.Contains(uids, name):
		return name, nil
	case name == "" && len(uids) == 1:
		return uids[0], nil
	}
	sources, unread, err := st.SearchSources(ctx)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(sources, counts) {
		sources = slices.DeleteFunc(sources, func(f store.FoundSource) bool { return !counts(f) })
	}
	matches := sources
	if name != "" {
		matches = slices.DeleteFunc(slices.Clone(sources), func(f store.FoundSource) bool {
			return f.Name() != name
		})
	}
	if len(matches) == 1 && (unread == 0 || name != "") {
		return matches[0].UID, nil
	}
	if len(matches) == 0 {
		return "", &Error{Reason: ReasonNotFound, Message: fmt.Sprintf("the store holds no snapshot "+
			"of source %q", name), Hint: "it holds " + sourceLabels(sources, unread)}
	}
	return "", &Error{Reason: ReasonAmbiguous, Message: fmt.Sprintf("the store holds snapshots "+
		"of %d sources", len(matches)+unread), Hint: "name one of " + sourceLabels(sources, unread),
		HintKey: object.HintSource}
}

// counts reports whether a source has a snapshot that counts.
func counts(f store.FoundSource) bool { return f.Snapshot != nil }

// mostLabels is how many sources a hint lists: anybody who can write to the store can put more
// there than a terminal shows.
const mostLabels = 20

// sourceLabels lists sources for a hint. unread is how many more there are.
func sourceLabels(sources []store.FoundSource, unread int) string {
	var labels []string
	for _, f := range sources[:min(len(sources), mostLabels)] {
		labels = append(labels, strings.TrimSpace(f.Name()+" ("+f.UID+")"))
	}
	if more := len(sources) - len(labels); more > 0 {
		labels = append(labels, fmt.Sprintf("%d more", more))
	}
	if unread > 0 {
		labels = append(labels, fmt.Sprintf("%d that were not read, which need their UID", unread))
	}
	return strings.Join(labels, ", ")
}

// snapshotRef names a snapshot in a request.
type snapshotRef struct {
	source string // name or UID; may be empty when there is one source
	// ref is "latest", a time or the beginning of an id; empty is latest. scope narrows the first
	// two (store.Find).
	ref, scope string
}

// findSnapshot returns the envelope of the snapshot that a request names, and what was passed over
// in the search for it.
func findSnapshot(ctx context.Context, st *store.Store, r snapshotRef) (store.Signed,
	[]store.PassedOver, error) {
	found, err := find(ctx, st, r)
	if err != nil {
		return store.Signed{}, nil, err
	}
	e, err := st.GetEnvelope(ctx, found.Key)
	return e, found.PassedOver, err
}

// find finds the key of the envelope that a request names, whether it can be read or not.
func find(ctx context.Context, st *store.Store, r snapshotRef) (store.Found, error) {
	uid, err := findSource(ctx, st, r.source)
	if err != nil {
		return store.Found{}, err
	}
	return st.Find(ctx, uid, cmp.Or(r.ref, latest), r.scope)
}

// overwritten returns the finding about a store that was opened by an older version of mgmtd.json.
func overwritten(st *store.Store) []object.Finding {
	if why := st.MarkerOverwritten(); why != nil {
		return []object.Finding{retention.Overwritten(why)}
	}
	return nil
}

// passedOver returns the finding about envelopes that did not count in a search for the newest
// one. It has the given severity if one of them is damaged, and is a warning otherwise.
func passedOver(passed []store.PassedOver, damaged object.Severity) []object.Finding {
	if len(passed) == 0 {
		return nil
	}
	last := passed[len(passed)-1]
	severity := object.Warning
	if slices.ContainsFunc(passed, func(p store.PassedOver) bool { return store.IsCorrupt(p.Err) }) {
		severity = damaged
	}
	return []object.Finding{{Severity: severity, Code: object.CodePassedOver,
		Message: fmt.Sprintf("%d envelopes did not count in the search for the newest snapshot, "+
			"the last of them %s: %v", len(passed), last.Key, last.Err),
		Hint: "find out who wrote them; a snapshot of another key or a damaged one can be named by " +
			"its id"}}
}
