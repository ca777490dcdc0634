package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newRestorePlan(p *program) *cobra.Command {
	var flags *restoreFlags
	cmd := &cobra.Command{
		Use:   "plan [flags]",
		Short: "Show what a restore would do, with all pre-flight checks",
		Long: `Show what a restore would do: the workload clusters, how many objects of each kind are created, adopted or left out, and what the pre-flight checks find.
With -o json the plan has every object; "restore run --plan FILE" takes it and refuses when the plan would be another by then.

Changes: nothing. Checks that create objects do so by server-side dry-run.

Standalone it needs --store, --target-kubeconfig, and --identity and --trusted-key (or --plain).

Exit codes: 0 can run; 1 other error, such as an unreachable target; 2 usage; 3 findings block some workload clusters or all; 10 store;
12 identity or signature.`,
		Example: `  mgmtctl restore plan --standalone --store /backup/mgmt --identity identity.txt --trusted-key signing.pub \
      --target-kubeconfig new.kubeconfig --source-is-gone
  mgmtctl restore plan --workload team-a/web -o json >plan.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := flags.read(cmd)
			if err != nil {
				return err
			}
			p.standalone.sourceName, p.standalone.targetName = spec.GetSource(), spec.GetTarget()
			return p.withServer(cmd, needsOfRestore, func(ctx context.Context, c *connection) error {
				return runRestorePlan(ctx, p, c, spec)
			})
		},
	}
	flags = newRestoreFlags(cmd)
	return cmd
}

func runRestorePlan(ctx context.Context, p *program, c *connection, spec *mgmtv1.RestoreSpec) error {
	identity, err := p.readIdentity()
	if err != nil {
		return err
	}
	pl, err := requestPlan(ctx, c, spec, identity)
	if err != nil {
		return err
	}
	document, err := pl.document()
	if err != nil {
		return err
	}
	if err := p.print(document, func(w io.Writer) { pl.write(w, p) }); err != nil {
		return err
	}
	if pl.blocked() {
		return exit(service.ExitFindings)
	}
	return nil
}
