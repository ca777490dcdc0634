package snapshot

import (
	"math"
	"testing"
)

// WatchAll makes every source a large one for the time of a test, which must not run beside others.
func WatchAll(t *testing.T) {
	was := smallSource
	smallSource = 0
	t.Cleanup(func() { smallSource = was })
}

// Ways to the cut, for those who go both in one test.
const (
	AsItIs   = -1            // as the size of the source says
	Listed   = math.MaxInt32 // every source is small
	Followed = 0             // every source is large
)

// Going makes fn go one way. Nothing else may run beside it.
func Going(way int, fn func()) {
	if way != AsItIs {
		was := smallSource
		smallSource = way
		defer func() { smallSource = was }()
	}
	fn()
}
