package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationResume(p *program) *cobra.Command {
	var force []string
	var modifiers modifiersFlag
	withoutSource := false
	cmd := &cobra.Command{
		Use:   "resume ID|latest",
		Short: "Go on with an operation that stopped or failed",
		Long: `Resume an operation that stopped, failed, or was ended by a crash, from its stored
plan. Steps that are done are not run again. For an operation that succeeded, nothing is done.
After a rollback that has not come to its end, the rollback goes on. After one that left workload
clusters which only go forward, since they were handed over or their release was begun, the
operation goes on with these, and with those that the rollback failed for.

Changes: what the operation has yet to change; see the help of the command that began it.
Does not change: what is done already.

Standalone it needs the flags of the command that began it: for a restore --store,
--target-kubeconfig, and --identity and --trusted-key (or --plain); for a move --store,
--source-kubeconfig, --target-kubeconfig, and --recipient and --signing-key (or --plain), and
--identity when somebody has changed or deleted on the source what was handed over.

With --without-source, of a move whose source does not answer: the source is not dialled, and the
workload clusters that were handed over are released on the target, from the snapshot in the store,
which needs --identity. It ends with exit code 4: the next resume, once the source answers, removes
them there. Those that were not handed over stay as they are. Standalone it needs --store,
--target-kubeconfig, and --identity, --recipient and --signing-key (or --plain); and --trusted-key
when another key signed the snapshot.

An operation that was begun with --resource-modifiers is resumed with the same file: it is stored
nowhere, since it may hold credentials. So a daemon does not resume such a move by itself.

When the host that ran it is lost, another one takes the operation over from its mirror in the
store, also without the catalog. That needs --identity and --trusted-key (or --plain), and
--recipient and --signing-key to write the mirror. If the first host is alive, it stops with exit
code 11.

An operation that has a mirror goes on only while it can write there. When the store takes no more
records, or the signing key is lost, --force no-mirror goes on without, from this catalog alone, if
no other host has written a record since. See that no other host takes the operation over then.

Exit codes: those of the command that began it: 0 all done; 1 other error, such as no such
operation; 2 usage; 3 findings; 4 work is left; 10 store; 11 running already, or fenced, owned or
locked by another; 12 identity or signature; 130 interrupted before any change.`,
		Example: `  mgmtctl operation resume latest --standalone --store /backup/mgmt \
      --identity identity.txt --trusted-key signing.pub --target-kubeconfig new.kubeconfig
  mgmtctl operation resume 1a2b3c4d5e6f --identity identity.txt
  mgmtctl operation resume latest --without-source --identity identity.txt`,
		Args:              oneArg(operationArg),
		ValidArgsFunction: p.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &mgmtv1.ResumeOperationRequest{Id: args[0], ForceCodes: force,
				WithoutSource: withoutSource}
			var err error
			if req.ResourceModifiers, err = modifiers.read(); err != nil {
				return err
			}
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				return runOperationResume(ctx, p, c, cmd, req)
			})
		},
	}
	addForce(cmd, &force, object.Resumes)
	modifiers.register(cmd)
	cmd.Flags().BoolVar(&withoutSource, "without-source", false, "the source of the move does not "+
		"answer: release on the target what was handed over, and leave the rest")
	return cmd
}

// needsOfKind are the flags that a resume of each kind of operation needs.
var needsOfKind = map[string][]need{
	"snapshot":  needsOfSnapshot,
	kindRestore: needsOfRestore,
	kindMove:    needsOfMove,
}

// needsWithoutSource are those of a move whose source does not answer: the objects come from a
// snapshot, and the mirror goes on. Who signs trusts its own key.
var needsWithoutSource = []need{needStore, needIdentity, needRecipient, needSigningKey, needTarget}

func runOperationResume(ctx context.Context, p *program, c *connection, cmd *cobra.Command,
	req *mgmtv1.ResumeOperationRequest) error {
	// The flags that are needed depend on the operation, which only the catalog knows. Neither the
	// store nor a management cluster has been opened yet.
	resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: req.GetId(),
		Kinds: changing})
	if err != nil {
		return err
	}
	op := resp.GetOperation()
	p.operation = op
	if op.GetState() != mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED {
		needs := needsOfKind[op.GetKind()]
		if req.GetWithoutSource() {
			needs = needsWithoutSource
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
		resp, err := c.operations.ResumeOperation(ctx, req)
		return resp.GetOperation(), err
	})
}
