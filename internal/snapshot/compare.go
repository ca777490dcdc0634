package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// ChangeKind is how an object of one snapshot differs from that of another.
type ChangeKind string

// The kinds of change. An object that is in both snapshots with the same bytes has none.
const (
	Added    ChangeKind = "added"
	Removed  ChangeKind = "removed"
	Replaced ChangeKind = "replaced" // deleted and created again under the same name
	Changed  ChangeKind = "changed"
	// Touched: written to, but only times, versions and managers changed, which equality ignores.
	Touched ChangeKind = "touched"
)

// Change describes one object that differs between two snapshots.
type Change struct {
	Node *graph.Node // the newer one; for Removed the old one
	Kind ChangeKind
	// Paths are the fields that changed, for Changed and Replaced; never values, which may be
	// secret.
	Paths []string
}

// Version is one of two snapshots that are compared. Contents that are nil are read from the store.
type Version struct {
	*Snapshot
	Contents *Contents
}

// Compare returns the changes between two snapshots, sorted by ref. They may be of different
// sources. Only contents that differ are read.
func Compare(ctx context.Context, from, to Version) ([]Change, error) {
	var list []Change
	var before, after []*graph.Node
	for _, n := range to.Graph.Nodes {
		was := from.Graph.Node(n.Ref)
		switch {
		case was == nil:
			list = append(list, Change{Node: n, Kind: Added})
		case was.Content != n.Content:
			before, after = append(before, was), append(after, n)
		}
	}
	for _, n := range from.Graph.Nodes {
		if to.Graph.Node(n.Ref) == nil {
			list = append(list, Change{Node: n, Kind: Removed})
		}
	}
	for side, nodes := range map[*Version][]*graph.Node{&from: before, &to: after} {
		if side.Contents == nil {
			var err error
			if side.Contents, err = side.Load(ctx, nodes, nil); err != nil {
				return nil, err
			}
		}
	}
	for i, n := range after {
		paths, err := differences(to.Graph.Rows, from.Contents, to.Contents, n.Ref)
		if err != nil {
			return nil, err
		}
		d := Change{Node: n, Kind: Changed, Paths: paths}
		switch {
		case before[i].UID != n.UID:
			d.Kind = Replaced
		case len(paths) == 0:
			d.Kind = Touched
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Change) int {
		return object.CompareRefs(a.Node.Ref,
			b.Node.Ref)
	})
	return list, nil
}

func differences(rows *capi.Table, from, to *Contents, ref object.Ref) ([]string, error) {
	var objects [2]map[string]any
	for i, c := range []*Contents{from, to} {
		raw, err := c.Bytes(ref)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, &objects[i]); err != nil {
			// the decoder's words may quote a Secret
			return nil, fmt.Errorf("decode %s: not JSON", ref)
		}
	}
	return equality.Differences(rows, objects[0], objects[1], equality.All), nil
}
