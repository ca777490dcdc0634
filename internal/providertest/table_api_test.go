//go:build api

package providertest_test

import (
	"strings"

	"github.com/google/go-cmp/cmp"
)

// checkTable checks that all is verified that the table says of each row, and logs the verdicts. A
// stage that a row fails has failed by itself; one that did not run has not.
func (r *tier) checkTable() {
	done := verified(r.t, r.graphs, func(g *graph, stage string) bool {
		return r.passed[g.name][stage]
	})
	var lines []string
	for _, g := range r.graphs {
		for _, row := range g.Rows {
			line := g.name + " " + row.Name + ": " + done[row.Name]
			for what, code := range map[string]string{"blocked": row.Blocked,
				"a move is refused": row.MoveBlocked, "a move needs an override": row.Forced} {
				if code != "" {
					line += "; " + what + " (" + code + "): " + row.Why
				}
			}
			lines = append(lines, line)
		}
	}
	if diff := cmp.Diff(table, done); diff != "" {
		r.t.Errorf("what is verified (-want +got):\n%s", diff)
	}
	r.t.Log("verified:\n" + strings.Join(lines, "\n"))
}
