package main

import "github.com/spf13/cobra"

func newCatalog(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "catalog",
		Short: "Manage the catalog, which can be rebuilt",
		Long: `Manage the catalog: the index of snapshots, and the record of operations. The daemon
has one; standalone it is the file of --catalog.

The index can be rebuilt from the storage at any time.`,
	}, newCatalogCheck(p), newCatalogRebuild(p))
}
