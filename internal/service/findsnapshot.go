package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// findSource returns the UID of the source with this name or UID; without a name, that of the only
// source.
func findSource(ctx context.Context, st *store.Store, name string) (string, error) {
	uids, err := st.Sources(ctx)
	if err != nil {
		return "", err
	}
	if len(uids) == 0 {
		return "", &Error{Reason: ReasonNotFound, Message: "the store holds no snapshots",
			Hint:    "take one, or check whether this is the right store",
			HintKey: object.HintFirstSnapshot}
	}
	if slices.Contains(uids, name) {
		return name, nil
	}
	var labels, matches []string
	for _, uid := range uids {
		newest, _, err := st.Newest(ctx, uid, store.Which{})
		if err != nil {
			return "", err
		}
		label := "" // of a source none of whose envelopes counts
		if newest != nil {
			label = newest.Source.Name
		}
		labels = append(labels, strings.TrimSpace(label+" ("+uid+")"))
		if name == "" || label == name {
			matches = append(matches, uid)
		}
	}
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) == 0:
		return "", &Error{Reason: ReasonNotFound, Message: fmt.Sprintf("the store holds no snapshot "+
			"of source %q", name), Hint: "it holds " + strings.Join(labels, ", ")}
	default:
		return "", &Error{Reason: ReasonAmbiguous, Message: fmt.Sprintf("the store holds snapshots "+
			"of %d sources", len(matches)), Hint: "name one of " + strings.Join(labels, ", "),
			HintKey: object.HintSource}
	}
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

// passedOver returns the finding about envelopes that did not count in a search for the newest one.
// It has the given severity if one of them is damaged, and is a warning otherwise.
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
