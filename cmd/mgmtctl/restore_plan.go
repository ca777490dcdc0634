package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newRestorePlan(p *program) *cobra.Command {
	var flags *restoreFlags
	cmd := &cobra.Command{
		Use:   "plan [flags]",
		Short: "Show what a restore would do, with all pre-flight checks",
		Long: `Show what a restore would do: the workload clusters, how many objects of each kind are
created, adopted or left out, and the findings of the pre-flight checks. With -o json the plan has
every object. "restore run --plan FILE" runs that plan, and refuses when a new plan would differ.

--resource-modifiers changes objects on their way to the target, where credentials differ by design.
The plan shows the paths that change, and no values. "restore run" needs the file as well.

Changes: nothing. Checks that create objects do so by server-side dry-run.

Standalone it needs --store, --target-kubeconfig, and --identity and --trusted-key (or --plain).

Exit codes: 0 can run; 1 other error, such as an unreachable target; 2 usage; 3 findings block some
workload clusters or all; 10 store; 12 identity or signature.`,
		Example: `  mgmtctl restore plan --standalone --store /backup/mgmt --identity identity.txt \
      --trusted-key signing.pub --target-kubeconfig new.kubeconfig --source-is-gone
  mgmtctl restore plan --workload team-a/web -o json >plan.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			work, err := flags.read(cmd)
			if err != nil {
				return err
			}
			p.standalone.sourceName, p.standalone.targetName = work.spec.GetSource(), work.spec.GetTarget()
			return p.withServer(cmd, needsOfRestore, func(ctx context.Context, c *connection) error {
				if work.identity, err = p.readIdentity(ctx); err != nil {
					return err
				}
				return runPlan(ctx, p, c, work)
			})
		},
	}
	flags = newRestoreFlags(cmd)
	return cmd
}
