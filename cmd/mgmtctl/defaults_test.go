package main

import (
	"strings"
	"testing"
)

// TestNoHelpPromisesAnAdmissionPolicy: the help of a move once named a policy that keeps moved
// workload clusters from coming back to the source. mgmtd writes no such policy.
func TestNoHelpPromisesAnAdmissionPolicy(t *testing.T) {
	for _, cmd := range commands(t) {
		if strings.Contains(strings.ToLower(cmd.Long), "policy") {
			t.Errorf("%s: the help names a policy", cmd.CommandPath())
		}
	}
}
