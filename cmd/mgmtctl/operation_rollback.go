package main

import (
	"context"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationRollback(p *program) *cobra.Command {
	marks := newMarksFlags()
	withoutTarget := false
	cmd := &cobra.Command{
		Use:   "rollback (ID|latest | --from-marks) [flags]",
		Short: "Undo a restore or a move as far as nothing was released or handed over",
		Long: `Undo a restore or a move that stopped or failed, or a restore that ended with --no-release.

Of a restore: the workload clusters that were not released are removed from the target, and their
ownership is given back. Those that were released are left alone and named.

Of a move: workload clusters that were not handed over are removed from the target and unpaused on
the source, which is then equal to what it was. Those that were handed over can only go forward:
they stay, and "mgmtctl operation resume ID" goes on with them.

With --without-target, of a move whose target does not answer: the target is not dialled, and the
source gets back what was not handed over. The journal proves that, or the ownership record in the
store, which then gets a higher epoch in the name of the source. A workload cluster that neither of
them proves stays paused. When the store does not answer either, --force store-away relies on the
journal of this host and the locks on the source; a hand-over that was begun stays as it is. Copies
stay on the target, paused; once it answers, the same command without --without-target removes them.

With --from-marks, of restores and moves that are lost: neither the catalog nor the store has their
journal. The paused copies that they left on the target are found by what is on the target itself: a
Cluster with the annotation mgmtd.dev/was-paused that is paused and was never released. It has no
lock and no fence, the field manager of its creation is that of a restore or a move, and no
ownership record names the target. The objects that such a Cluster owns, directly or through others,
are removed, and those that this field manager created; all others stay and are named. Without --yes
it shows the plan and asks, which needs a terminal; with --dry-run it shows the plan and ends. A
move that is lost leaves the source paused and locked.

Changes: removes from the target what the operation has created there, without deleting any
infrastructure; of a move, removes the pause, the lock and the fence from the source; of a restore,
has the admission policy of the target deny again what it denied before the restore.
Does not change: what was on the target before, namespaces, workload clusters that were released or
handed over, the snapshots in the store. Nothing of a workload cluster is removed once its Cluster
is not paused, or is another one.

It can be interrupted, or die, and be run again.

Standalone it needs the flags of the operation: of a restore --store and --target-kubeconfig (no
identity), and --signing-key when it has claimed an owner; of a move --store, --source-kubeconfig,
--target-kubeconfig, and --recipient and --signing-key (or --plain); with --without-target --store,
--source-kubeconfig, and the keys if there are any; with --from-marks --target-kubeconfig, and the
--store of the restore or the move.
With --identity and --trusted-key it also rolls back an operation of another host, which then stops,
from its mirror in the store. When the store takes no more records, or the signing key is lost,
--force no-mirror rolls back without, as "mgmtctl operation resume" does.

Exit codes: 0 undone; 1 other error, such as no such operation, or one of another kind; 2 usage,
such as a restore that has released everything, or confirmation missing; 3 findings, such as an
object on the target that would be deleted too, or the plan changed; 4 work is left; 10 store; 11
running, or fenced, owned or locked by another; 12 signing key; 130 interrupted before any change.`,
		Example: `  mgmtctl operation rollback latest
  mgmtctl operation rollback 1a2b --standalone --store /backup/mgmt --signing-key signing.key \
      --recipient age1... --source-kubeconfig prod.kubeconfig --target-kubeconfig new.kubeconfig
  mgmtctl operation rollback latest --without-target
  mgmtctl operation rollback --from-marks --dry-run --standalone --store /backup/mgmt \
      --target-kubeconfig new.kubeconfig`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case !marks.enabled:
				return oneArg(operationArg)(cmd, args)
			case len(args) > 0:
				return usageError(cmd, "--from-marks is for operations that are lost: it takes no "+
					"argument, got %q", args[0])
			}
			return nil
		},
		ValidArgsFunction: p.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			if marks.enabled && withoutTarget {
				return usageError(cmd, "--from-marks and --without-target exclude each other: the marks are "+
					"on the target")
			}
			if marks.enabled {
				return marks.run(p, cmd)
			}
			if name := marks.first(cmd); name != "" {
				return usageError(cmd, "--%s needs --from-marks", name)
			}
			req := &mgmtv1.RollbackOperationRequest{Id: args[0], ForceCodes: marks.spec.GetForceCodes(),
				WithoutTarget: withoutTarget}
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationRollback(ctx, p, c, cmd, req)
			})
		},
	}
	cmd.Flags().BoolVar(&withoutTarget, "without-target", false, "the target of the move does not "+
		"answer: give back to the source what was not handed over, and leave the copies")
	marks.add(cmd)
	return cmd
}

// needsOfRollback are the flags that a rollback of each kind of operation needs.
var needsOfRollback = map[string][]need{
	kindRestore: {needStore, needTarget},
	kindMove:    needsOfMove,
}

// needsWithoutTarget are those of a move whose target does not answer. Its journal may prove all
// that there is to prove, without a record that has to be signed.
var needsWithoutTarget = []need{needStore, needSource}

func runOperationRollback(ctx context.Context, p *program, c *connection, cmd *cobra.Command,
	req *mgmtv1.RollbackOperationRequest) error {
	resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: req.GetId(),
		Kinds: changing})
	if err != nil {
		return err
	}
	op := resp.GetOperation()
	p.operation = op
	if needs := needsOfRollback[op.GetKind()]; needs != nil {
		if req.GetWithoutTarget() {
			needs = needsWithoutTarget
		}
		if err := p.check(cmd, needs); err != nil {
			return err
		}
	}
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	req.Id = op.GetId() // "latest" may name another operation by now
	return p.carryOut(ctx, c, op.GetId(), func(ctx context.Context) (*mgmtv1.Operation, error) {
		resp, err := c.operations.RollbackOperation(ctx, req)
		return resp.GetOperation(), err
	})
}
