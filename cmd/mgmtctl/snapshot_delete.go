package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSnapshotDelete(p *program) *cobra.Command {
	req := &mgmtv1.DeleteSnapshotsRequest{}
	var yes bool
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "delete ID... [flags]",
		Short: "Delete snapshots from the store",
		Long: `Delete snapshots from the store, and then all content that no snapshot names and that
is older than the grace, as a prune does. Without --yes it asks, which needs a terminal.

It refuses, and deletes none of them, when one is the newest of its scope or the newest verified
one, is pinned, or is needed by an operation; also until a newer snapshot is older than the grace,
because a running snapshot may build on this one. An envelope that is damaged, or that no trusted
key signed, is named by its key, with --damaged. A snapshot that the storage retains (Object Lock)
stays until its retention has ended; the others that were named are deleted.

Changes: deletes from the store, for good.
Does not change: other snapshots.

Standalone it needs --store and --signing-key (or --plain).

Exit codes: 0 deleted; 1 other error, such as no such snapshot; 2 usage, or confirmation missing;
3 refused, or content had to stay, and nothing was deleted; 4 something was deleted and work is
left; 10 store; 11 catalog locked, or a prune is running; 12 signing key; 130 interrupted before any
change.`,
		Example: `  mgmtctl snapshot delete 1a2b3c4d5e6f --standalone --store /backup/mgmt \
      --signing-key signing.key
  mgmtctl snapshot delete --damaged \
      snapshots/8f14e45f-ea2a-4b7c-9d0e-1c2b3a4d5e6f/20260102T150405.000Z-1a2b3c4d5e6f.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "argument missing: the IDs of snapshots, or the beginnings of some")
			}
			return nil
		},
		ValidArgsFunction: p.completeSnapshots,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.Ids = args
			if req.Grace, err = checkGrace(cmd, grace); err != nil {
				return err
			}
			if err := p.check(cmd, needsOfPrune); err != nil {
				return err
			}
			if err := p.consented(cmd, yes); err != nil {
				return err
			}
			return p.withServer(cmd, needsOfPrune, func(ctx context.Context, c *connection) error {
				return runSnapshotDelete(ctx, p, c, req, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&req.Damaged, "damaged", false, "delete what is of no use: envelopes that "+
		"are damaged, or that no trusted key signed")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	addGrace(cmd, &grace)
	addSource(cmd, &req.Source)
	addLocation(cmd, &req.Location)
	return cmd
}

func runSnapshotDelete(ctx context.Context, p *program, c *connection,
	req *mgmtv1.DeleteSnapshotsRequest, yes bool) error {
	if !yes {
		if err := p.confirm(ctx, fmt.Sprintf("Delete %s from the store, for good: %s?",
			count(len(req.GetIds()), "snapshot"), strings.Join(req.GetIds(), ", "))); err != nil {
			return err
		}
	}
	return p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation, error) {
		resp, err := c.snapshots.DeleteSnapshots(ctx, req)
		return resp.GetOperation(), err
	})
}
