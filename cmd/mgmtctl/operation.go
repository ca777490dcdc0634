package main

import "github.com/spf13/cobra"

// nounOperation is the noun of the commands about operations.
const nounOperation = "operation"

func newOperation(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   nounOperation,
		Short: "Show what ran and what runs; stop it, go on with it, undo it",
		Long: `List and show operations, which are the runs of snapshot, restore, move, verify, prune
and copy; stop one, resume one that stopped, accept a workload cluster as it is, undo a
restore or a move; forget one.

Operations are recorded in the catalog: that of the daemon, or standalone the file of --catalog.

"latest" is the newest operation of any kind; a daemon also begins snapshots, verifications and
copies by itself. To resume, roll back and accept, "latest" is the newest move or restore that did
not end in pre-flight.`,
	}, newOperationList(p), newOperationShow(p), newOperationWatch(p), newOperationStop(p),
		newOperationResume(p), newOperationAccept(p), newOperationRollback(p),
		newOperationForget(p))
}

// changing are the kinds of operations that change management clusters.
var changing = []string{kindMove, kindRestore}

// operationArg is the argument that names an operation.
const operationArg = "the ID of an operation, the beginning of one, or \"latest\""
