package main

import (
	"context"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationRollback(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "rollback ID|latest",
		Short: "Undo a move as far as it was not handed over",
		Long: `Undo a move that stopped or failed: workload clusters that were not handed over are
removed from the target and unpaused on the source, which is then equal to what it was. Those that
were handed over can only go forward: they stay, and "mgmtctl operation resume ID" goes on with
them.

Changes: deletes on the target what the move has created there; removes the pause, the lock and the
fence from the source.
Does not change: what was on the target before, workload clusters that were handed over, the
snapshots in the store.

It can be interrupted, or die, and be run again.

Standalone it needs the flags of the move: --store, --source-kubeconfig, --target-kubeconfig, and
--recipient and --signing-key (or --plain).

Exit codes: 0 undone; 1 other error, such as no such operation, or one that is not a move; 2 usage;
3 findings, such as an object on the target that would be deleted too; 4 work is left; 10 store;
11 running, or fenced, owned or locked by another; 12 signing key; 130 interrupted before any
change.`,
		Example: `  mgmtctl operation rollback latest
  mgmtctl operation rollback 1a2b --standalone --store /backup/mgmt --signing-key signing.key \
      --recipient age1... --source-kubeconfig prod.kubeconfig --target-kubeconfig new.kubeconfig`,
		Args:              oneArg(operationArg),
		ValidArgsFunction: p.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationRollback(ctx, p, c, cmd, args[0])
			})
		},
	}
}

func runOperationRollback(ctx context.Context, p *program, c *connection, cmd *cobra.Command,
	id string) error {
	resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: id})
	if err != nil {
		return err
	}
	op := resp.GetOperation()
	if op.GetKind() == kindMove {
		if err := p.check(cmd, needsOfMove); err != nil {
			return err
		}
	}
	// The whole id is used: "latest" may name another operation by now.
	return p.carryOut(ctx, c, op.GetId(), func(ctx context.Context) (*mgmtv1.Operation, error) {
		resp, err := c.operations.RollbackOperation(ctx, &mgmtv1.RollbackOperationRequest{Id: op.GetId()})
		return resp.GetOperation(), err
	})
}
