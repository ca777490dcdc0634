package main

import (
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
it, and why; then what is needed but missing. --namespace and --selector are those of "mgmtctl
snapshot create".

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
	err = p.print(coverageDocument{objects}, func(w io.Writer) {
		writeCoverage(w, all)
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
}

func writeCoverage(w io.Writer, objects []*mgmtv1.ExplainCoverageResponse) {
	t := newTable("COVERAGE", "KIND", "NAMESPACE", "NAME", "UNIT", "REASON")
	for _, o := range objects {
		t.add(word(o.GetCoverage(), "COVERAGE_"), kindText(o.GetRef()), o.GetRef().GetNamespace(),
			o.GetRef().GetName(), o.GetUnit(), o.GetReason())
	}
	t.write(w)
}
