//go:build api

package restore_test

import "testing"

// TestAPIRestoreIntoAnEmptyTargetMayRunTwice restores a fleet with classes, MachinePools and a
// paused workload cluster into an empty management cluster; then again, which must adopt
// everything and change nothing. It is in the first file of the package, so that it runs first: the
// snapshot of everything on the source is small then.
func TestAPIRestoreIntoAnEmptyTargetMayRunTwice(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "all-", "--workloads", "4", "--machines", "3",
		"--machine-pools")
	s := take(t)
	empty(t)
	servers.Acknowledge(t, 1)
	if err := s.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Fatal(err)
	}
	checkRestored(t, s)
	planAgain(t, s)
}
