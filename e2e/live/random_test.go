package live

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// testKilledAtRandom kills mgmtctl with kill -9 at random moments of a restore, and resumes it
// until it is done.
func (o *operator) testKilledAtRandom() {
	seed := uint64(time.Now().UnixNano())
	o.t.Logf("seed of the moments: %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	restore := slices.Concat([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently", "--namespace",
		randomNS}, o.flags())
	resume := slices.Concat([]string{"operation", "resume", "latest"}, o.flags())
	args := restore
	const kills = 12
	for i, done := 0, false; !done; i++ {
		// Later runs live longer, so that the kills reach every phase. The last one is not killed.
		lived := time.Duration(random.Int64N(int64(time.Second) * int64(i+2) / 2))
		if i == kills {
			lived = healthTimeout
		}
		out, killed := o.runFor(lived, args...)
		o.t.Logf("%s: killed %t after at most %s", strings.Join(args[:2], " "), killed,
			lived.Round(time.Millisecond))
		switch {
		case killed && o.begun():
			args = resume
		case killed, out.code == codeUsage && strings.Contains(out.stderr, "run the restore again"):
			// The operation was killed before its plan was stored.
			args = restore
		default:
			o.assertOutput(out, codeDone)
			done = true
		}
	}
	o.assertRestored(o.t, o.before.In(randomNS), nil, randomNS)
}

// runFor runs a command and kills it with kill -9 after a time, unless it has ended before.
func (o *operator) runFor(lived time.Duration, args ...string) (out output, killed bool) {
	o.t.Helper()
	process, done := o.begin(args...)
	select {
	case out = <-done:
		return out, false
	case <-time.After(lived):
		_ = process.Kill()
		out = <-done
		return out, out.code == codeKilled
	}
}

// begun reports whether the catalog has an operation that can be resumed.
func (o *operator) begun() bool {
	o.t.Helper()
	return o.exec(o.t.Context(), o.state, "operation", "show", "latest", "--standalone").code ==
		codeDone
}
