package main

import "github.com/spf13/cobra"

func newOperation(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "operation",
		Short: "Show what ran and what runs; stop it, go on with it, undo it",
		Long: `List and show operations, which are the runs of snapshot, restore, move, verify and
prune; stop one, resume one that stopped, accept a workload cluster as it is, undo a
restore or a move; forget one.

Operations are recorded in the catalog: that of the daemon, or standalone the file of --catalog.`,
	}, newOperationList(p), newOperationShow(p), newOperationWatch(p), newOperationStop(p),
		newOperationResume(p), newOperationAccept(p), newOperationRollback(p),
		newOperationForget(p))
}

// operationArg is the argument that names an operation.
const operationArg = "the ID of an operation, the beginning of one, or \"latest\""
