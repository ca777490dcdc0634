package main

import (
	"context"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// needsOfPrune has the signing key, because the record of removed snapshots is signed.
var needsOfPrune = []need{needStore, needSigningKey}

func newPruneRun(p *program) *cobra.Command {
	var flags *pruneFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Remove what no rule keeps",
		Long: `Remove the snapshots that no rule retains, and then all content that no snapshot names
and that is older than the grace. Without --yes it shows the plan and asks, which needs a terminal;
when by then other snapshots would be removed, it removes none. Through a daemon the rules are those
of its config unless a --keep flag is given.

Changes: deletes from the store, for good. A signed record of the removed snapshots is written
first. What the storage retains (Object Lock) stays and is reported; a later prune removes it.
Does not change: snapshots that are retained stay whole. It may run while snapshots are taken, and
be interrupted or die at any moment: the next prune removes the rest. When an envelope cannot be
read, no content is removed, because that snapshot may need it.

Standalone it needs --store and --signing-key (or --plain).

Exit codes: 0 removed, or nothing to remove; 1 other error; 2 usage, or confirmation missing;
3 envelopes cannot be read, or the plan changed, and nothing was removed; 4 something was removed
and content had to stay, or it was interrupted; 10 store; 11 catalog locked, or a prune is running;
12 signing key; 130 interrupted before any change.`,
		Example: `  mgmtctl prune run --standalone --store /backup/mgmt --signing-key signing.key \
      --keep-last 10 --keep-daily 30
  mgmtctl prune run --yes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.read(cmd); err != nil {
				return err
			}
			if err := p.check(cmd, needsOfPrune); err != nil {
				return err
			}
			if err := p.consented(cmd, yes); err != nil {
				return err
			}
			return p.withServer(cmd, needsOfPrune, func(ctx context.Context, c *connection) error {
				return runPrune(ctx, p, c, flags.spec, yes)
			})
		},
	}
	flags = newPruneFlags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func runPrune(ctx context.Context, p *program, c *connection, spec *mgmtv1.PruneSpec,
	yes bool) error {
	approved := "" // with --yes, what the rules say when it begins
	if !yes {
		pl, err := p.requestPrunePlan(ctx, c, spec)
		if err != nil {
			return err
		}
		pl.write(p.stderr, p)
		if err := p.confirm(ctx, "Delete this from the store, for good?"); err != nil {
			return err
		}
		approved = pl.summary.GetDigest()
	}
	return p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation, error) {
		resp, err := c.prunes.RunPrune(ctx, &mgmtv1.RunPruneRequest{Spec: spec,
			ApprovedDigest: approved})
		return resp.GetOperation(), err
	})
}
