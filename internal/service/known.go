package service

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// knownSnapshots is what this host knows of the snapshots of a source besides what the store shows.
type knownSnapshots struct {
	// missing are in the catalog and not in the store, and no trusted record says that they were
	// removed: somebody may have hidden them. Newest first.
	missing []catalog.SnapshotRecord
	// highest is the highest sequence number that the catalog or the records of prunes have.
	highest int64
}

// readKnown compares the catalog with what a store shows of one source, or of all when source is
// empty. It forgets the snapshots that a prune removed, also one of another host.
func readKnown(ctx context.Context, c *catalog.Catalog, st *store.Store, source string) (
	k knownSnapshots, err error) {
	records, err := c.Snapshots(ctx, catalog.SnapshotFilter{StoreID: st.ID(), Source: source})
	if err != nil {
		return k, err
	}
	keys, err := st.Snapshots(ctx, source)
	if err != nil {
		return k, err
	}
	there := make(map[string]bool, len(keys))
	for _, key := range keys {
		there[key.String()] = true
	}
	var gone []catalog.SnapshotRecord
	for _, r := range records {
		k.highest = max(k.highest, r.Sequence)
		if !there[r.Key] {
			gone = append(gone, r)
		}
	}
	if len(gone) == 0 && len(records) > 0 {
		return k, nil // records of prunes explain nothing then
	}
	pruned, err := st.Pruned(ctx)
	if err != nil {
		return k, err
	}
	var explained []string
	for _, r := range gone {
		if pruned.Explains(r.Source, r.Sequence) {
			explained = append(explained, r.Key)
		} else {
			k.missing = append(k.missing, r)
		}
	}
	k.highest = max(k.highest, pruned.Highest(source))
	return k, c.ForgetSnapshots(ctx, st.ID(), explained)
}

// missingFindings returns the finding about snapshots that are missing in a store, if there are
// any.
func missingFindings(missing []catalog.SnapshotRecord) []object.Finding {
	if len(missing) == 0 {
		return nil
	}
	newest := missing[0]
	return []object.Finding{{Severity: object.Warning, Code: object.CodeSnapshotMissing,
		Message: fmt.Sprintf("%d snapshots that this host knows are not in the store, and no trusted "+
			"record says that they were removed; the newest of them is %s, number %d, of %s",
			len(missing), newest.ID, newest.Sequence, newest.Time.UTC().Format("2006-01-02T15:04:05Z")),
		Hint: "search for them among older versions in the bucket or in a copy of the store; if they " +
			"are gone for good, accept the gaps once"}}
}

// missingOf returns the finding about snapshots of a source that are missing in a store. While
// another process holds the catalog, nothing is known of them.
func (s *Server) missingOf(ctx context.Context, st *store.Store, source string) ([]object.Finding,
	error) {
	c, err := s.openCatalog(ctx)
	if as[*catalog.LockedError](err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known, err := readKnown(ctx, c, st, source)
	return missingFindings(known.missing), err
}

// sequenceLow returns the finding about a snapshot with a lower number than the operator asked for
// at least.
func sequenceLow(e store.Signed, atLeast int64) []object.Finding {
	if e.Sequence >= atLeast {
		return nil
	}
	return []object.Finding{{Severity: object.Fatal, Code: object.CodeSequenceLow,
		Message: fmt.Sprintf("snapshot %s has number %d, and at least %d was asked for", e.ID, e.Sequence,
			atLeast),
		Hint: "search for the newer ones among older versions in the bucket or in a copy of the store"}}
}
