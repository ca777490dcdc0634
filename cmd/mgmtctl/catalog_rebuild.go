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
storage are dropped from the index. Restores and moves that the catalog does not have, but the
storage has a mirror of, are imported; unless the storage is not encrypted, that needs --identity.
A daemon remembers which store is at a place, and opens no other one there: after a rebuild it is
the one that is there now.

Changes: the index in the catalog, and its operations.
Does not change: operations that the catalog has, and the storage. It may run twice.

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
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	resp, err := c.catalog.RebuildCatalog(ctx, req)
	if err != nil {
		return err
	}
	for _, l := range resp.GetLocations() {
		for _, id := range l.GetImported() {
			p.say("operation %s was imported from the store; to show it:\n  %s", id,
				p.commandLine("operation", "show", id))
		}
		if n := len(l.GetNeedIdentity()); n > 0 {
			p.say("%d operations are in the store only, the first of them %s; to import them, name the "+
				"identity with --identity", n, l.GetNeedIdentity()[0])
		}
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
