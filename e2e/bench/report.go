package bench

import (
	"fmt"
	"io"
	"time"
)

// report prints figures as they come.
type report struct{ out io.Writer }

func (r *report) title(objects int, floor time.Duration) {
	fmt.Fprintf(r.out, "\n%d objects. Floor: LIST of all kinds, %d at once: %s\n", objects, lists,
		floor.Round(time.Millisecond))
}

func (r *report) line(what string, took time.Duration, format string, args ...any) {
	text := ""
	if took > 0 {
		text = took.Round(time.Millisecond).String()
	}
	fmt.Fprintf(r.out, "  %-32s %9s   %s\n", what, text, fmt.Sprintf(format, args...))
}
