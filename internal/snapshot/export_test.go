package snapshot

import "testing"

// WatchAll makes every source a large one for the time of a test, which must not run beside others.
func WatchAll(t *testing.T) {
	was := smallSource
	smallSource = 0
	t.Cleanup(func() { smallSource = was })
}
