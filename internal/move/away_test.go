package move

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/task"
)

// TestASideThatDoesNotAnswerIsReported: at the end of a run with work left, also of one that was
// stopped. The hint is there when there is a way without that side, which needs the other one and
// something to do.
func TestASideThatDoesNotAnswerIsReported(t *testing.T) {
	t.Parallel()
	failure := errors.New("it failed")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	takenOver, end := context.WithCancelCause(t.Context())
	end(&mirror.FencedError{})
	for _, tt := range []struct {
		name           string
		ctx            context.Context
		failure        error
		back           bool
		source, target bool // it answers
		unit           catalog.UnitState
		want           []string
	}{
		{"all went well", t.Context(), nil, false, false, false, catalog.UnitRetired, nil},
		{"both answer", t.Context(), failure, false, true, true, catalog.UnitPaused, nil},
		{"another host has it", takenOver, failure, false, true, false, catalog.UnitPaused, nil},
		{"no source, handed over", t.Context(), failure, false, false, true, catalog.UnitHandedOver,
			[]string{"source-away: " + SourceAwayHint}},
		{"no source, not handed over", t.Context(), failure, false, false, true, catalog.UnitPaused,
			[]string{"source-away: "}},
		{"no target, stopped", stopped, failure, false, true, false, catalog.UnitPaused,
			[]string{"target-away: " + TargetAwayHint}},
		{"no target, handed over", t.Context(), failure, false, true, false, catalog.UnitHandedOver,
			[]string{"target-away: "}},
		{"neither", t.Context(), failure, false, false, false, catalog.UnitHandedOver,
			[]string{"source-away: ", "target-away: "}},
		{"no source in a rollback", t.Context(), failure, true, false, true, catalog.UnitHandedOver,
			[]string{"source-away: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, j := newJournal(t, catalog.Options{})
			if err := j.SetUnit(t.Context(), "ns/w", tt.unit, ""); err != nil {
				t.Fatal(err)
			}
			o := Options{Catalog: c, Journal: j}
			o.Source.Reader, o.Target.Reader = sideThat(t, tt.source), sideThat(t, tt.target)
			if err := newSideWatch(o, tt.back, time.Second).begin(tt.ctx)(tt.failure); err != tt.failure {
				t.Errorf("the run ends with %v", err)
			}
			var got []string
			for _, f := range findingsOf(t, c, j) {
				got = append(got, string(f.Code)+": "+f.Hint)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestARunSaysWhichSideItWaitsFor: when a side answers no more, and when it answers again. Both may
// have one name.
func TestARunSaysWhichSideItWaitsFor(t *testing.T) {
	t.Parallel()
	c, j := newJournal(t, catalog.Options{})
	w := newSideWatch(Options{Catalog: c, Journal: j}, false, time.Second)
	for i := range w.sides {
		w.sides[i].name, w.sides[i].reader = "one", sideThat(t, true)
	}
	w.sides[1].name = "target one"
	for _, answers := range []bool{true, false, false, true, true} {
		w.sides[1].reader = sideThat(t, answers)
		if w.ask(t.Context()); (w.sides[1].away == nil) != answers || w.sides[0].away != nil {
			t.Errorf("got %v", w.sides)
		}
	}
	var said []string
	for e, err := range c.Events(t.Context(), j.Operation(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == catalog.EventMessage {
			said = append(said, e.Message)
		}
	}
	if len(said) != 2 || !strings.Contains(said[0], "the target one does not answer: ") ||
		!strings.Contains(said[1], "the target one answers again") {
		t.Errorf("got %q", said)
	}
}

// TestAPanicOfARunEndsItsWatch, and stays a panic.
func TestAPanicOfARunEndsItsWatch(t *testing.T) {
	t.Parallel()
	c, j := newJournal(t, catalog.Options{})
	err := task.Call(func() error {
		return watched(t.Context(), Options{Catalog: c, Journal: j}, false, func() error { panic("a bug") })
	})
	if _, panicked := errors.AsType[*task.PanicError](err); !panicked {
		t.Errorf("got %v", err)
	}
}

// sideThat is a management cluster that answers, or does so no more.
func sideThat(t *testing.T, answers bool) *kube.Reader {
	all := map[string]string{}
	if !answers {
		all[dies] = ""
	}
	return serve(t, all)
}
