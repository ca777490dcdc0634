package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationList(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List operations",
		Long: `List the operations of the catalog, newest first.

Changes: nothing, except that operations of a process that died are marked as stopped.

Exit codes: 0 listed, also when there is none; 1 other error; 2 usage; 11 catalog locked.`,
		Example: `  mgmtctl operation list --standalone
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
	resp, err := c.operations.ListOperations(ctx, &mgmtv1.ListOperationsRequest{})
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
	})
}
