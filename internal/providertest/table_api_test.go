//go:build api

package providertest_test

import (
	"slices"
	"strings"
)

// table are the workload clusters whose verdict is recorded: one for each way in which a provider
// keeps credentials, pauses and hangs together.
var table = []string{
	"os1", "os2", "os3", "aws1", "aws2", "eks1", "eks2", "az1", "aks1", "vs1", "vs2", "gcp1", "gke1",
	"bm1", "ip1", "ip2", "h1", "h2", "st1", "azc1", "fx1", "fx2", "ar1", "ar2", "rke1", "k3s1",
	"talos1", "k0s1", "kam1", "pk1",
}

// checkTable logs the verdict of each row. It fails for a row that no file has; a stage that a row
// fails has failed by itself.
func (r *tier) checkTable() {
	var lines, seen []string
	for _, g := range r.graphs {
		for _, row := range g.Rows {
			seen = append(seen, row.Name)
			verdict := "good"
			switch {
			case len(r.failed[g.name]) > 0:
				verdict = "bad: " + strings.Join(r.failed[g.name], ", ")
			case row.Blocked != "":
				verdict = "blocked (" + row.Blocked + "): " + row.Why
			case row.MoveBlocked != "":
				verdict = "good; a move is refused (" + row.MoveBlocked + "): " + row.Why
			case row.Forced != "":
				verdict = "good; a move needs an override (" + row.Forced + "): " + row.Why
			}
			lines = append(lines, g.name+" "+row.Name+": "+verdict)
		}
	}
	for _, name := range table {
		if !slices.Contains(seen, name) {
			r.t.Errorf("no file of testdata has the row %s", name)
		}
	}
	r.t.Log("verdicts:\n" + strings.Join(lines, "\n"))
}
