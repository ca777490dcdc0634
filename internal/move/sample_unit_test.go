package move_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// tracedSteps are steps of three units in two batches, as a process traces them.
func tracedSteps(undo bool, shared, ofUnit []string) (steps []traced) {
	for batch := range 2 {
		for _, phase := range shared {
			steps = append(steps, traced{Step: fmt.Sprintf("-/%s-b%d", phase, batch+1), Undo: undo,
				Writes: 1})
		}
	}
	for i, phase := range ofUnit {
		for unit := range 3 {
			steps = append(steps, traced{Step: fmt.Sprintf("ns/w-%d/%s", unit, phase), Undo: undo,
				Writes: i})
		}
	}
	return steps
}

// TestAProcessOfTheSampleDiesInEachKindOfStep: so do those of the matrix, of which it is a sample.
func TestAProcessOfTheSampleDiesInEachKindOfStep(t *testing.T) {
	shared := []string{"create", "verify-shared", "release-shared", "retire-shared"}
	ofUnit := []string{"pause", "create", "owners", "hand-over", "release", "post-flight", "retire"}
	tr := traces{backAgain: tracedSteps(false, shared, ofUnit),
		undoneNarrow: tracedSteps(true, nil, []string{"pause", "lock"}),
		forward:      tracedSteps(false, []string{"release-shared"}, []string{"release"})}
	tr.there = append([]traced{{Step: "-/namespace", Writes: 1}}, tr.backAgain...)
	tr.undone = append(tracedSteps(true, nil, []string{"owners", "create", "pause", "lock"}),
		traced{Step: "-/create-b1", Undo: true, Writes: 1}, traced{Step: "-/once", Undo: true},
		traced{Step: "-/rare", Undo: true})
	tr.returned = append(tracedSteps(false, nil, []string{"give-back-b1"}),
		tracedSteps(true, nil, []string{"create"})...)
	for _, s := range tracedSteps(false, shared, []string{"lock", "pre-create", "release", "retire"}) {
		s.Beside = true
		tr.narrow = append(tr.narrow, s)
	}
	want := []string{"ahead: undo lock", "away: undo lock", "away: undo pause", "beside: lock",
		"beside: pre-copy", "beside: release", "create", "forward: release", "forward: release-shared",
		"give back: give-back",
		"give back: undo create", "hand-over", "namespace", "owners", "owners/", "pause", "post-flight",
		"release", "release-shared", "retire", "retire-shared", "snapshots/", "undo completion",
		"undo create", "undo lock", "undo once",
		"undo pause", "undo rare", "verify-shared"}
	matrix := matrixOf(tr)
	sample := oneOfEachKind(matrix, tr)
	for name, all := range map[string][]crash{"matrix": matrix, "sample": sample} {
		if got := slices.Sorted(maps.Keys(kindsOf(all))); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if len(sample) > len(want) {
		t.Errorf("%d states for %d kinds of steps", len(sample), len(want))
	}
	if none := ofKinds(matrix, map[string]bool{"unknown": true}); len(none) > 0 {
		t.Errorf("states for a kind that the matrix does not have: %v", none)
	}
	died := map[string]bool{}
	for _, c := range sample {
		at := -1
		for _, p := range c.points() {
			died[p.Point] = true
			in := p.in(tr.of(c))
			if in < at {
				t.Errorf("of a move that dies at %v, %v is the step %d, after the step %d", c, p, in, at)
			}
			at = in
		}
		if len(c.Then) > mostDeaths {
			t.Errorf("a move dies at %d points", len(c.Then)+1)
		}
	}
	for _, point := range []string{before, inside, after} {
		if !died[point] {
			t.Errorf("in the sample no process dies %s a step", point)
		}
	}
	points := pointsOf([]traced{{Step: "-/s", Writes: 4}})
	if want := []kill{{Point: before, Step: "-/s"}, {Point: inside, Step: "-/s", Write: 1, Answered: true},
		{Point: inside, Step: "-/s", Write: 3}, {Point: after, Step: "-/s"}}; !slices.Equal(points, want) {
		t.Errorf("points of a step: %v", points)
	}
	reached := map[kill]bool{}
	for _, c := range matrix {
		for _, p := range append([]kill{c.First}, c.Then...) {
			reached[p] = true
		}
	}
	for _, p := range pointsOf(tr.there) {
		if !reached[p] {
			t.Errorf("in the matrix no process dies %s %s", p.Point, p.Step)
		}
	}
}
