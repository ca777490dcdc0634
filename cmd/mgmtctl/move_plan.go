package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newMovePlan(p *program) *cobra.Command {
	var flags *moveFlags
	cmd := &cobra.Command{
		Use:   "plan [flags]",
		Short: "Show what a move would do, with all pre-flight checks of both sides",
		Long: `Show what a move would do: the workload clusters, how many objects of each kind are
created on the target, adopted or left out, and the findings of the pre-flight checks of both sides.
With -o json the plan has every object. "move run --plan FILE" runs that plan, and refuses when a
new plan would differ.

--resource-modifiers changes objects on their way to the target, where credentials differ by design.
The plan shows the paths that change, and no values. "move run" needs the file as well.

Changes: nothing. Checks that create objects do so by server-side dry-run.

Standalone it needs --store, --source-kubeconfig, --target-kubeconfig, and --recipient and
--signing-key (or --plain).

Exit codes: 0 can run; 1 other error, such as an unreachable management cluster; 2 usage; 3 findings
block some workload clusters or all; 10 store; 12 signing key.`,
		Example: `  mgmtctl move plan --source prod --target new --namespace team-a
  mgmtctl move plan --standalone --store /backup/mgmt --recipient age1... \
      --signing-key signing.key --source-kubeconfig prod.kubeconfig \
      --target-kubeconfig new.kubeconfig -o json >plan.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			work, err := flags.read(cmd)
			if err != nil {
				return err
			}
			p.standalone.sourceName, p.standalone.targetName = work.spec.GetSource(), work.spec.GetTarget()
			return p.withServer(cmd, needsOfMove, func(ctx context.Context, c *connection) error {
				return runPlan(ctx, p, c, work)
			})
		},
	}
	flags = newMoveFlags(cmd)
	return cmd
}
