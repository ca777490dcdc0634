package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Change is how an object of one snapshot differs from that of another.
type Change string

// Changes. An object that is in both snapshots with the same bytes has none.
const (
	Added    Change = "added"
	Removed  Change = "removed"
	Replaced Change = "replaced" // deleted and made anew under the same name
	Changed  Change = "changed"
	// written to, with nothing changed but what Differences passes over: times, versions, who wrote
	Touched Change = "touched"
)

// Difference is what became of one object.
type Difference struct {
	Node   *graph.Node // the newer one, but of what was removed
	Change Change
	// where it changed, for Changed and Replaced; never values, which may be secrets
	Paths []string
}

// Side is one of two snapshots that are compared. Contents are read from the store where they are
// nil.
type Side struct {
	*Snapshot
	Contents *Contents
}

// Compare returns the differences between two snapshots of whatever sources, by ref. Of the
// contents it reads those that are not the same in both.
func Compare(ctx context.Context, from, to Side) ([]Difference, error) {
	var list []Difference
	var before, after []*graph.Node
	for _, n := range to.Graph.Nodes {
		was := from.Graph.Node(n.Ref)
		switch {
		case was == nil:
			list = append(list, Difference{Node: n, Change: Added})
		case was.Content != n.Content:
			before, after = append(before, was), append(after, n)
		}
	}
	for _, n := range from.Graph.Nodes {
		if to.Graph.Node(n.Ref) == nil {
			list = append(list, Difference{Node: n, Change: Removed})
		}
	}
	for side, nodes := range map[*Side][]*graph.Node{&from: before, &to: after} {
		if side.Contents == nil {
			var err error
			if side.Contents, err = side.Load(ctx, nodes, nil); err != nil {
				return nil, err
			}
		}
	}
	for i, n := range after {
		paths, err := differences(from.Contents, to.Contents, n.Ref)
		if err != nil {
			return nil, err
		}
		d := Difference{Node: n, Change: Changed, Paths: paths}
		switch {
		case before[i].UID != n.UID:
			d.Change = Replaced
		case len(paths) == 0:
			d.Change = Touched
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Difference) int {
		return object.CompareRefs(a.Node.Ref,
			b.Node.Ref)
	})
	return list, nil
}

func differences(from, to *Contents, ref object.Ref) ([]string, error) {
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
	return equality.Differences(objects[0], objects[1], equality.All), nil
}
