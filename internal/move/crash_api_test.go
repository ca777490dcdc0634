//go:build api

package move_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

const (
	crashFixtures      = 2  // fleets that move at the same time
	leastKinds         = 10 // fewer kinds of steps mean that they are not found any more
	mostBrokenFixtures = 3
	otherPoints        = 2 // times that other points are tried when those of a kind were not reached
)

// MGMTD_TEST_STATES runs the states whose text matches an expression; "." is the whole matrix, of
// which a sample runs otherwise. MGMTD_TEST_VERBOSE prints each state.
var (
	verbose = os.Getenv("MGMTD_TEST_VERBOSE") != ""
	only    = os.Getenv("MGMTD_TEST_STATES")
)

func (c crash) String() string {
	text := "killed " + c.First.String()
	if c.Touch != "" {
		text += " that gives back " + c.Touch
	}
	if c.Fresh {
		text += " with no namespace on the target"
	}
	if c.Lost {
		text += " with its catalog"
	}
	if c.Narrow {
		text += " of a move of one unit at a time"
	}
	if c.Away {
		text += ", rolled back without the target"
	}
	if c.Forward {
		text += ", resumed without the source"
	}
	for _, p := range c.Then {
		text += ", killed again " + p.String()
	}
	return text
}

// TestAPIMoveCrashes kills a process with SIGKILL before, inside and after every step of a move of
// three small units, and at the writes that are no step of their own: the snapshot and the
// ownership record. It does so also while another batch is in flight, in rollbacks with and without
// the target, and in a resume without the source. After each kill it checks both API servers and
// the store: invariants I1 and I2 hold. Then another process resumes; in every second state it is
// on another host, and the catalog of the first one is lost. To reach every point in a few minutes,
// a move that died before its hand-over is either rolled back, or resumed and killed again at a
// point after the hand-over; of the points of the other ways there is a sample. This test runs so
// many of all these that a process dies in each kind of step, several in one move where they can,
// and make test-long all of them.
func TestAPIMoveCrashes(t *testing.T) {
	began := time.Now()
	first := newFixture(t, "crash-0")
	m := &matrix{t: t, fixtures: []*fixture{first}, reached: map[string]bool{}}
	tr := followAll(t, first)
	whole := matrixOf(tr)
	for len(m.fixtures) < crashFixtures {
		m.fixtures = append(m.fixtures, newFixture(t, fmt.Sprintf("crash-%d", len(m.fixtures))))
	}
	todo, match := slices.Clone(whole), regexp.MustCompile(only)
	kinds := kindsOf(whole)
	if only == "" {
		todo = oneOfEachKind(whole, tr)
	}
	todo = slices.DeleteFunc(todo, func(c crash) bool { return !match.MatchString(c.String()) })
	for i := range todo {
		todo[i].Lost = i%4 < 2 // both with and without Back, which alternates in the whole matrix
	}
	t.Logf("%d of %d moves to kill after %s", len(todo), len(whole), time.Since(began).Round(time.Second))
	m.run(todo)
	// Points of a second process that another unit had passed before: they are tried once more.
	again := m.missed
	m.missed = nil
	m.run(again)
	// A write may be missing on both tries: the garbage collector was faster. Another point of that
	// kind is then as good.
	tried := todo
	for range otherPoints {
		if only != "" || t.Failed() {
			break
		}
		others := ofKinds(slices.DeleteFunc(slices.Clone(whole),
			func(c crash) bool { return slices.ContainsFunc(tried, c.is) }), m.unreached(kinds))
		m.run(others)
		tried = append(tried, others...)
	}
	for _, c := range m.missed {
		t.Logf("%s: not reached", c)
	}
	t.Logf("%d states in %s: %d moves resumed, %d rolled back, %d points not reached", m.states,
		time.Since(began).Round(time.Second), m.resumed, m.back, len(m.missed))
	t.Logf("%d kinds of steps: %s", len(kinds), slices.Sorted(maps.Keys(kinds)))
	if only != "" {
		return
	}
	if len(kinds) < leastKinds {
		t.Errorf("only %d kinds of steps are known, want %d at least", len(kinds), leastKinds)
	}
	for kind := range m.unreached(kinds) {
		t.Errorf("no process died in a step of the kind %s", kind)
	}
}

// unreached returns those of kinds in which no process died.
func (m *matrix) unreached(kinds map[string]bool) map[string]bool {
	kinds = maps.Clone(kinds)
	maps.DeleteFunc(kinds, func(kind string, _ bool) bool { return m.reached[kind] })
	return kinds
}

// is reports whether two states have the same deaths, with or without a loss of the catalog.
func (c crash) is(other crash) bool {
	c.Lost, other.Lost = false, false
	return c.String() == other.String()
}

// next returns where a process dies after so many deaths; nil when it lives.
func (c crash) next(deaths int) *kill {
	if deaths > len(c.Then) {
		return nil
	}
	return &c.Then[deaths-1]
}

// after returns the move for the points that were not reached after so many deaths.
func (c crash) after(deaths int) crash {
	switch {
	case deaths == 0:
	case c.goesOn():
		c.Then = c.Then[deaths-1:]
	default:
		c.First, c.Then = c.Then[deaths-1], c.Then[deaths:]
	}
	return c
}

// matrix goes through moves in several fixtures at once.
type matrix struct {
	t        *testing.T
	fixtures []*fixture

	mu                    sync.Mutex
	states, resumed, back int
	missed                []crash
	reached               map[string]bool // kinds of steps in which a process died
}

func (m *matrix) run(todo []crash) {
	next := make(chan crash)
	var workers sync.WaitGroup
	for n := range m.fixtures {
		workers.Go(func() {
			broken := 0
			for c := range next {
				if broken > mostBrokenFixtures {
					continue
				}
				began := time.Now()
				r := m.fixtures[n].crash(c)
				m.note(c, r, time.Since(began))
				if !r.broken {
					continue
				}
				if broken++; broken > mostBrokenFixtures {
					m.t.Error("too many fleets are broken")
					continue
				}
				m.fixtures[n] = newFixture(m.t, fmt.Sprintf("crash-%d-%d", n, broken))
			}
		})
	}
	for _, c := range todo {
		next <- c
	}
	close(next)
	workers.Wait()
}

func (m *matrix) note(c crash, r crashed, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states += r.states
	for _, kind := range c.kinds()[:r.states] {
		m.reached[kind] = true
	}
	way := "resumed"
	if r.back {
		way = "rolled back"
		m.back++
	} else {
		m.resumed++
	}
	if r.states <= len(c.Then) {
		m.missed = append(m.missed, c.after(r.states))
	}
	if len(r.problems) > 0 {
		m.t.Errorf("%s; %s:\n\t%s", c, way, strings.Join(r.problems[:min(len(r.problems), 12)], "\n\t"))
	} else if verbose {
		m.t.Logf("%s; %s in %s", c, way, took.Round(10*time.Millisecond))
	}
}

// follow carries out a whole move, or the rollback of a move that was killed, and returns the steps
// of the last process.
func (fx *fixture) follow(t *testing.T, o order, killed *kill, want catalog.State) []traced {
	t.Helper()
	if killed != nil {
		o.Kill = killed
		_, err := fx.run(o)
		must(t, err)
		o = fx.order(doRollback)
	}
	steps, e := fx.trace(t, o)
	if e.State != string(want) {
		t.Fatalf("%s ended as %s: %s", o.Do, e.State, e.Message)
	}
	st, err := fx.state()
	must(t, err)
	problems := fx.ended(o.Do == doRollback, st)
	if len(problems) > 0 {
		t.Fatalf("%s:\n\t%s", o.Do, strings.Join(problems, "\n\t"))
	}
	return steps
}

// trace carries out an order in a process, and returns its steps.
func (fx *fixture) trace(t *testing.T, o order) (steps []traced, e end) {
	t.Helper()
	o.Trace = filepath.Join(fx.dir, "trace.json")
	e, err := fx.run(o)
	must(t, err)
	text, err := os.ReadFile(o.Trace)
	must(t, err)
	must(t, json.Unmarshal(text, &steps))
	return steps, e
}

// followReturned runs a move in which the hand-over of a unit fails, and returns the steps of its
// process. A resume brings it to its end.
func (fx *fixture) followReturned(t *testing.T) []traced {
	t.Helper()
	o := fx.order(doMove)
	o.Touch = touched
	steps, e := fx.trace(t, o)
	if e.State != string(catalog.Failed) {
		t.Fatalf("it ended as %s: %s", e.State, e.Message)
	}
	fx.resumeToEnd()
	return steps
}

// followForward kills a move after a hand-over, resumes it without the source, and returns the
// steps of that. A resume with the source brings it to its end.
func (fx *fixture) followForward(t *testing.T) []traced {
	t.Helper()
	o := fx.order(doMove)
	o.Kill = &handedOver
	_, err := fx.run(o)
	must(t, err)
	steps, _ := fx.trace(t, fx.goForward(fx.order(doResume)))
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkForward(st))
	fx.resumeToEnd()
	return steps
}

// ended checks the end of a move or a rollback. After a move the fixture is on the other side.
func (fx *fixture) ended(back bool, st bothSides) []string {
	if back {
		return fx.checkBack(st)
	}
	problems := fx.checkMoved(st)
	fx.at, fx.was = 1-fx.at, st.target
	return problems
}

// crashed is the result of one entry of the matrix.
type crashed struct {
	states   int // states that were checked after a kill
	back     bool
	broken   bool // the fleet is of no use any more
	problems []string
}

// crash goes through one entry of the matrix.
func (fx *fixture) crash(c crash) (r crashed) {
	began := time.Now()
	stop := fx.watch()
	defer func() { r.problems = append(r.problems, stop()...) }()
	fail := func(err error) crashed {
		r.problems, r.broken = append(r.problems, err.Error()), true
		return r
	}
	if c.Fresh {
		if err := fx.removeNamespace(); err != nil {
			return fail(err)
		}
	}
	o := fx.order(doMove)
	if c.Narrow {
		o = fx.narrow()
	}
	o.Kill, o.Touch = &c.First, c.Touch
	for {
		e, err := fx.run(o)
		switch {
		case errors.Is(err, errNotKilled) && o.Touch != "":
			o = fx.order(doResume) // it ended with the unit on the source
			continue
		case errors.Is(err, errNotKilled), err == nil && o.Kill == nil:
			return fx.end(r, e)
		case err != nil:
			return fail(err)
		}
		st, err := fx.state()
		if err != nil {
			return fail(err)
		}
		r.states++
		r.problems = append(r.problems, fx.checkCrashed(st, began)...)
		forward := st.handed[allUnits[0]] || st.handed[allUnits[1]] || st.handed[allUnits[2]]
		r.back = c.Back && !forward
		do := doResume
		if r.back {
			do = doRollback
		}
		if o = fx.order(do); c.Lost {
			o = fx.elsewhere(do)
		}
		if r.back && c.Away || c.Forward {
			o.WithoutTarget = !c.Forward
			if c.Forward {
				o = fx.goForward(o)
			}
			e, err := fx.crashAway(c, o, &r, began)
			if err != nil {
				return fail(err)
			}
			if e.State == string(catalog.RolledBack) {
				return fx.end(r, e) // nothing was copied yet
			}
			o = fx.order(do)
			continue
		}
		o.Kill = c.next(r.states)
	}
}

// crashAway rolls back without the target, or resumes without the source, in another process when
// one dies, and checks that each side has what it should have by then.
func (fx *fixture) crashAway(c crash, o order, r *crashed, began time.Time) (end, error) {
	for o.Kill = c.next(r.states); ; {
		e, err := fx.run(o)
		died := err == nil && o.Kill != nil
		if err != nil && !errors.Is(err, errNotKilled) {
			return end{}, err
		}
		st, err := fx.state()
		if err != nil {
			return end{}, err
		}
		switch {
		case died:
			r.states++
			r.problems = append(r.problems, fx.checkCrashed(st, began)...)
			o.Kill, o.Import = c.next(r.states), false
			continue
		case o.WithoutSource:
			r.problems = append(r.problems, fx.checkForward(st)...)
		default:
			r.problems = append(r.problems, fx.checkGivenBack(st)...)
		}
		return e, nil
	}
}

// end checks the state and the result of an operation that ended.
func (fx *fixture) end(r crashed, e end) crashed {
	want := catalog.Succeeded
	if r.back {
		want = catalog.RolledBack
	}
	st, err := fx.state()
	if err != nil {
		r.problems, r.broken = append(r.problems, err.Error()), true
		return r
	}
	problems := fx.ended(r.back, st)
	if e.State != string(want) {
		problems = append([]string{fmt.Sprintf("it ended as %s: %s", e.State, e.Message)},
			problems...)
	}
	if len(problems) > 0 {
		for _, f := range e.Findings {
			problems = append([]string{"finding: " + f}, problems...)
		}
		r.broken = true
	}
	r.problems = append(r.problems, problems...)
	return r
}

// restrict limits an order to some of the workload clusters.
func (o order) restrict(namespace string, units ...string) order {
	o.Spec.Selection = restore.Selection{}
	for _, unit := range units {
		o.Spec.Selection.Workloads = append(o.Spec.Selection.Workloads,
			object.Key{Namespace: namespace, Name: unit})
	}
	return o
}

// carryOut carries out an order in this process.
func (fx *fixture) carryOut(o order, want catalog.State,
	onStep func(context.Context, catalog.StepRecord) error) end {
	fx.t.Helper()
	e, err := carryOut(fx.t.Context(), o, onStep)
	must(fx.t, err)
	if e.State != string(want) {
		fx.t.Errorf("%s ended as %s, want %s: %s", o.Do, e.State, want, e.Message)
	}
	return e
}

func (fx *fixture) report(problems []string) {
	fx.t.Helper()
	if len(problems) > 0 {
		fx.t.Errorf("%d problems:\n\t%s", len(problems), strings.Join(problems[:min(len(problems), 20)],
			"\n\t"))
	}
}
