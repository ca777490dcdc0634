package observe

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// TestAcknowledgementsCountOnceAndInTheirPause: the condition that stays True is no further
// acknowledgement. One before or after a pause is none of it, nor is one of a workload cluster that
// is paused later.
func TestAcknowledgementsCountOnceAndInTheirPause(t *testing.T) {
	w := newAcknowledgementWatch(nil)
	acknowledge := func(status string) {
		o := cluster(true)
		o.SetKind("Cluster")
		o.Object["status"] = map[string]any{"conditions": []any{
			map[string]any{"type": "Paused", "status": status}}}
		w.record(watch.Modified, o)
	}
	acknowledge("True")
	begun := time.Now()
	acknowledge("True")
	acknowledge("False")
	acknowledge("True")
	pause := Pause{From: begun, To: time.Now()}
	if n := len(w.times["team/web"]); n != 2 {
		t.Errorf("%d acknowledgements, want 2", n)
	}
	later := Pause{From: pause.To, To: pause.To.Add(time.Hour)}
	for name, c := range map[string]struct {
		pauses map[string]Pause
		want   bool
	}{
		"its own":                                 {map[string]Pause{"team/web": pause}, true},
		"of one that is paused with it":           {map[string]Pause{"team/other": pause, "team/web": pause}, true},
		"before it":                               {map[string]Pause{"team/web": later}, false},
		"of one that is paused after the other":   {map[string]Pause{"team/other": pause, "team/web": later}, false},
		"of one that is paused before both began": {map[string]Pause{"team/other": later, "team/web": pause}, false},
	} {
		asked := "team/web"
		if _, ok := c.pauses["team/other"]; ok {
			asked = "team/other"
		}
		got := w.In(c.pauses)[asked]
		if (got > 0) != c.want || got > c.pauses[asked].Length() {
			t.Errorf("%s: the last one after %s", name, got)
		}
	}
}
