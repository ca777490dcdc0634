package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationForget(p *program) *cobra.Command {
	req := &mgmtv1.ForgetOperationsRequest{}
	var yes bool
	cmd := &cobra.Command{
		Use:   "forget ID... [flags]",
		Short: "Delete operations from the catalog, and give up what they have left to do",
		Long: `Delete operations from the catalog, all that are named or none. Without --yes it asks, which
needs a terminal. Operations that have ended are forgotten by themselves after some time; this is
for one that you do not want to finish.

A restore or a move that has work left is forgotten only with --force: it can then be neither
resumed nor rolled back, prunes remove its snapshot when its time has come, and its mirror in the
store ends, so that other hosts cannot take it over. Each thing that is given up is a finding, with
the code that gives it up.

Changes: the catalog; the mirror of the operation in the store gets its last record.
Does not change: any management cluster. What the operation paused stays paused, what it created
stays, and so does what it wrote about ownership.

Standalone it needs --store and --signing-key for an operation that has a mirror.

Exit codes: 0 forgotten; 1 other error, such as no such operation; 2 usage, or confirmation missing;
3 findings of severity error, and nothing was forgotten; 10 store; 11 it is running, or catalog
locked; 12 signing key.`,
		Example: `  mgmtctl operation forget 1a2b3c4d5e6f
  mgmtctl operation forget 1a2b --force work-left --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "argument missing: the IDs of operations, or the beginnings of some")
			}
			return nil
		},
		ValidArgsFunction: p.completeOperationList,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Ids = args
			if err := p.check(cmd, nil); err != nil {
				return err
			}
			if err := p.consented(cmd, yes); err != nil {
				return err
			}
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationForget(ctx, p, c, req, yes)
			})
		},
	}
	addForce(cmd, &req.ForceCodes, object.Forgets)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func runOperationForget(ctx context.Context, p *program, c *connection,
	req *mgmtv1.ForgetOperationsRequest, yes bool) error {
	if !yes {
		if err := p.confirm(ctx, fmt.Sprintf("Forget %s, for good: %s?",
			count(len(req.GetIds()), "operation"), strings.Join(req.GetIds(), ", "))); err != nil {
			return err
		}
	}
	resp, err := c.operations.ForgetOperations(ctx, req)
	if err != nil {
		return err
	}
	for _, f := range resp.GetFindings() {
		p.completeHint(f)
	}
	err = p.print(resp, func(w io.Writer) {
		for _, op := range resp.GetForgotten() {
			fmt.Fprintf(w, "forgotten: %s, %s, %s\n", op.GetId(), op.GetKind(), stateWord(op.GetState()))
		}
		writeFindings(w, resp.GetFindings())
	})
	if err == nil && len(resp.GetForgotten()) == 0 {
		p.say("nothing was forgotten")
		return exit(service.ExitFindings)
	}
	return err
}
