package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
)

func newRestoreRun(p *program) *cobra.Command {
	var flags *restoreFlags
	var run *runFlags
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Restore workload clusters to a target management cluster",
		Long: `Restore workload clusters of a snapshot to a target management cluster: plan, check,
create everything paused, verify, release.

Without --yes it shows a summary of the plan and asks, which needs a terminal. With --plan FILE it
runs what "restore plan -o json" has printed, and refuses when a new plan would differ; flags that
decide a plan are then refused. --resource-modifiers, where credentials differ by design, is not in
the plan: give it again, also to a resume.

Changes: creates objects on the target and releases them last, so that its controllers take over the
workload clusters. Equal objects on the target are adopted; the annotation mgmtd.dev/workload-id is
written. With --renew-kubeconfigs it writes new kubeconfigs in the place of expired ones.
Does not change: a different object on the target is a finding and is never overwritten. The
snapshot and the source are not touched. Without --source-is-gone a restore to another management
cluster is refused.

It can be interrupted, or die, and be resumed: "mgmtctl operation resume ID".

Standalone it needs --store, --target-kubeconfig, and --identity and --trusted-key (or --plain).

Exit codes: 0 restored; 1 other error, such as an unreachable target; 2 usage, or confirmation
missing; 3 findings block everything, or the plan changed, and nothing was done; 4 something was
done and work is left: the command that goes on is printed; 10 store; 11 fenced, owned or locked by
another; 12 identity or signature; 130 interrupted before any change.`,
		Example: `  mgmtctl restore run --standalone --store /backup/mgmt --identity identity.txt \
      --trusted-key signing.pub --target-kubeconfig new.kubeconfig --source-is-gone
  mgmtctl restore run --plan plan.json --yes --canary team-a/web`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			work, err := flags.read(cmd)
			if err != nil {
				return err
			}
			if err := run.read(p, cmd, kindRestore, restoreFlagNames, needsOfRestore); err != nil {
				return err
			}
			if run.plan != nil {
				work.spec = run.plan.header.(restoreHeader).GetSpec()
			}
			p.standalone.sourceName, p.standalone.targetName = work.spec.GetSource(), work.spec.GetTarget()
			return p.withServer(cmd, needsOfRestore, func(ctx context.Context, c *connection) error {
				if err := run.consented(p, cmd); err != nil {
					return err
				}
				if work.identity, err = p.readIdentity(ctx); err != nil {
					return err
				}
				return runPlanned(ctx, p, c, work, run)
			})
		},
	}
	flags = newRestoreFlags(cmd)
	run = newRunFlags(cmd, "restore and release", service.DefaultRestoreConcurrency)
	return cmd
}
