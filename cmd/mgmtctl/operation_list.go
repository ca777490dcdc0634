package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationList(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List operations",
		Long: `List the operations of the catalog, newest first. Standalone with --store it also lists
the restores and moves of other hosts, of which the store has a mirror; "mgmtctl operation resume"
and "rollback" take them over. The state of one whose newest record says that it runs, and is older
than a minute, is "unknown": its host may be at work, waiting or lost.

Changes: nothing, except that operations of a process that died are marked as stopped.

Exit codes: 0 listed, also when there is none; 1 other error; 2 usage; 11 catalog locked.`,
		Example: `  mgmtctl operation list --standalone --store /backup/mgmt --trusted-key signing.pub
  mgmtctl operation list -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationList(ctx, p, c)
			})
		},
	}
}

func runOperationList(ctx context.Context, p *program, c *connection) error {
	req := &mgmtv1.ListOperationsRequest{
		Mirrored: p.standalone.enabled && (p.given("store") || p.configHas("store"))}
	resp, err := c.operations.ListOperations(ctx, req)
	if err != nil && req.GetMirrored() && ctx.Err() == nil {
		p.say("the operations of other hosts are not listed: %v", service.FromStatus(err))
		req.Mirrored = false
		resp, err = c.operations.ListOperations(ctx, req)
	}
	if err != nil {
		return err
	}
	if len(resp.GetOperations()) == 0 {
		p.say("no operations")
	}
	return p.print(resp, func(w io.Writer) {
		t := newTable("ID", "KIND", "STATE", "AGE", "SOURCE", "TARGET", "SNAPSHOT", "UNITS")
		for _, op := range resp.GetOperations() {
			t.add(op.GetId(), op.GetKind(), stateWord(op.GetState()), p.age(op.GetCreateTime()),
				op.GetSource(), op.GetTarget(), op.GetSnapshotId(), unitCounts(op))
		}
		t.write(w)
		for _, op := range resp.GetOperations() {
			if op.GetState() == mgmtv1.OperationState_OPERATION_STATE_UNKNOWN {
				p.operation = op.GetId()
				p.say("%s: %s", op.GetId(), p.completeMessage(op.GetMessage(), op.GetHintKey()))
			}
		}
	})
}
