package main

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationAccept(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "accept ID|latest NAMESPACE/NAME",
		Short: "Accept the state of a workload cluster that failed the checks after its release",
		Long: `Accept the state of a workload cluster that a restore or a move released, and that
failed the checks after that: Machines came or went, an object differs, a condition is worse than on
the source, or somebody wrote to its source after the hand-over (changed-late). The checks are then
over for it. "mgmtctl operation resume ID" goes on: a restore can come to its end, and a move
retires the workload cluster on the source, with what was written there.

Accept it only when you know why the checks failed, and that its controllers do what you want.

Changes: the catalog, where the history of the operation records it. It cannot be taken back.
Does not change: any management cluster.

Exit codes: 0 accepted, also when it was before; 1 other error, such as no such operation; 2 usage,
such as a workload cluster that was not released; 11 the operation is running, or catalog locked.`,
		Example: `  mgmtctl operation accept latest team-a/web
  mgmtctl operation accept 1a2b team-a/web --standalone`,
		Args:              twoArgs(operationArg, "the workload cluster, NAMESPACE/NAME"),
		ValidArgsFunction: p.completeReleased,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWorkload(args[1]); err != nil {
				return usageError(cmd, "%v", err)
			}
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationAccept(ctx, p, c, args[0], args[1])
			})
		},
	}
}

func runOperationAccept(ctx context.Context, p *program, c *connection, id, unit string) error {
	resp, err := c.operations.AcceptUnit(ctx, &mgmtv1.AcceptUnitRequest{Id: id, Unit: unit})
	if err != nil {
		return err
	}
	op := resp.GetOperation()
	p.say("%s is accepted as it is; to go on with the operation:\n  %s", unit,
		p.commandLine("operation", "resume", op.GetId()))
	return p.print(op, func(w io.Writer) { p.writeOperation(w, op) })
}

// releasedUnits returns the units that an operator may accept, which were handed over or released.
func releasedUnits(op *mgmtv1.Operation) []string {
	var units []string
	for unit, state := range op.GetUnits() {
		if state == "released" || state == "handed-over" {
			units = append(units, unit)
		}
	}
	slices.Sort(units)
	return units
}

// completeReleased completes the name of an operation, then the workload clusters of it that were
// handed over or released.
func (p *program) completeReleased(cmd *cobra.Command, args []string, word string) ([]string,
	cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return p.completeOperations(cmd, args, word)
	case 1:
		return p.names(cmd, func(ctx context.Context, c *connection) ([]string, error) {
			resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: args[0],
				Kinds: changing})
			return releasedUnits(resp.GetOperation()), err
		}), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
