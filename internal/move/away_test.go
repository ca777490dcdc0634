package move

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestASideThatDoesNotAnswerIsReported: at the end of a run with work left, also of one that was
// stopped. A rollback does without the target alone.
func TestASideThatDoesNotAnswerIsReported(t *testing.T) {
	failure := errors.New("it failed")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, tt := range []struct {
		name                     string
		ctx                      context.Context
		failure                  error
		back, noSource, noTarget bool
		want                     []object.Code
	}{
		{"all went well", t.Context(), nil, false, true, true, nil},
		{"both answer", t.Context(), failure, false, false, false, nil},
		{"the source is away", t.Context(), failure, false, true, false,
			[]object.Code{object.CodeSourceAway}},
		{"the target is away", stopped, failure, false, false, true,
			[]object.Code{object.CodeTargetAway}},
		{"a rollback", t.Context(), failure, true, true, true, []object.Code{object.CodeTargetAway}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, j := newJournal(t, catalog.Options{})
			o := Options{Catalog: c, Journal: j}
			for side, away := range map[*Mgmt]bool{&o.Source: tt.noSource, &o.Target: tt.noTarget} {
				side.Reader = sideThat(t, !away)
			}
			newSideWatch(o, tt.back, time.Second).begin(tt.ctx)(tt.failure)
			found := findingsOf(t, c, j)
			for i, f := range found {
				if i >= len(tt.want) || f.Code != tt.want[i] || f.Hint == "" {
					t.Errorf("got %+v", f)
				}
			}
			if len(found) != len(tt.want) {
				t.Errorf("got %d findings, want %d", len(found), len(tt.want))
			}
		})
	}
}

// TestARunSaysWhichSideItWaitsFor: when a side stops to answer, and when it answers again.
func TestARunSaysWhichSideItWaitsFor(t *testing.T) {
	t.Parallel()
	c, j := newJournal(t, catalog.Options{})
	w := newSideWatch(Options{Catalog: c, Journal: j}, false, time.Second)
	for _, answers := range []bool{true, false, false, true, true} {
		side := Mgmt{Side: object.Side{Name: "new"}, Reader: sideThat(t, answers)}
		if err := w.ask(t.Context(), side); (err == nil) != answers {
			t.Errorf("got %v", err)
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
	if len(said) != 2 || !strings.Contains(said[0], "new does not answer: ") ||
		!strings.Contains(said[1], "new answers again") {
		t.Errorf("got %q", said)
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
