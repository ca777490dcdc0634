package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newCatalogRebuild(p *program) *cobra.Command {
	req := &mgmtv1.RebuildCatalogRequest{}
	cmd := &cobra.Command{
		Use:   "rebuild [flags]",
		Short: "Rebuild the index of snapshots from the storage",
		Long: `Rebuild the index of snapshots from the envelopes in the storage: of all storage
locations of the daemon, or of the one that --location names. Snapshots that are no longer in the
storage are dropped from the index.

Changes: the index in the catalog.
Does not change: operations and the storage. It may run twice.

Standalone it needs --store.

Exit codes: 0 rebuilt, also when envelopes are damaged, which are listed; 1 other error; 2 usage;
10 store; 11 catalog locked.`,
		Example: `  mgmtctl catalog rebuild
  mgmtctl catalog rebuild --standalone --store /backup/mgmt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				return runCatalogRebuild(ctx, p, c, req)
			})
		},
	}
	cmd.Flags().StringVar(&req.Location, "location", "", "only this storage location of the "+
		"daemon's config, by its `NAME`")
	return cmd
}

func runCatalogRebuild(ctx context.Context, p *program, c *connection,
	req *mgmtv1.RebuildCatalogRequest) error {
	resp, err := c.catalog.RebuildCatalog(ctx, req)
	if err != nil {
		return err
	}
	return p.print(resp, func(w io.Writer) {
		t := newTable("LOCATION", "SNAPSHOTS", "ADDED", "DROPPED", "DAMAGED")
		damaged := newTable("LOCATION", "DAMAGED")
		for _, l := range resp.GetLocations() {
			t.add(l.GetLocation(), number(l.GetSnapshots()), number(l.GetAdded()), number(l.GetDropped()),
				number(int64(len(l.GetDamaged()))))
			for _, key := range l.GetDamaged() {
				damaged.add(l.GetLocation(), key)
			}
		}
		t.write(w)
		if len(damaged.rows) > 1 {
			fmt.Fprintln(w)
			damaged.write(w)
		}
	})
}
