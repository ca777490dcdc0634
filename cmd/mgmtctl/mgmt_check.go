package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newMgmtCheck(p *program) *cobra.Command {
	req := &mgmtv1.CheckMgmtRequest{}
	cmd := &cobra.Command{
		Use:   "check [NAME] [flags]",
		Short: "Check one management cluster",
		Long: `Check one management cluster: whether it answers, which rights the credentials have,
its providers and their contracts, kinds without a known pause, and workload clusters that are
paused or owned by another management cluster. NAME may be left out when there is only one.
docs/findings.md explains every finding.

Changes: nothing.

Standalone it needs --source-kubeconfig or --target-kubeconfig, one of them, or --config.

Exit codes: 0 no finding of severity error; 1 other error, such as an unreachable daemon or
management cluster; 2 usage; 3 findings of severity error, such as a store that does not answer; 12
a trusted key that is not one.`,
		Example: `  mgmtctl mgmt check prod
  mgmtctl mgmt check --standalone --target-kubeconfig new.kubeconfig -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(cmd, "takes one argument, got also %q", args[1])
			}
			return nil
		},
		ValidArgsFunction: p.completeMgmt,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				req.Name = args[0]
			}
			if err := p.oneSide(cmd, req.GetName()); err != nil {
				return err
			}
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runMgmtCheck(ctx, p, c, req)
			})
		},
	}
	addLocation(cmd, &req.Location)
	return cmd
}

func runMgmtCheck(ctx context.Context, p *program, c *connection,
	req *mgmtv1.CheckMgmtRequest) error {
	resp, err := c.mgmts.CheckMgmt(ctx, req)
	if err != nil {
		return err
	}
	for _, f := range resp.GetFindings() {
		p.completeHint(f)
	}
	err = p.print(resp, func(w io.Writer) {
		writeMgmt(w, resp.GetMgmt())
		fmt.Fprintln(w)
		if len(resp.GetFindings()) == 0 {
			fmt.Fprintln(w, "no findings")
		}
		writeFindings(w, resp.GetFindings())
	})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(resp.GetFindings(),
		func(f *mgmtv1.Finding) bool { return f.GetSeverity() >= mgmtv1.Severity_SEVERITY_ERROR }) {
		return exit(service.ExitFindings)
	}
	return nil
}
