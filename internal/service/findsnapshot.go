package service

import (
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
		label := "" // of a source none of whose envelopes can be read
		if key, err := st.Find(ctx, uid, latest); err == nil {
			if e, err := st.GetEnvelope(ctx, key); err == nil {
				label = e.Source.Name
			}
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

// findSnapshot returns the envelope of the snapshot that a request names; the newest when it names
// none.
func findSnapshot(ctx context.Context, st *store.Store, source, ref string) (store.Signed, error) {
	uid, err := findSource(ctx, st, source)
	if err != nil {
		return store.Signed{}, err
	}
	if ref == "" {
		ref = latest
	}
	key, err := st.Find(ctx, uid, ref)
	if err != nil {
		return store.Signed{}, err
	}
	return st.GetEnvelope(ctx, key)
}
