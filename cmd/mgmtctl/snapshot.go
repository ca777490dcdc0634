package main

import "github.com/spf13/cobra"

func newSnapshot(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "snapshot",
		Short: "Take, list, show, verify and compare snapshots, and look inside",
		Long: `Take snapshots of a management cluster, and list, show, verify and compare those in the store. "ls"
and "cat" show the objects in one, "extract" writes them to files, "find" finds the snapshots that
hold an object.

A snapshot never pauses or changes its source. Nothing in the store is ever overwritten; only
delete, unpin and "mgmtctl prune" remove anything.`,
	}, newSnapshotCreate(p), newSnapshotList(p), newSnapshotShow(p), newSnapshotCoverage(p),
		newSnapshotVerify(p), newSnapshotDiff(p), newSnapshotGraph(p), newSnapshotLs(p),
		newSnapshotCat(p), newSnapshotExtract(p), newSnapshotFind(p),
		newSnapshotPin(p), newSnapshotUnpin(p), newSnapshotDelete(p))
}

// snapshotArg is the argument that names a snapshot.
const snapshotArg = "the ID of a snapshot, the beginning of one, or \"latest\""

func completeLatest(_ *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"latest"}, cobra.ShellCompDirectiveNoFileComp
}
