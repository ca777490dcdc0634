package main

import "github.com/spf13/cobra"

func newStore(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "store",
		Short: "Look after a store as a whole",
		Long: `Look after a store as a whole: the bucket with the snapshots of one or several management
clusters, and its records.`,
	}, newStoreCopy(p), newStoreList(p), newStoreRepair(p), newStoreStats(p))
}
