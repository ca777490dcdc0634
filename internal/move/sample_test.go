package move_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// rollbackStep: of the points of a rollback, every fourth is in the matrix, and the first one in
// each kind of step.
const rollbackStep = 4

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
}

// traced is one step as a process went through it.
type traced struct {
	Step   string
	Undo   bool
	Writes int // to both sides
}

// crash is one state of the matrix: the point at which the move dies, and perhaps a second one in
// the process that resumes it.
type crash struct {
	First kill
	// Second is the point in the process that resumes; nil when that one lives.
	Second *kill
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
}

// notHandedOver is the death of a move right before its hand-over.
var notHandedOver = kill{Point: atKey, Key: "owners/"}

// touched is the unit whose hand-over fails in some states.
const touched = "w-00003"

// matrixOf makes the matrix from the steps of a move, of the move back, of a rollback, and of a
// move that gives a unit back.
func matrixOf(there, backAgain, undone, returned []traced) []crash {
	var all []crash
	for _, p := range pointsOf(there) { // the way back knows no step that makes the namespace
		if !slices.ContainsFunc(backAgain, func(s traced) bool { return s.Step == p.Step }) {
			all = append(all, crash{First: p, Fresh: true, Back: len(all)%2 == 1})
		}
	}
	var early, late []kill
	for _, p := range pointsOf(backAgain) {
		if isLate(p) {
			late = append(late, p)
		} else {
			early = append(early, p)
		}
	}
	late = append(late, kill{Point: atKey, Key: "owners/", Answered: true})
	early = append(early, kill{Point: atKey, Key: "snapshots/"}, notHandedOver,
		kill{Point: atKey, Key: "snapshots/", Answered: true})
	for i, p := range early {
		c := crash{First: p, Back: i%2 == 1, Away: i%4 == 1}
		if !c.Back && len(late) > 0 {
			c.Second, late = &late[0], late[1:]
		}
		all = append(all, c)
	}
	for _, p := range late {
		all = append(all, crash{First: p})
	}
	known := map[string]bool{} // kinds of steps of the rollback
	for i, p := range pointsOf(undone) {
		if i%rollbackStep == 0 || !known[p.kind()] {
			known[p.kind()] = true
			all = append(all, crash{First: notHandedOver, Second: &p, Back: true})
		}
		if strings.HasSuffix(p.Step, "/pause") { // the only step of a rollback without the target
			all = append(all, crash{First: notHandedOver, Second: &p, Back: true, Away: true})
		}
	}
	known = map[string]bool{}
	for i, p := range pointsOf(returned) {
		if kind := p.kind(); (p.Undo || kind == "give-back") && !(known[kind] && i%rollbackStep > 0) {
			known[kind] = true
			all = append(all, crash{First: p, Touch: touched, Back: len(all)%2 == 0})
		}
	}
	return all
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
		points = append(points, kill{Point: before, Step: s.Step, Undo: s.Undo})
		if s.Writes > 0 {
			points = append(points, kill{Point: inside, Step: s.Step, Undo: s.Undo, Write: 1,
				Answered: true})
		}
		if s.Writes > 2 {
			points = append(points, kill{Point: inside, Step: s.Step, Undo: s.Undo, Write: s.Writes/2 + 1})
		}
		points = append(points, kill{Point: after, Step: s.Step, Undo: s.Undo})
	}
	return points
}

// kind is what the same step of all units and batches has in common.
func (k kill) kind() string {
	kind := k.Key
	if step, err := catalog.ParseStep(k.Step); err == nil {
		kind = batchSuffix.ReplaceAllString(step.Phase, "")
	}
	if k.Undo {
		kind = "undo " + completing.ReplaceAllString(kind, "completion")
	}
	return kind
}

var (
	batchSuffix = regexp.MustCompile(`-[bp]\d+$`)
	// completing are steps that are undone together with the objects that they have completed.
	completing = regexp.MustCompile(`^(pre-)?(owners|cluster-status)$`)
)

// kinds returns the kinds of the steps in which processes die, in their order.
func (c crash) kinds() []string {
	kinds := []string{c.First.kind()}
	if c.Touch != "" {
		kinds[0] = "give back: " + kinds[0]
	}
	if c.Second != nil {
		kind := c.Second.kind()
		if c.Away {
			kind = "away: " + kind
		}
		kinds = append(kinds, kind)
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

// oneOfEachKind returns states in which a process dies in each kind of step.
func oneOfEachKind(all []crash) []crash { return ofKinds(all, kindsOf(all)) }

// ofKinds returns states in which a process dies in each of the kinds, as far as all has them. It
// takes the one with the most kinds that are missing, and of several the one whose point is the
// next of all points.
func ofKinds(all []crash, kinds map[string]bool) (chosen []crash) {
	missing := maps.Clone(kinds)
	points := []string{before, inside, after}
	for len(missing) > 0 {
		best, most := crash{}, 0
		for _, c := range all {
			gain := 0
			for kind := range kindsOf([]crash{c}) {
				if missing[kind] {
					gain += 2
				}
			}
			if gain > 0 && c.First.Point == points[len(chosen)%len(points)] {
				gain++
			}
			if gain > most {
				best, most = c, gain
			}
		}
		if most == 0 {
			break
		}
		for _, kind := range best.kinds() {
			delete(missing, kind)
		}
		chosen = append(chosen, best)
	}
	return chosen
}
