package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSnapshotPin(p *program) *cobra.Command {
	req := &mgmtv1.PinSnapshotRequest{}
	cmd := &cobra.Command{
		Use:   "pin ID|latest [flags]",
		Short: "Protect a snapshot from removal",
		Long: `Protect a snapshot from prunes and from "snapshot delete", whatever the rules and its
expiry, until it is unpinned. The pin is stored in the store, signed.

Changes: writes the pin. It may be run twice; the first reason stays.
Does not change: the snapshot.

Standalone it needs --store and --signing-key (or --plain).

Exit codes: 0 pinned; 1 other error, such as no such snapshot; 2 usage; 10 store; 12 signing key.`,
		Example:           `  mgmtctl snapshot pin latest --reason "before the upgrade"`,
		Args:              oneArg(snapshotArg),
		ValidArgsFunction: p.completeSnapshot,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id = args[0]
			return p.withServer(cmd, needsOfPrune, func(ctx context.Context, c *connection) error {
				resp, err := c.snapshots.PinSnapshot(ctx, req)
				if err != nil {
					return err
				}
				return p.print(resp, func(w io.Writer) { fmt.Fprintln(w, "pinned", resp.GetKey()) })
			})
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "`TEXT` that says why; everybody who can read "+
		"the store can read it")
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	return cmd
}

func newSnapshotUnpin(p *program) *cobra.Command {
	req := &mgmtv1.UnpinSnapshotRequest{}
	cmd := &cobra.Command{
		Use:   "unpin ID|latest [flags]",
		Short: "Take the pin of a snapshot away",
		Long: `Remove the pin of a snapshot: from then on only the rules and its expiry retain it. A
snapshot that is not pinned is not changed.

Changes: deletes the pin.
Does not change: the snapshot.

Standalone it needs --store.

Exit codes: 0 no longer pinned; 1 other error, such as no such snapshot, or a pin that the storage
retains; 2 usage; 10 store.`,
		Example:           `  mgmtctl snapshot unpin 1a2b3c4d5e6f`,
		Args:              oneArg(snapshotArg),
		ValidArgsFunction: p.completeSnapshot,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id = args[0]
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				resp, err := c.snapshots.UnpinSnapshot(ctx, req)
				if err != nil {
					return err
				}
				return p.print(resp, func(w io.Writer) { fmt.Fprintln(w, "not pinned", resp.GetKey()) })
			})
		},
	}
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	return cmd
}
