// Package heap decides how much garbage a process holds before the collector runs.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The garbage that may pile up is mostGarbage, or leastPercent of what is in use when that is more.
// So the collector runs seldom in the small heaps of most operations, while the contents of a large
// fleet, which are in memory for a whole plan, leave the process less than twice as large. A bound
// follows a heap that grows one collection late, so that mostPercent bounds it, too.
const (
	mostGarbage  = 64 << 20
	leastPercent = 40
	mostPercent  = 200
)

var once sync.Once

// Bound bounds the garbage of this process from now on, unless the environment variable GOGC does.
func Bound() {
	if os.Getenv("GOGC") == "" {
		once.Do(adapt)
	}
}

// adapt sets the percentage of garbage by what the last collection has left, and again after the
// next one: the clean-up of an object that nothing refers to runs then.
func adapt() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(percent(live[0].Value.Uint64()))
	runtime.AddCleanup(&[64]byte{}, func(struct{}) { adapt() }, struct{}{})
}

// percent is the percentage of garbage for so many bytes in use.
func percent(live uint64) int {
	return int(max(leastPercent, min(mostPercent, mostGarbage*100/max(live, 1))))
}
