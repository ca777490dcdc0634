package move_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// This file makes one move of several that die: a process goes on with it, and dies as well.

// mostDeaths is how many processes die in one move of the sample. Each one makes it longer, and a
// move that misses a point misses those after it.
const mostDeaths = 4

// chained makes one move of several that go the same way: the points at which they die come one
// after the other, in the order of the trace, and far apart.
func chained(moves []crash, tr traces) (fewer []crash) {
	var ways []crash // without their points
	points := map[string][]kill{}
	for _, c := range moves {
		if c.Fresh || c.Back && !c.goesOn() && c.Touch == "" {
			fewer = append(fewer, c) // as it is
			continue
		}
		way := c
		if way.Then = nil; !c.goesOn() {
			way.First = kill{}
		}
		key := fmt.Sprint(way)
		if points[key] == nil {
			ways = append(ways, way)
		}
		points[key] = append(points[key], c.points()...)
	}
	for _, way := range ways {
		list, steps := points[fmt.Sprint(way)], tr.of(way)
		slices.SortStableFunc(list, func(a, b kill) int {
			return cmp.Or(cmp.Compare(a.in(steps), b.in(steps)),
				cmp.Compare(slices.Index(placesInAStep, a.Point), slices.Index(placesInAStep, b.Point)))
		})
		n := (len(list) + mostDeaths - 1) / mostDeaths
		for i := range n {
			c := way
			for j := i; j < len(list); j += n {
				c.Then = append(c.Then, list[j])
			}
			if way.First == (kill{}) {
				c.First, c.Then = c.Then[0], c.Then[1:]
			}
			fewer = append(fewer, c)
		}
	}
	return fewer
}

// goesOn reports whether the points of Then are on a way of their own, which begins at First.
func (c crash) goesOn() bool {
	return len(c.Then) > 0 && c.Touch == "" && (c.Back || c.Forward)
}

// points are those that another move which goes the same way can have, too.
func (c crash) points() []kill {
	if c.goesOn() {
		return c.Then
	}
	return append([]kill{c.First}, c.Then...)
}

// of returns the trace with the points of a move.
func (tr traces) of(c crash) []traced {
	switch {
	case c.Touch != "":
		return tr.returned
	case c.Forward:
		return tr.forward
	case c.Back && c.Narrow:
		return tr.undoneNarrow
	case c.Back:
		return tr.undone
	case c.Narrow:
		return tr.narrow
	default:
		return tr.backAgain
	}
}

// in returns the number of the step in which a process dies, or in which a key is written. What the
// trace does not have comes last.
func (k kill) in(steps []traced) int {
	n := slices.IndexFunc(steps, func(s traced) bool {
		switch k.Key {
		case "":
			return s.Step == k.Step && s.Undo == k.Undo
		case handedOver.Key:
			return strings.HasSuffix(s.Step, "/hand-over")
		default: // a snapshot, after the pause
			return strings.Contains(s.Step, "/create-b")
		}
	})
	if n < 0 {
		return len(steps)
	}
	return n
}
