package move_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// sampleStep: of the points of a rollback, and of those that others have in another way, every
// fourth is in the matrix, and the first one in each kind of step.
const sampleStep = 4

// Where in a step a process dies.
const (
	before = "before" // its record says begun, and its function has not run
	inside = "inside" // at a write
	after  = "after"  // its record says that it ended
	atKey  = "at-key" // not in a step: when a key is written to the store
)

// kill says when a process dies.
type kill struct {
	Point string
	Step  string // the key, with ns in place of the namespace
	Undo  bool   // of the way back
	Write int    // inside: the number of the write, of this step, from 1
	// Key is the beginning of the keys of the store at whose write a process dies, in any step.
	Key string
	// Answered: after the answer to the write, not before it was sent.
	Answered bool
	// Beside: another batch is in flight, released on the target and not retired.
	Beside bool
}

// traced is one step as a process went through it.
type traced struct {
	Step   string
	Undo   bool
	Writes int // to both sides
	// Beside: another unit was released and not retired when it began.
	Beside bool
}

// crash is one move of the matrix: the point at which it dies, and those at which the processes die
// that go on with it.
type crash struct {
	First kill
	// Then are the points in the processes that go on, one after the other. The last process lives.
	Then []kill
	// Back says that the move is rolled back, not resumed, if nothing is handed over.
	Back bool
	// Fresh says that the namespace does not exist on the target.
	Fresh bool
	// Touch is a unit whose hand-over fails: the process dies while it gives the unit back.
	Touch string
	// Away says that the move is rolled back without the target first, which answers later.
	Away bool
	// Lost says that the catalog is lost with the process: another host goes on.
	Lost bool
	// Narrow says that each unit is a batch of its own, the touched one first: while that is in
	// flight, the others are locked and copied ahead.
	Narrow bool
	// Forward says that the move is resumed without the source first, which answers later.
	Forward bool
}

// notHandedOver is the death of a move right before its hand-over.
var notHandedOver = kill{Point: atKey, Key: "owners/"}

// handedOver is the death of a move right after its hand-over.
var handedOver = kill{Point: atKey, Key: "owners/", Answered: true}

// touched is the unit whose hand-over fails in some states.
const touched = "w-00003"

// traces are the steps of the processes from which the matrix is made.
type traces struct {
	there, backAgain []traced // a move and the move back
	undone           []traced // the rollback of a move that died before its hand-over
	returned         []traced // a move that gives a unit back
	narrow           []traced // a move of batches of one unit
	undoneNarrow     []traced // the rollback of such a one
	forward          []traced // the resume without the source of a move that died after a hand-over
}

// matrixOf makes the matrix.
func matrixOf(tr traces) []crash {
	var all []crash
	for _, p := range pointsOf(tr.there) { // the way back knows no step that makes the namespace
		if !slices.ContainsFunc(tr.backAgain, func(s traced) bool { return s.Step == p.Step }) {
			all = append(all, crash{First: p, Fresh: true, Back: len(all)%2 == 1})
		}
	}
	var early, late []kill
	for _, p := range pointsOf(tr.backAgain) {
		if isLate(p) {
			late = append(late, p)
		} else {
			early = append(early, p)
		}
	}
	late = append(late, handedOver)
	early = append(early, kill{Point: atKey, Key: "snapshots/"}, notHandedOver,
		kill{Point: atKey, Key: "snapshots/", Answered: true})
	resumed := func(c crash) {
		if len(late) > 0 {
			c.Then, late = late[:1:1], late[1:]
		}
		all = append(all, c)
	}
	for i, p := range early {
		if c := (crash{First: p, Back: i%2 == 1, Away: i%4 == 1}); c.Back {
			all = append(all, c)
		} else {
			resumed(c)
		}
	}
	for i, steps := range [][]traced{tr.backAgain, tr.narrow} {
		for _, p := range sampleOf(pointsBeside(steps), every) {
			resumed(crash{First: p, Narrow: i == 1})
		}
	}
	for _, p := range late {
		all = append(all, crash{First: p})
	}
	return append(all, waysBack(tr, len(all))...)
}

// waysBack are the moves in which the second process dies on a way back, or goes forward without
// the source, and those in which the first one gives a unit back. The first of them that goes on in
// two ways begins with the one of n.
func waysBack(tr traces, n int) (all []crash) {
	for _, p := range sampleOf(pointsOf(tr.undone), every) {
		all = append(all, crash{First: notHandedOver, Then: []kill{p}, Back: true})
	}
	unlocks := func(p kill) bool { return strings.HasSuffix(p.Step, "/lock") }
	for _, p := range pointsOf(tr.undone) {
		// The only steps of a rollback without the target.
		if strings.HasSuffix(p.Step, "/pause") || unlocks(p) {
			all = append(all, crash{First: notHandedOver, Then: []kill{p}, Back: true, Away: true})
		}
	}
	for _, p := range sampleOf(pointsOf(tr.undoneNarrow), unlocks) {
		all = append(all, crash{First: notHandedOver, Then: []kill{p}, Back: true, Narrow: true})
	}
	for _, p := range sampleOf(pointsOf(tr.forward), every) {
		all = append(all, crash{First: handedOver, Then: []kill{p}, Forward: true})
	}
	for _, p := range sampleOf(pointsOf(tr.returned),
		func(p kill) bool { return p.Undo || p.kind() == "give-back" }) {
		all = append(all, crash{First: p, Touch: touched, Back: (n+len(all))%2 == 0})
	}
	return all
}

func every(kill) bool { return true }

// sampleOf returns those points that are wanted and the first one of a kind, and every fourth one.
func sampleOf(points []kill, wanted func(kill) bool) (sample []kill) {
	known := map[string]bool{}
	for i, p := range points {
		if kind := p.kind(); wanted(p) && (i%sampleStep == 0 || !known[kind]) {
			known[kind] = true
			sample = append(sample, p)
		}
	}
	return sample
}

// isLate reports whether a point is in or after the hand-over of a unit.
func isLate(k kill) bool {
	step, err := catalog.ParseStep(k.Step)
	if err != nil {
		return false
	}
	for _, phase := range []string{"release", "post-flight", "retire"} {
		if strings.HasPrefix(step.Phase, phase) {
			return true
		}
	}
	return step.Phase == "hand-over" && k.Point == after
}

// pointsOf returns where a process can die in steps: before, inside and after each. Inside is
// right after its first write, and right before one in the middle.
func pointsOf(steps []traced) []kill {
	var points []kill
	for _, s := range steps {
		in := kill{Point: inside, Step: s.Step, Undo: s.Undo}
		first, middle, begun, ended := in, in, in, in
		begun.Point, ended.Point = before, after
		first.Write, first.Answered, middle.Write = 1, true, s.Writes/2+1
		points = append(points, begun)
		if s.Writes > 0 {
			points = append(points, first)
		}
		if s.Writes > 2 {
			points = append(points, middle)
		}
		points = append(points, ended)
	}
	return points
}

// pointsBeside returns where a process can die in steps that bring a unit to the target while
// another batch is in flight.
func pointsBeside(steps []traced) []kill {
	points := pointsOf(slices.DeleteFunc(slices.Clone(steps),
		func(s traced) bool { return !s.Beside || s.Undo || !isEarly(s.Step) }))
	for i := range points {
		points[i].Beside = true
	}
	return points
}

// isEarly reports whether a step brings a unit to the target.
func isEarly(key string) bool {
	step, err := catalog.ParseStep(key)
	return err == nil && step.Unit != "" && earlyPhase.MatchString(step.Phase)
}

// kind is what the same step of all units and batches has in common.
func (k kill) kind() string {
	kind := k.Key
	if step, err := catalog.ParseStep(k.Step); err == nil {
		kind = batchSuffix.ReplaceAllString(step.Phase, "")
	}
	switch {
	case k.Undo:
		kind = "undo " + completing.ReplaceAllString(kind, "completion")
	case k.Beside:
		kind = "beside: " + copying.ReplaceAllString(kind, "${1}copy")
	}
	return kind
}

var (
	batchSuffix = regexp.MustCompile(`-[bp]\d+$`)
	earlyPhase  = regexp.MustCompile(`^(lock|pause|hand-over|release|(pre-)?(create|owners|cluster-status))$`)
	// copying are steps that count as one kind while another batch is in flight.
	copying = regexp.MustCompile(`^(pre-)?(create|owners|cluster-status)$`)
	// completing are steps that are undone together with the objects that they have completed.
	completing = regexp.MustCompile(`^(pre-)?(owners|cluster-status)$`)
)

// kinds returns the kinds of the steps in which processes die, in their order.
func (c crash) kinds() []string {
	way := ""
	switch {
	case c.Touch != "":
		way = "give back: "
	case c.Away:
		way = "away: "
	case c.Forward:
		way = "forward: "
	case c.Narrow && c.Back:
		way = "ahead: "
	}
	first := c.First.kind()
	if c.Touch != "" {
		first = way + first
	}
	kinds := []string{first}
	for _, p := range c.Then {
		kinds = append(kinds, way+p.kind())
	}
	return kinds
}

func kindsOf(all []crash) map[string]bool {
	kinds := map[string]bool{}
	for _, c := range all {
		for _, kind := range c.kinds() {
			kinds[kind] = true
		}
	}
	return kinds
}

// oneOfEachKind returns moves in which a process dies in each kind of step.
func oneOfEachKind(all []crash, tr traces) []crash {
	return chained(ofKinds(all, kindsOf(all)), tr)
}

var placesInAStep = []string{before, inside, after}

// ofKinds returns moves in which a process dies in each of the kinds, as far as all has them. It
// takes the one with the most kinds that are missing, and of several the one whose point is the
// next of all points.
func ofKinds(all []crash, kinds map[string]bool) (chosen []crash) {
	missing := maps.Clone(kinds)
	for len(missing) > 0 {
		best, most := crash{}, 0
		for _, c := range all {
			gain := 0
			for kind := range kindsOf([]crash{c}) {
				if missing[kind] {
					gain += 2
				}
			}
			if gain > 0 && c.First.Point == placesInAStep[len(chosen)%len(placesInAStep)] {
				gain++
			}
			if gain > most {
				best, most = c, gain
			}
		}
		if most == 0 {
			break
		}
		kinds := best.kinds()
		if len(kinds) > 1 && !missing[kinds[1]] && !best.goesOn() {
			best.Then = nil // the first death is enough
		}
		for _, kind := range kinds {
			delete(missing, kind)
		}
		chosen = append(chosen, best)
	}
	return chosen
}
