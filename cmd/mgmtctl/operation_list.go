package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// defaultOperations is how many operations are listed without --limit: a schedule of every 30
// seconds makes 2,900 a day.
const defaultOperations = 100

// operationPageSize is how many operations one request of a long list asks for.
const operationPageSize = 500

// operationKinds are the values of --kind.
var operationKinds = []string{"snapshot", "restore", "move", "verify", "prune", "copy"}

// operationStateWords returns the values of --state.
func operationStateWords() (words []string) {
	for n := range len(mgmtv1.OperationState_name) {
		s := mgmtv1.OperationState(n)
		if s != mgmtv1.OperationState_OPERATION_STATE_UNSPECIFIED &&
			s != mgmtv1.OperationState_OPERATION_STATE_UNKNOWN {
			words = append(words, stateWord(s))
		}
	}
	return words
}

// operationListFlags are the flags of operation list.
type operationListFlags struct {
	limit         int
	all           bool
	kinds, states []string
}

func newOperationList(p *program) *cobra.Command {
	f := &operationListFlags{}
	cmd := &cobra.Command{
		Use:   "list [flags]",
		Short: "List operations",
		Long: `List the operations of the catalog, newest first: 100 of them, or as many as --limit says,
or --all. Standalone with --store it also lists the restores and moves of other hosts, of which the
store has a mirror; "mgmtctl operation resume" and "rollback" take them over. The state of one whose
newest record says that it runs, and is older than a minute, is "unknown": its host may be at work,
waiting or lost.

Operations that have ended are forgotten after 30 days, and those of schedules also beyond the
newest 10,000; never one that has work left.

Changes: nothing, except that operations of a process that died are marked as stopped.

Exit codes: 0 listed, also when there is none, and when the store does not answer: stderr then says
that those of other hosts are not listed; 1 other error; 2 usage; 11 catalog locked.`,
		Example: `  mgmtctl operation list --kind restore --kind move --all
  mgmtctl operation list --standalone --store /backup/mgmt --trusted-key signing.pub
  mgmtctl operation list --state failed -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.all && cmd.Flags().Changed("limit") {
				return usageError(cmd, "--all and --limit exclude each other")
			}
			if f.limit < 1 {
				return usageError(cmd, "--limit %d lists nothing", f.limit)
			}
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationList(ctx, p, c, *f)
			})
		},
	}
	cmd.Flags().IntVar(&f.limit, "limit", defaultOperations, "list at most `N` operations")
	cmd.Flags().BoolVar(&f.all, "all", false, "list all operations")
	addWords(cmd, &f.kinds, "kind", "KIND", "only operations of this kind", operationKinds)
	addWords(cmd, &f.states, "state", "STATE", "only operations in this state", operationStateWords())
	return cmd
}

// addWords adds a repeatable flag that takes one of some words.
func addWords(cmd *cobra.Command, values *[]string, name, what, text string, words []string) {
	cmd.Flags().Var(&checked{values, func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
		}
		return nil
	}, what}, name, text+" (repeatable): "+strings.Join(words, ", "))
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words,
		cobra.ShellCompDirectiveNoFileComp))
}

func runOperationList(ctx context.Context, p *program, c *connection, f operationListFlags) error {
	req := &mgmtv1.ListOperationsRequest{Kinds: f.kinds,
		Mirrored: p.standalone.enabled && (p.given("store") || p.configHas("store"))}
	for n := range len(mgmtv1.OperationState_name) {
		if s := mgmtv1.OperationState(n); slices.Contains(f.states, stateWord(s)) {
			req.States = append(req.States, s)
		}
	}
	resp, err := listOperations(ctx, c, req, f)
	if err != nil && req.GetMirrored() && ctx.Err() == nil {
		p.say("the operations of other hosts are not listed: %v", service.FromStatus(err))
		req.Mirrored, req.PageToken = false, ""
		resp, err = listOperations(ctx, c, req, f)
	}
	if err != nil {
		return err
	}
	switch n := len(resp.GetOperations()); {
	case n == 0:
		p.say("no operations")
	case resp.GetNextPageToken() != "":
		p.say("these are the newest %d; --all lists the older ones, too", n)
	}
	return p.print(resp, func(w io.Writer) {
		t := newTable("ID", "KIND", "STATE", "AGE", "SOURCE", "TARGET", "SNAPSHOT",
			"WORKLOAD CLUSTERS")
		for _, op := range resp.GetOperations() {
			t.add(op.GetId(), op.GetKind(), stateWord(op.GetState()), p.age(op.GetCreateTime()),
				op.GetSource(), op.GetTarget(), op.GetSnapshotId(), unitCounts(op))
		}
		t.write(w)
		for _, op := range resp.GetOperations() {
			if op.GetState() == mgmtv1.OperationState_OPERATION_STATE_UNKNOWN {
				p.operation = op
				p.say("%s: %s", op.GetId(), p.completeMessage(op.GetMessage(), op.GetHintKey()))
			}
		}
	})
}

// listOperations reads pages until there are as many operations as are wanted. The token of the
// result is that of the last page: there are more operations unless it is empty.
func listOperations(ctx context.Context, c *connection, req *mgmtv1.ListOperationsRequest,
	f operationListFlags) (*mgmtv1.ListOperationsResponse, error) {
	all := &mgmtv1.ListOperationsResponse{}
	for {
		req.PageSize = operationPageSize
		if !f.all {
			req.PageSize = int32(min(operationPageSize, f.limit-len(all.GetOperations())))
		}
		page, err := c.operations.ListOperations(ctx, req)
		if err != nil {
			return nil, err
		}
		all.Operations = append(all.Operations, page.GetOperations()...)
		all.NextPageToken = page.GetNextPageToken()
		if n := len(all.GetOperations()); !f.all && n >= f.limit {
			if n > f.limit { // a page also has operations that only a mirror has, or the server is older
				all.Operations = all.Operations[:f.limit]
				all.NextPageToken = all.GetOperations()[f.limit-1].GetId()
			}
			return all, nil
		}
		if req.PageToken = all.GetNextPageToken(); req.GetPageToken() == "" {
			return all, nil
		}
	}
}
