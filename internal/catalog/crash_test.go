package catalog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// die ends the process as kill -9 does: nothing is flushed, nothing deferred runs.
func die() {
	self, err := os.FindProcess(os.Getpid())
	must(err)
	must(self.Kill())
	select {}
}

// crashStep is what every process of the crash test does: it notes in a file that it ran, and
// records a value half-way.
func crashStep(effects, point string) func(context.Context, *StepHandle) error {
	at := func(p string) {
		if p == point {
			die()
		}
	}
	return func(ctx context.Context, h *StepHandle) error {
		at("after begun")
		if err := appendLine(effects, h.Step().String()); err != nil {
			return err
		}
		if err := h.Record(ctx, Value{"object", json.RawMessage(`"uid"`)}); err != nil {
			return err
		}
		at("in fn")
		return nil
	}
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// childCrash does a step and dies at a point of it. Do reads the clock right before it writes
// begun and done, and once more in each transaction.
func childCrash(args []string) {
	path, id, effects, point := args[0], OperationID(args[1]), args[2], args[3]
	clock := map[string]int{"before begun": 1, "in the commit of begun": 2, "after fn, before done": 4,
		"in the commit of done": 5}[point]
	reads, counting := 0, false
	c, err := Open(context.Background(), path, Options{Now: func() time.Time {
		if counting {
			if reads++; reads == clock {
				die()
			}
		}
		return time.Now()
	}})
	must(err)
	counting = true
	must(c.Journal(id, JournalOptions{}).Do(context.Background(), testStep, crashStep(effects, point)))
	die() // after done
}

// TestI5CrashAtEveryPointAndResume: a run that crashed at any point can be resumed; a step that is
// done is not run again.
func TestI5CrashAtEveryPointAndResume(t *testing.T) {
	for _, test := range []struct {
		point  string
		left   StepState
		ranOne bool // in the process that died
		values int
	}{
		{"before begun", "", false, 0},
		{"in the commit of begun", "", false, 0},
		{"after begun", StepBegun, false, 0},
		{"in fn", StepBegun, true, 1},
		{"after fn, before done", StepBegun, true, 1},
		{"in the commit of done", StepBegun, true, 1},
		{"after done", StepDone, true, 1},
	} {
		t.Run(test.point, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			path, effects := filepath.Join(folder, "catalog.db"), filepath.Join(folder, "effects")
			c := openPath(t, path)
			id := newOperation(t, c, Running)
			closeTest(t, c)
			err := child(t, "crash", path, id.String(), effects, test.point).Run()
			if err == nil || err.Error() != "signal: killed" {
				t.Fatalf("child: %v", err)
			}

			c = openPath(t, path)
			list, err := c.Interrupted(t.Context())
			if err != nil || len(list) != 1 || list[0].ID != id {
				t.Fatalf("interrupted: %v, %v", list, err)
			}
			j := c.Journal(id, JournalOptions{})
			if s := stepState(t, j, testStep); s != test.left {
				t.Errorf("step was left %q; want %q", s, test.left)
			}
			if n := len(lines(t, effects)); n != map[bool]int{true: 1}[test.ranOne] {
				t.Errorf("ran %d times before the crash", n)
			}
			if values, err := j.Values(t.Context(), testStep); err != nil || len(values) != test.values {
				t.Errorf("values: %v, %v", values, err)
			}
			setState(t, c, id, Stopped)
			setState(t, c, id, Running)
			for range 2 {
				if err := j.Do(t.Context(), testStep, crashStep(effects, "")); err != nil {
					t.Fatal(err)
				}
			}
			want := map[bool]int{true: 2, false: 1}[test.ranOne && test.left != StepDone]
			if n := len(lines(t, effects)); n != want {
				t.Errorf("ran %d times in all; want %d", n, want)
			}
		})
	}
}

const (
	manySteps   = 200
	manyWorkers = 8
)

func manyStep(i int) Step {
	return Step{Unit: fmt.Sprintf("ns/u%d", i%10), Phase: "create", Wave: i + 1}
}

// childMany does the steps with several workers, prints each that is done, and is killed meanwhile.
func childMany(args []string) {
	c, err := Open(context.Background(), args[0], Options{})
	must(err)
	id := OperationID(args[1])
	left, err := c.Interrupted(context.Background())
	must(err)
	for _, op := range left {
		if op.State == Running { // not before the first run
			_, err := c.SetState(context.Background(), id, Stopped, Outcome{})
			must(err)
		}
	}
	_, err = c.SetState(context.Background(), id, Running, Outcome{})
	must(err)
	j := c.Journal(id, JournalOptions{})
	var wg sync.WaitGroup
	for w := range manyWorkers {
		wg.Go(func() {
			for i := w; i < manySteps; i += manyWorkers {
				must(j.Do(context.Background(), manyStep(i), crashStep(args[2], "")))
				fmt.Println("done", i)
			}
		})
	}
	wg.Wait()
}

// TestI5KilledAtAnyMoment kills a process at random moments, over and over: a step that was
// reported done stays done and does not run again, and the file stays whole.
func TestI5KilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, effects := filepath.Join(folder, "catalog.db"), filepath.Join(folder, "effects")
	c := openPath(t, path)
	id := newOperation(t, c)
	closeTest(t, c)
	reported := map[int]bool{}
	for round := 0; len(reported) < manySteps; round++ {
		if round > 200 {
			t.Fatal("no end of it")
		}
		killAmid(t, child(t, "many", path, id.String(), effects), reported)

		c := openPath(t, path)
		for i := range reported {
			if s := stepState(t, c.Journal(id, JournalOptions{}), manyStep(i)); s != StepDone {
				t.Errorf("step %d was reported done and is %q", i, s)
			}
		}
		ran := map[string]bool{}
		for _, line := range lines(t, effects) {
			ran[line] = true
		}
		steps, err := c.Steps(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if s.State == StepDone && !ran[s.Step.String()] {
				t.Errorf("step %s is done and never ran", s.Step)
			}
		}
		closeTest(t, c)
	}
	// Each kill can make at most the steps in flight run again.
	if n := len(lines(t, effects)); n < manySteps {
		t.Errorf("%d runs of %d steps", n, manySteps)
	}
}

// killAmid runs a child, notes the steps that it reports, and kills it after a random number of
// them.
func killAmid(t *testing.T, cmd *exec.Cmd, reported map[int]bool) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	before, enough := len(reported), 10+rand.IntN(40)
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		text, ok := strings.CutPrefix(scanner.Text(), "done ")
		i, err := strconv.Atoi(text)
		if !ok || err != nil {
			t.Errorf("child says %q", scanner.Text())
		}
		reported[i] = true
		if len(reported)-before == enough {
			// The test does not wait for the steps in flight.
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil && err.Error() != "signal: killed" {
		t.Fatalf("child: %v", err)
	}
}
