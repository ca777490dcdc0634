package heap

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestTheLargerTheHeapTheLessGarbage(t *testing.T) {
	for _, tt := range []struct {
		live uint64
		want int
	}{{0, 200}, {16 << 20, 200}, {40 << 20, 160}, {64 << 20, 100}, {128 << 20, 50}, {1 << 30, 40}} {
		if got := percent(tt.live); got != tt.want {
			t.Errorf("%d bytes: %d percent, want %d", tt.live, got, tt.want)
		}
	}
}

// TestEachCollectionSetsThePercentage: the clean-up that sets it runs after more than one.
func TestEachCollectionSetsThePercentage(t *testing.T) {
	before := debug.SetGCPercent(77)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	adapt()
	small := debug.SetGCPercent(77)
	if small == 77 {
		t.Fatal("it is not set at first")
	}
	inUse := make([]byte, 512<<20)
	for end := time.Now().Add(30 * time.Second); ; {
		runtime.GC()
		now := debug.SetGCPercent(77)
		if now == leastPercent {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("with 512 MiB in use it is %d percent", now)
		}
		time.Sleep(10 * time.Millisecond)
	}
	runtime.KeepAlive(inUse)
}
