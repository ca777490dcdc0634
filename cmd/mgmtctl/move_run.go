package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
)

func newMoveRun(p *program) *cobra.Command {
	var flags *moveFlags
	var run *runFlags
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Move workload clusters from one management cluster to another",
		Long: `Move workload clusters from one management cluster to another. Each workload cluster is
locked, and copied to the target while the source works on it. Then it is paused on the source and
captured in a snapshot, what has changed is copied, and it is verified, handed over, released on the
target, and retired from the source. Its machines and its API server run on; only its management is
paused, for seconds.

Without --yes it shows a summary of the plan and asks, which needs a terminal. With --plan FILE it
runs what "move plan -o json" has printed, and refuses when a new plan would differ; flags that
decide a plan are then refused. --resource-modifiers, where credentials differ by design, is not in
the plan: give it again, also to a resume.

Changes: on the target it creates objects and releases them. On the source it pauses what moves and,
after the hand-over, deletes it there without its controllers seeing a deletion. The store gets
snapshots and ownership records. The admission policy mgmtd-moved stays on the source: it denies to
create there again what has moved. Where it cannot be made, the plan warns (policy-not-armed):
suspend a GitOps tool that would do so. With --suspend-gitops it also suspends there, before the
first pause, the tools that apply what moves, and leaves them suspended.
Does not change: machines, and everything else that the workload clusters run on. A different object
on the target is a finding and is never overwritten. Nothing is deleted on the source before its
snapshot and its copy are verified. What others on the source still need is copied and stays.

A workload cluster that fails before its hand-over, or is not handed over within --max-pause, is
given back to the source at once, and its copy is removed; a resume begins from scratch with it.

It can be interrupted, or die, and be resumed: "mgmtctl operation resume ID". Before a workload
cluster is handed over, its move can be undone with "mgmtctl operation rollback ID"; after that it
only goes forward.

Standalone it needs --store, --source-kubeconfig, --target-kubeconfig, and --recipient and
--signing-key (or --plain).

Exit codes: 0 moved; 1 other error, such as an unreachable management cluster; 2 usage, or
confirmation missing; 3 findings block everything, or the plan changed, and nothing was done;
4 something was done and work is left: the commands that go on and that undo it are printed;
10 store; 11 fenced, owned or locked by another; 12 signing key or signature; 130 interrupted before
any change.`,
		Example: `  mgmtctl move run --source prod --target new --workload team-a/web
  mgmtctl move run --plan plan.json --yes --canary team-a/web --observe 5m
  mgmtctl move run --standalone --store /backup/mgmt --recipient age1... --signing-key signing.key \
      --source-kubeconfig prod.kubeconfig --target-kubeconfig new.kubeconfig --namespace team-a`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			work, err := flags.read(cmd)
			if err != nil {
				return err
			}
			if err := run.read(p, cmd, kindMove, moveFlagNames, needsOfMove); err != nil {
				return err
			}
			if run.plan != nil {
				work.spec = run.plan.header.(moveHeader).GetSpec()
			}
			p.standalone.sourceName, p.standalone.targetName = work.spec.GetSource(), work.spec.GetTarget()
			return p.withServer(cmd, needsOfMove, func(ctx context.Context, c *connection) error {
				if err := run.consented(p, cmd); err != nil {
					return err
				}
				return runPlanned(ctx, p, c, work, run)
			})
		},
	}
	flags = newMoveFlags(cmd)
	run = newRunFlags(cmd, "move", service.DefaultMoveConcurrency)
	run.addMaxPause(cmd)
	return cmd
}
