package main

import (
	"fmt"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// progress shows the events of an operation on stderr.
type progress interface {
	show(*mgmtv1.Event)
	// end removes what progress has drawn.
	end()
}

// newProgress returns a bar on a terminal and lines elsewhere.
func (p *program) newProgress() progress {
	if p.bars {
		return newBar(p.stderr)
	}
	return &lines{w: p.stderr, units: map[string]string{}, last: time.Now()}
}

// notable returns the text of an event that is printed at once, or "": states of the operation,
// messages, and errors. Findings are not printed here, the report has them.
func notable(e *mgmtv1.Event) string {
	switch e.GetType() {
	case mgmtv1.EventType_EVENT_TYPE_OPERATION, mgmtv1.EventType_EVENT_TYPE_MESSAGE:
		return eventText(e)
	case mgmtv1.EventType_EVENT_TYPE_UNIT:
		if e.GetUnitState() == "blocked" || e.GetMessage() != "" {
			return eventText(e)
		}
	case mgmtv1.EventType_EVENT_TYPE_STEP:
		if e.GetStepState() == "failed" {
			return eventText(e)
		}
	default: // findings are in the report, progress is repeated now and then
	}
	return ""
}

// linesInterval is how often lines prints a number, so that the log of a long run stays readable.
const linesInterval = 5 * time.Second

// lines writes progress as lines, for logs.
type lines struct {
	w     io.Writer
	units map[string]string
	// what is the counted thing of the last printed number; last is when a number or states of units
	// were printed.
	what string
	last time.Time
	// pending is a number that was not printed yet.
	pending *mgmtv1.Event
}

func (l *lines) show(e *mgmtv1.Event) {
	if text := notable(e); text != "" {
		l.flush()
		fmt.Fprintln(l.w, text)
	}
	switch e.GetType() {
	case mgmtv1.EventType_EVENT_TYPE_UNIT:
		l.units[e.GetUnit()] = e.GetUnitState()
		if l.pending == nil && time.Since(l.last) >= linesInterval {
			l.print("workload clusters: " + l.states())
		}
	case mgmtv1.EventType_EVENT_TYPE_PROGRESS:
		if e.GetProgress() != l.what {
			l.flush()
			l.what, l.last = e.GetProgress(), time.Time{}
		}
		l.pending = e
		full := e.GetTotal() > 0 && e.GetDone() >= e.GetTotal()
		if full || time.Since(l.last) >= linesInterval {
			l.flush()
		}
	default: // no number changes
	}
}

// flush prints the pending number.
func (l *lines) flush() {
	if l.pending == nil {
		return
	}
	text := progressText(l.pending)
	if len(l.units) > 0 {
		text += " (workload clusters: " + l.states() + ")"
	}
	l.print(text)
}

func (l *lines) states() string {
	states := map[string]int{}
	for _, state := range l.units {
		states[state]++
	}
	return counts(states)
}

func (l *lines) print(text string) {
	fmt.Fprintln(l.w, text)
	l.pending, l.last = nil, time.Now()
}

func (l *lines) end() { l.flush() }

// bar shows one bar at a time, for what is being counted, and prints notable events above it.
type bar struct {
	w     *console
	bars  *mpb.Progress
	bar   *mpb.Bar
	what  string
	total int64
}

func newBar(w *console, opts ...mpb.ContainerOption) *bar {
	b := &bar{w: w, bars: mpb.New(append([]mpb.ContainerOption{mpb.WithOutput(w.w), mpb.WithWidth(40)},
		opts...)...)}
	w.setAbove(b.bars)
	return b
}

func (b *bar) show(e *mgmtv1.Event) {
	if text := notable(e); text != "" {
		fmt.Fprintln(b.w, text)
	}
	if e.GetType() != mgmtv1.EventType_EVENT_TYPE_PROGRESS {
		return
	}
	if b.bar == nil || e.GetProgress() != b.what || (e.GetTotal() > 0) != (b.total > 0) {
		b.drop()
		b.begin(e)
	}
	b.total = e.GetTotal()
	b.bar.SetTotal(e.GetTotal(), false)
	b.bar.SetCurrent(e.GetDone())
}

// begin adds a bar, or a spinner when the total is unknown. It starts without a total, because a
// bar with a total ends for good when it is full, and a total can grow.
func (b *bar) begin(e *mgmtv1.Event) {
	b.what = e.GetProgress()
	filler, counter := mpb.BarFillerBuilder(mpb.SpinnerStyle()), decor.CurrentNoUnit(" %d ")
	if e.GetTotal() > 0 {
		filler, counter = mpb.BarStyle(), decor.CountersNoUnit(" %d / %d ")
	}
	b.bar = b.bars.New(0, filler, mpb.PrependDecorators(decor.Name(b.what+" ")),
		mpb.AppendDecorators(counter, decor.Elapsed(decor.ET_STYLE_GO)))
}

func (b *bar) drop() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.bar.Wait()
		b.bar = nil
	}
}

func (b *bar) end() {
	b.drop()
	b.w.setAbove(nil)
	b.bars.Wait()
}
