package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSnapshotCoverage(p *program) *cobra.Command {
	req := &mgmtv1.ExplainCoverageRequest{}
	cmd := &cobra.Command{
		Use:   "coverage [flags]",
		Short: "Say of every object whether a snapshot would hold it, and why",
		Long: `Report for every object in scope on the live source whether a snapshot would include
it, and why; then what is needed but missing, by what needs it. --namespace and --selector are
those of "mgmtctl snapshot create".

Changes: nothing, neither on the source nor in the store.

Standalone it needs --source-kubeconfig.

Exit codes: 0 nothing is missing; 1 other error, such as an unreachable source; 2 usage; 3 something
that is needed is missing.`,
		Example: `  mgmtctl snapshot coverage --standalone --source-kubeconfig prod.kubeconfig
  mgmtctl snapshot coverage --namespace team-a -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.standalone.sourceName = req.GetSource()
			return p.withServer(cmd, []need{needSource}, func(ctx context.Context, c *connection) error {
				return runSnapshotCoverage(ctx, p, c, req)
			})
		},
	}
	addSource(cmd, &req.Source)
	addNamespaces(cmd, &req.Namespaces, "only this namespace")
	addSelector(cmd, &req.Selector, "a snapshot of only the workload clusters whose Cluster has "+
		"these labels")
	return cmd
}

func runSnapshotCoverage(ctx context.Context, p *program, c *connection,
	req *mgmtv1.ExplainCoverageRequest) error {
	stream, err := c.snapshots.ExplainCoverage(ctx, req)
	if err != nil {
		return err
	}
	all, err := receiveAll(stream)
	if err != nil {
		return err
	}
	byCoverage := map[mgmtv1.Coverage]int{}
	for _, object := range all {
		byCoverage[object.GetCoverage()]++
	}
	objects, err := rawList(all)
	if err != nil {
		return err
	}
	missing := byCoverage[mgmtv1.Coverage_COVERAGE_MISSING]
	groups := missingGroups(all)
	err = p.print(coverageDocument{objects, groups}, func(w io.Writer) {
		writeCoverage(w, all)
		writeMissing(w, groups)
		fmt.Fprintf(w, "\n%d included, %d left out, %d missing\n",
			byCoverage[mgmtv1.Coverage_COVERAGE_INCLUDED], byCoverage[mgmtv1.Coverage_COVERAGE_LEFT_OUT],
			missing)
	})
	if err == nil && missing > 0 {
		return exit(service.ExitFindings)
	}
	return err
}

// coverageDocument is the result for machines.
type coverageDocument struct {
	Objects []json.RawMessage `json:"objects"`
	// Missing are those of the objects that are missing, by what needs them.
	Missing []missingGroup `json:"missing"`
}

// missingGroup is what one object needs and is missing.
type missingGroup struct {
	NeededBy string          `json:"neededBy"`
	Unit     string          `json:"unit,omitempty"`
	Objects  []missingObject `json:"objects"`
}

type missingObject struct {
	Object string `json:"object"`
	Field  string `json:"field"`
}

// missingGroups groups missing objects, which come in the order of what needs them.
func missingGroups(all []*mgmtv1.ExplainCoverageResponse) []missingGroup {
	groups := []missingGroup{}
	for _, o := range all {
		if o.GetCoverage() != mgmtv1.Coverage_COVERAGE_MISSING {
			continue
		}
		by := refText(o.GetNeededBy())
		if len(groups) == 0 || groups[len(groups)-1].NeededBy != by {
			groups = append(groups, missingGroup{NeededBy: by, Unit: o.GetUnit()})
		}
		field := o.GetField()
		if by == "" {
			field = o.GetReason() // of a daemon of an earlier version, which says both in words
		}
		last := &groups[len(groups)-1]
		last.Objects = append(last.Objects, missingObject{refText(o.GetRef()), field})
	}
	return groups
}

func writeCoverage(w io.Writer, objects []*mgmtv1.ExplainCoverageResponse) {
	t := newTable("COVERAGE", "KIND", "NAMESPACE", "NAME", "WORKLOAD CLUSTER", "REASON")
	for _, o := range objects {
		if o.GetCoverage() == mgmtv1.Coverage_COVERAGE_MISSING {
			continue
		}
		t.add(word(o.GetCoverage(), "COVERAGE_"), kindText(o.GetRef()), o.GetRef().GetNamespace(),
			o.GetRef().GetName(), o.GetUnit(), o.GetReason())
	}
	t.write(w)
}

func writeMissing(w io.Writer, groups []missingGroup) {
	for _, g := range groups {
		unit := ""
		if g.Unit != "" {
			unit = " of " + g.Unit
		}
		fmt.Fprintf(w, "\nmissing, and needed by %s%s:\n", cmp.Or(g.NeededBy, "objects"), unit)
		for _, o := range g.Objects {
			fmt.Fprintf(w, "  %s (%s)\n", o.Object, o.Field)
		}
	}
}
