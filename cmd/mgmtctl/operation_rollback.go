package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationRollback(p *program) *cobra.Command {
	var force []string
	cmd := &cobra.Command{
		Use:   "rollback ID|latest",
		Short: "Undo a restore or a move as far as nothing was released or handed over",
		Long: `Undo a restore or a move that stopped or failed, or a restore that ended with --no-release.

Of a restore: the workload clusters that were not released are removed from the target, and their
ownership is given back. Those that were released are left alone and named.

Of a move: workload clusters that were not handed over are removed from the target and unpaused on
the source, which is then equal to what it was. Those that were handed over can only go forward:
they stay, and "mgmtctl operation resume ID" goes on with them.

Changes: removes from the target what the operation has created there, without deleting any
infrastructure; of a move, removes the pause, the lock and the fence from the source.
Does not change: what was on the target before, namespaces, workload clusters that were released or
handed over, the snapshots in the store. Nothing of a workload cluster is removed once its Cluster
is not paused, or is another one.

It can be interrupted, or die, and be run again.

Standalone it needs the flags of the operation: of a restore --store and --target-kubeconfig (no
identity), and --signing-key when it has claimed an owner; of a move --store, --source-kubeconfig,
--target-kubeconfig, and --recipient and --signing-key (or --plain).
With --identity and --trusted-key it also rolls back an operation of another host, which then stops,
from its mirror in the store. When the store takes no more records, or the signing key is lost,
--force no-mirror rolls back without, as "mgmtctl operation resume" does.

Exit codes: 0 undone; 1 other error, such as no such operation, or one of another kind; 2 usage,
such as a restore that has released everything; 3 findings, such as an object on the target that
would be deleted too; 4 work is left; 10 store; 11 running, or fenced, owned or locked by another;
12 signing key; 130 interrupted before any change.`,
		Example: `  mgmtctl operation rollback latest
  mgmtctl operation rollback 1a2b --standalone --store /backup/mgmt --signing-key signing.key \
      --recipient age1... --source-kubeconfig prod.kubeconfig --target-kubeconfig new.kubeconfig`,
		Args:              oneArg(operationArg),
		ValidArgsFunction: p.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationRollback(ctx, p, c, cmd, args[0], force)
			})
		},
	}
	addForce(cmd, &force, object.Resumes)
	return cmd
}

// needsOfRollback are the flags that a rollback of each kind of operation needs.
var needsOfRollback = map[string][]need{
	kindRestore: {needStore, needTarget},
	kindMove:    needsOfMove,
}

func runOperationRollback(ctx context.Context, p *program, c *connection, cmd *cobra.Command,
	id string, force []string) error {
	resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: id})
	if err != nil {
		return err
	}
	op := resp.GetOperation()
	if needs := needsOfRollback[op.GetKind()]; needs != nil {
		if err := p.check(cmd, needs); err != nil {
			return err
		}
	}
	identity, err := p.readIdentity(ctx)
	if err != nil {
		return err
	}
	// The whole id is used: "latest" may name another operation by now.
	return p.carryOut(ctx, c, op.GetId(), func(ctx context.Context) (*mgmtv1.Operation, error) {
		resp, err := c.operations.RollbackOperation(ctx, &mgmtv1.RollbackOperationRequest{Id: op.GetId(),
			Identity: identity, ForceCodes: force})
		return resp.GetOperation(), err
	})
}
