package main

import "github.com/spf13/cobra"

func newCatalog(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "catalog",
		Short: "Look after the catalog, which is disposable",
		Long: `Look after the catalog: the index of snapshots, and the record of operations. The daemon has one, and standalone it is the file of --catalog.

The index can be made anew from the storage at any time.`,
	}, newCatalogRebuild(p))
}
