package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testStep = Step{Unit: "team-a/one", Phase: "create", Wave: 3}

// running returns the journal of an operation that runs.
func running(t testing.TB, c *Catalog) *Journal {
	t.Helper()
	return c.Journal(newOperation(t, c, Running), JournalOptions{})
}

func nothing(context.Context, *StepHandle) error { return nil }

// stepState returns the state of a step, empty when it was never begun.
func stepState(t testing.TB, j *Journal, step Step) StepState {
	t.Helper()
	record, err := j.c.stepRecord(t.Context(), j.id, step)
	if err != nil {
		t.Fatal(err)
	}
	if record == nil {
		return ""
	}
	return record.State
}

func TestStepKeysParseBack(t *testing.T) {
	for key, step := range map[string]Step{
		"team-a/one/create/03":  testStep,
		"team-a/one/create":     {Unit: "team-a/one", Phase: "create"},
		"team-a/one/create/123": {Unit: "team-a/one", Phase: "create", Wave: 123},
		"team-a/12/pause":       {Unit: "team-a/12", Phase: "pause"},
		"12/34/pause/56":        {Unit: "12/34", Phase: "pause", Wave: 56},
		"-/arm-fence":           {Phase: "arm-fence"},
		"-/shared/01":           {Phase: "shared", Wave: 1},
	} {
		if step.String() != key {
			t.Errorf("%+v: %s; want %s", step, step, key)
		}
		if got, err := ParseStep(key); err != nil || got != step {
			t.Errorf("%s: %+v, %v", key, got, err)
		}
	}
	for _, key := range []string{"", "/", "create", "create/03", "a/create/3", "a/create/03/",
		"a/Create", "a/00", "a/12/34", "-/create/00", "/create"} {
		if step, err := ParseStep(key); err == nil {
			t.Errorf("%q: accepted as %+v", key, step)
		}
	}
	c := openTest(t)
	for _, step := range []Step{{}, {Unit: "-", Phase: "x"}, {Phase: "12"}, {Phase: "a/b"},
		{Phase: "x", Wave: -1}} {
		if err := running(t, c).Do(t.Context(), step, nothing); err == nil {
			t.Errorf("%+v: accepted", step)
		}
	}
}

func TestDoRunsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, path)
	j := running(t, c)
	err := j.Do(t.Context(), testStep, func(ctx context.Context, h *StepHandle) error {
		if s := stepState(t, j, testStep); s != StepBegun {
			t.Errorf("state while it runs: %s", s)
		}
		if h.Attempt() != 1 || h.Step() != testStep {
			t.Errorf("attempt %d of %s", h.Attempt(), h.Step())
		}
		return h.SetUnit(UnitCopied)
	})
	if err != nil {
		t.Fatal(err)
	}
	closeTest(t, c)

	c = openPath(t, path)
	j = c.Journal(j.Operation(), JournalOptions{})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	err = j.Do(canceled, testStep, func(context.Context, *StepHandle) error {
		t.Error("ran again")
		return nil
	})
	if err != nil {
		t.Errorf("skip: %v", err)
	}
	op, err := c.Operation(t.Context(), j.id)
	if err != nil || op.Units["team-a/one"] != UnitCopied || !op.Changed {
		t.Errorf("%+v, %v", op, err)
	}
	var history []string
	for e, err := range c.Events(t.Context(), j.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, fmt.Sprintln(e.Seq, e.Type, e.Unit, e.Step, e.State))
	}
	want := "1 operation   planned\n2 operation   running\n3 step team-a/one " +
		"team-a/one/create/03 begun\n" +
		"4 step team-a/one team-a/one/create/03 done\n5 unit team-a/one  copied\n"
	if diff := cmp.Diff(want, strings.Join(history, "")); diff != "" {
		t.Error(diff)
	}
}

func TestDoRunsAFailedStepAgain(t *testing.T) {
	c := openTest(t)
	j := running(t, c)
	broken := errors.New("webhook refused: denied")
	err := j.Do(t.Context(), testStep, func(ctx context.Context, h *StepHandle) error {
		_ = h.SetUnit(UnitCopied)
		if err := h.Record(ctx, Value{"a", json.RawMessage(`"uid-a"`)},
			Value{"b", json.RawMessage(`"uid-b"`)}); err != nil {
			t.Error(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("do: %v", err)
	}
	steps, err := c.Steps(t.Context(), j.id)
	if err != nil || len(steps) != 1 || steps[0].State != StepFailed ||
		steps[0].Error != broken.Error() {
		t.Errorf("%+v, %v", steps, err)
	}
	if op, _ := c.Operation(t.Context(), j.id); len(op.Units) != 0 {
		t.Errorf("unit state of a failed step was stored: %v", op.Units)
	}
	err = j.Do(t.Context(), testStep, func(ctx context.Context, h *StepHandle) error {
		values, err := h.Values(ctx)
		want := map[string]json.RawMessage{"a": json.RawMessage(`"uid-a"`),
			"b": json.RawMessage(`"uid-b"`)}
		if diff := cmp.Diff(want, values); err != nil || diff != "" {
			t.Error(err, diff)
		}
		if h.Attempt() != 2 {
			t.Errorf("attempt %d", h.Attempt())
		}
		if err := h.Record(ctx, Value{"a", json.RawMessage(`not json`)}); err == nil {
			t.Error("a value that is no JSON was accepted")
		}
		return nil
	})
	if s := stepState(t, j, testStep); err != nil || s != StepDone {
		t.Errorf("%s, %v", s, err)
	}
	// Another step whose key begins the same has none of its values.
	if values, err := j.Values(t.Context(), Step{Unit: "team-a/one", Phase: "create"}); err != nil ||
		len(values) != 0 {
		t.Error(values, err)
	}
}

func TestDoOnlyWhileRunning(t *testing.T) {
	c := openTest(t)
	for _, states := range [][]State{{}, {Running, Stopped}, {Running, Succeeded}} {
		j := c.Journal(newOperation(t, c, states...), JournalOptions{})
		if err := j.Do(t.Context(), testStep, nothing); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%v: %v", states, err)
		}
	}
	if err := c.Journal("000000000000", JournalOptions{}).Do(t.Context(), testStep,
		nothing); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// TestDoCancelStopsBetweenSteps: cancel stops between steps; a step in flight ends cleanly.
func TestDoCancelStopsBetweenSteps(t *testing.T) {
	c := openTest(t)
	j := running(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	err := j.Do(ctx, testStep, func(inner context.Context, h *StepHandle) error {
		cancel()
		if inner.Err() != nil {
			t.Error("the step in flight was cancelled")
		}
		return h.Record(ctx, Value{"a", json.RawMessage(`1`)})
	})
	if s := stepState(t, j, testStep); err != nil || s != StepDone {
		t.Errorf("step in flight: %s, %v", s, err)
	}
	next := Step{Phase: "next"}
	if err := j.Do(ctx, next, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("next step: %v", err)
	}
	if s := stepState(t, j, next); s != "" {
		t.Errorf("next step is %s", s)
	}
	if op, err := c.SetState(ctx, j.id, Stopped, Outcome{}); err != nil || op.State != Stopped {
		t.Errorf("the end of a cancelled run must be on record: %v", err)
	}
}

func TestUndoRunsOnceForAStepThatRan(t *testing.T) {
	c := openTest(t)
	j := running(t, c)
	broken := errors.New("broken")
	record := func(ctx context.Context, h *StepHandle) error {
		return h.Record(ctx, Value{"a", json.RawMessage(`"uid-a"`)})
	}
	undo := func(result error) (ran int, err error) {
		err = j.Undo(t.Context(), testStep, func(ctx context.Context, h *StepHandle) error {
			ran++
			if values, err := h.Values(ctx); err != nil || string(values["a"]) != `"uid-a"` {
				t.Errorf("values during undo: %v, %v", values, err)
			}
			return errors.Join(result, h.SetUnit(UnitRolledBack))
		})
		return ran, err
	}
	if ran, err := undo(nil); ran != 0 || err != nil {
		t.Errorf("undo of what never began: %d, %v", ran, err)
	}
	if err := j.Do(t.Context(), testStep, record); err != nil {
		t.Fatal(err)
	}
	if ran, err := undo(broken); ran != 1 || !errors.Is(err, broken) ||
		stepState(t, j, testStep) != StepUndoFailed {
		t.Errorf("undo that fails: %d, %v, %s", ran, err, stepState(t, j, testStep))
	}
	for i, want := range []int{1, 0} {
		if ran, err := undo(nil); ran != want || err != nil || stepState(t, j, testStep) != StepUndone {
			t.Errorf("undo %d: ran %d, %v, %s", i, ran, err, stepState(t, j, testStep))
		}
	}
	if values, err := j.Values(t.Context(), testStep); err != nil || len(values) != 0 {
		t.Errorf("values of an undone step: %v, %v", values, err)
	}
	if op, _ := c.Operation(t.Context(), j.id); op.Units["team-a/one"] != UnitRolledBack {
		t.Errorf("unit: %v", op.Units)
	}
	// Done again, failed in the middle: that is undone too.
	err := j.Do(t.Context(), testStep, func(ctx context.Context, h *StepHandle) error {
		return errors.Join(record(ctx, h), broken)
	})
	if ran, undoErr := undo(nil); !errors.Is(err, broken) || ran != 1 || undoErr != nil {
		t.Errorf("undo of a failed step: %v, %d, %v", err, ran, undoErr)
	}
}

func TestLongErrorsAreCut(t *testing.T) {
	c := openTest(t)
	j := running(t, c)
	_ = j.Do(t.Context(), testStep, func(context.Context, *StepHandle) error {
		return errors.New(strings.Repeat("é", 1<<20) + "\xff")
	})
	if steps, err := c.Steps(t.Context(), j.id); err != nil || len(steps[0].Error) > maxMessage+10 {
		t.Errorf("%d bytes, %v", len(steps[0].Error), err)
	}
}

// TestOnStepIsCalledBeforeAndAfterEachStep: the first call can prevent the step, the second says
// how it ended.
func TestOnStepIsCalledBeforeAndAfterEachStep(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c, Running)
	var calls []string
	refuse := errors.New("the mirror is away")
	j := c.Journal(id, JournalOptions{OnStep: func(_ context.Context, r StepRecord) error {
		calls = append(calls, r.Step.String()+" "+string(r.State))
		if r.Step.Phase == "refused" && r.State == StepBegun {
			return refuse
		}
		return nil
	}})
	ran := false
	if err := j.Do(t.Context(), Step{Phase: "refused"}, func(context.Context, *StepHandle) error {
		ran = true
		return nil
	}); !errors.Is(err, refuse) || ran {
		t.Errorf("%v, ran %v", err, ran)
	}
	if err := j.Do(t.Context(), Step{Phase: "pause"}, func(context.Context, *StepHandle) error {
		calls = append(calls, "runs")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := j.Undo(t.Context(), Step{Phase: "pause"}, func(context.Context, *StepHandle) error {
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"-/refused begun", "-/refused failed", "-/pause begun", "runs", "-/pause done",
		"-/pause undoing", "-/pause undone"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
	if state, err := j.State(t.Context(), Step{Phase: "pause"}); err != nil || state != StepUndone {
		t.Errorf("state %q, %v", state, err)
	}
}

// TestStepThatDidNotRunIsAsItWas: OnStep fails, at the first attempt, after one that failed, and
// when a step is undone that is done.
func TestStepThatDidNotRunIsAsItWas(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c, Running)
	away := errors.New("the mirror is away")
	var refuses bool
	j := c.Journal(id, JournalOptions{OnStep: func(context.Context, StepRecord) error {
		if refuses {
			return away
		}
		return nil
	}})
	do := func(refused bool, run func(context.Context, Step, func(context.Context,
		*StepHandle) error) error, fails error, want StepState) {
		t.Helper()
		refuses = refused
		ran := false
		err := run(t.Context(), testStep, func(context.Context, *StepHandle) error {
			ran = true
			return fails
		})
		state, stateErr := j.State(t.Context(), testStep)
		if stateErr != nil || state != want || ran == refused || refused && !errors.Is(err, away) {
			t.Errorf("state %q, want %q; ran %t; %v, %v", state, want, ran, err, stateErr)
		}
	}
	do(true, j.Do, nil, "")
	do(true, j.Do, nil, "")
	refuses = false
	if err := j.Undo(t.Context(), testStep, func(context.Context, *StepHandle) error {
		t.Error("a step that did not run is undone")
		return nil
	}); err != nil {
		t.Error(err)
	}
	do(false, j.Do, errors.New("it fails"), StepFailed)
	do(true, j.Do, nil, StepFailed)
	do(false, j.Do, nil, StepDone)
	do(true, j.Undo, nil, StepDone)
	do(false, j.Undo, nil, StepUndone)
}
