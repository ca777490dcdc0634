package main

import (
	"context"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationStop(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "stop ID|latest",
		Short: "Stop a running operation after its current steps",
		Long: `Ask a running operation to stop after its current steps. The command does not wait for
that; "mgmtctl operation watch ID" does. The operation can be resumed.

Changes: the operation ends between two steps; what it has done stays done. One that has ended is
not changed.

Exit codes: 0 asked, or ended already; 1 other error, such as no such operation; 2 usage, such as an
ID that fits several; 11 catalog locked.`,
		Example: `  mgmtctl operation stop latest
  mgmtctl operation stop 1a2b --standalone`,
		Args:              oneArg(operationArg),
		ValidArgsFunction: p.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationStop(ctx, p, c, args[0])
			})
		},
	}
}

func runOperationStop(ctx context.Context, p *program, c *connection, id string) error {
	resp, err := c.operations.StopOperation(ctx, &mgmtv1.StopOperationRequest{Id: id})
	if err != nil {
		return err
	}
	op := resp.GetOperation()
	if isEnd(op.GetState()) {
		p.say("operation %s is at work no more: %s", op.GetId(), stateWord(op.GetState()))
	} else {
		p.say("operation %s stops after its current steps; to watch it:\n  %s", op.GetId(),
			p.commandLine("operation", "watch", op.GetId()))
	}
	return p.showOperation(op)
}
