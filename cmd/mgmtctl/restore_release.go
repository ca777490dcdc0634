package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newRestoreRelease(p *program) *cobra.Command {
	spec := &mgmtv1.RestoreSpec{}
	var modifiers modifiersFlag
	run := &runFlags{tuning: &mgmtv1.RestoreTuning{MaxFailures: new(int32)}}
	cmd := &cobra.Command{
		Use:   "release ID|latest",
		Short: "Release what a restore with --no-release left paused",
		Long: `Release the workload clusters that a finished restore with --no-release left paused on the
target. It is a new restore of the same snapshot, target and workload clusters: it adopts the paused
copies, makes all checks of a restore, and releases.

Without --yes it shows a summary of the plan and asks, which needs a terminal.

Changes: unpauses the workload clusters on the target, so that its controllers take them over, and
records their owner in the store. Objects that are missing there by now are created before that.
With --renew-kubeconfigs it writes new kubeconfigs in the place of expired ones.
Does not change: a different object on the target is a finding and is never overwritten. The
snapshot and the source are not touched. Without --source-is-gone a release on another management
cluster than the source is refused.

A restore with --resource-modifiers is released with the same file.

It can be interrupted, or die, and be resumed: "mgmtctl operation resume ID".

Standalone it needs the flags of the restore: --store, --target-kubeconfig, and --identity and
--trusted-key (or --plain).

Exit codes: 0 released; 1 other error, such as no such operation; 2 usage, such as a restore that
has not ended or has released everything, or confirmation missing; 3 findings block everything, or
the plan changed, and nothing was done; 4 something was done and work is left: the command that goes
on is printed; 10 store; 11 fenced, owned or locked by another; 12 identity or signature; 130
interrupted before any change.`,
		Example: `  mgmtctl restore release latest --source-is-gone
  mgmtctl restore release 1a2b --source-is-gone --canary team-a/web --standalone \
      --store /backup/mgmt --identity identity.txt --trusted-key signing.pub \
      --target-kubeconfig new.kubeconfig`,
		Args:              oneArg(operationArg),
		ValidArgsFunction: p.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := run.read(p, cmd, kindRestore, nil, needsOfRestore); err != nil {
				return err
			}
			document, err := modifiers.read()
			if err != nil {
				return err
			}
			work := &restoreWork{spec: spec, modifiers: document}
			spec.ReleaseOf = args[0]
			return p.withServer(cmd, needsOfRestore, func(ctx context.Context, c *connection) error {
				if err := run.consented(p, cmd); err != nil {
					return err
				}
				// The run is an operation of its own, which is "latest" then.
				resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: args[0],
					Kinds: []string{kindRestore}})
				if err != nil {
					return err
				}
				spec.ReleaseOf = resp.GetOperation().GetId()
				if work.identity, err = p.readIdentity(ctx); err != nil {
					return err
				}
				return runPlanned(ctx, p, c, work, run)
			})
		},
	}
	set := cmd.Flags()
	addAcceptDifferences(cmd, &spec.AcceptDifferences)
	set.BoolVar(&spec.SourceIsGone, "source-is-gone", false, "your word that no controller of the "+
		"source runs any more")
	addForce(cmd, &spec.ForceCodes, object.Restores)
	addRenewKubeconfigs(cmd, &spec.RenewKubeconfigs)
	modifiers.register(cmd)
	run.addTuning(cmd, "release", service.DefaultRestoreConcurrency)
	return cmd
}
