package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationShow(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID|latest",
		Short: "Show an operation and its workload clusters",
		Long: `Show one operation: its state, and the state of each of its workload clusters.

Of a move it also says since when a workload cluster is paused: neither side works on it until it is
released on the target, or given back to the source. When another host has gone on with it, the
state is that of its mirror in the store, if that answers within 10 s, and how its workload clusters
stand is not known here. When a restore or a move has left work, the commands that go on with it, or
undo it, are printed to stderr.

Changes: nothing.

Exit codes: 0 shown, whatever the state of the operation; 1 other error, such as no such operation;
2 usage, such as an ID that fits several; 10 store; 11 catalog locked; 12 a trusted key that is not
one.`,
		Example: `  mgmtctl operation show latest --standalone
  mgmtctl operation show 1a2b -o json`,
		Args:              oneArg(operationArg),
		ValidArgsFunction: p.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationShow(ctx, p, c, args[0])
			})
		},
	}
}

func runOperationShow(ctx context.Context, p *program, c *connection, id string) error {
	resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: id, Mirrored: true})
	if err != nil {
		return err
	}
	return p.showOperation(resp.GetOperation())
}

// showOperation prints an operation and, when its run has left work, how to go on.
func (p *program) showOperation(op *mgmtv1.Operation) error {
	p.operation = op
	if err := p.print(op, func(w io.Writer) { p.writeOperation(w, op) }); err != nil {
		return err
	}
	// What only a mirror has says in its message how to go on: how its units stand is not known.
	if isEnd(op.GetState()) && slices.Contains(changing, op.GetKind()) && op.GetHost() == "" {
		p.offerNext(&outcome{operation: op})
	}
	return nil
}

// writeOperation writes an operation with all its units.
func (p *program) writeOperation(w io.Writer, op *mgmtv1.Operation) {
	var l pairs
	l.add("id", op.GetId())
	l.add("kind", op.GetKind())
	l.add("state", stateWord(op.GetState()))
	l.add("created", p.when(op.GetCreateTime()))
	l.add("updated", p.when(op.GetUpdateTime()))
	l.add("schedule", op.GetSchedule())
	l.add("host", op.GetHost())
	l.add("changed something", yesNo(op.GetChanged()))
	l.addFacts(p, op)
	l.write(w)
	if len(op.GetUnits()) == 0 {
		return
	}
	columns := []string{"WORKLOAD CLUSTER", "STATE"}
	if len(op.GetPausedSince()) > 0 {
		columns = append(columns, "PAUSED SINCE")
	}
	t := newTable(columns...)
	for _, name := range unitNames(op) {
		row := []string{unitText(name), op.GetUnits()[name], ""}
		if since := op.GetPausedSince()[name]; since != nil {
			row[2] = p.when(since)
		}
		t.add(row[:len(columns)]...)
	}
	fmt.Fprintln(w)
	t.write(w)
}
