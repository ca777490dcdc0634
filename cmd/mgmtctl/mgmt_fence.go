package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newMgmtFence(p *program) *cobra.Command {
	req := &mgmtv1.FenceMgmtRequest{Selection: &mgmtv1.Selection{}}
	var yes bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "fence [NAME] [flags]",
		Short: "Pause workload clusters that a management cluster lost, or is about to lose",
		Long: `Pause workload clusters on one management cluster, so that its controllers leave them
alone. NAME may be left out when there is only one.

Without a selection it fences what the management cluster lost: workload clusters that another
management cluster owns, by an ownership record of the store that a trusted key signed. mgmtd does
the same by itself when a management cluster comes back.
With --namespace, --workload, --selector or --all it fences what they name, with any owner: before
a restore from a source whose API server answers but whose controllers are dead.
With --lift it gives the pause back exactly as it was. It refuses that for what another management
cluster owns; what was fenced by an ownership record needs a record that names this one. With
--lift --workload it also lets the name of a workload cluster be used again that was moved away, or
whose Cluster somebody deleted.

Changes: on the management cluster it pauses Clusters, and objects of theirs that have a pause of
their own, and marks the Clusters with the annotation mgmtd.dev/fenced; the admission policy
mgmtd-moved keeps others from ending that. With --lift the reverse.
Does not change: machines, the store, and Clusters that a move or a restore holds.
It waits up to --wait until the controllers acknowledge the pause. It may run again.

Without --yes it shows what it would do and asks, which needs a terminal.
Standalone it needs --source-kubeconfig or --target-kubeconfig, one of them, or --config; and
--store and --trusted-key to read ownership records.

Exit codes: 0 fenced and acknowledged, or lifted; 1 other error, such as an unreachable management
cluster; 2 usage, or confirmation missing; 3 findings, and nothing was changed; 4 something was
changed, and something is not fenced, not acknowledged or not lifted; 10 store; 12 a trusted key
that is not one.`,
		Example: `  mgmtctl mgmt fence prod
  mgmtctl mgmt fence prod --all --yes
  mgmtctl mgmt fence prod --lift --workload team-a/web
  mgmtctl mgmt fence --standalone --source-kubeconfig prod.kubeconfig --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(cmd, "takes one argument, got also %q", args[1])
			}
			return nil
		},
		ValidArgsFunction: p.completeMgmt,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				req.Name = args[0]
			}
			s := req.GetSelection()
			if req.GetAll() && (len(s.GetNamespaces()) > 0 || len(s.GetWorkloads()) > 0 ||
				s.GetSelector() != "") {
				return usageError(cmd, "--all and a selection exclude each other")
			}
			if err := p.oneSide(cmd, req.GetName()); err != nil {
				return err
			}
			if err := p.consented(cmd, yes); err != nil {
				return err
			}
			if wait > 0 {
				req.Wait = durationpb.New(wait)
			}
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runMgmtFence(ctx, p, c, req, yes)
			})
		},
	}
	addLocation(cmd, &req.Location)
	addSelection(cmd, req.Selection, "fence")
	cmd.Flags().BoolVar(&req.All, "all", false, "fence everything, with any owner")
	cmd.Flags().BoolVar(&req.Lift, "lift", false, "give back the pause of what is fenced")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for acknowledgements (default 30s)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func runMgmtFence(ctx context.Context, p *program, c *connection, req *mgmtv1.FenceMgmtRequest,
	yes bool) error {
	if !yes {
		req.DryRun = true
		resp, err := c.mgmts.FenceMgmt(ctx, req)
		if err != nil {
			return err
		}
		req.DryRun = false
		// What a user has paused is marked as well, so that it stays paused.
		if n := len(resp.GetPaused()) + len(resp.GetAlready()) + len(resp.GetLifted()); n > 0 {
			p.writeFence(p.stderr, resp)
			question := fmt.Sprintf("Fence %d workload clusters on %s?", n, resp.GetMgmt().GetName())
			if req.GetLift() {
				question = fmt.Sprintf("Let %s reconcile %d workload clusters again?",
					resp.GetMgmt().GetName(), n)
			}
			if err := p.confirm(ctx, question); err != nil {
				return err
			}
		}
	}
	resp, err := c.mgmts.FenceMgmt(ctx, req)
	if err != nil {
		return err
	}
	for _, f := range resp.GetFindings() {
		p.completeHint(f)
	}
	if err := p.print(resp, func(w io.Writer) { p.writeFence(w, resp) }); err != nil {
		return err
	}
	if !slices.ContainsFunc(resp.GetFindings(), func(f *mgmtv1.Finding) bool {
		return f.GetSeverity() >= mgmtv1.Severity_SEVERITY_ERROR
	}) {
		return nil
	}
	if len(resp.GetPaused())+len(resp.GetLifted()) > 0 {
		return exit(service.ExitIncomplete)
	}
	return exit(service.ExitFindings)
}

// writeFence writes what was fenced, or would be.
func (p *program) writeFence(w io.Writer, resp *mgmtv1.FenceMgmtResponse) {
	t := newTable("WORKLOAD CLUSTER", "STATE")
	for _, list := range []struct {
		units []string
		state string
	}{{resp.GetPaused(), "paused"}, {resp.GetAlready(), "was paused before"},
		{resp.GetLifted(), "given back"}} {
		for _, unit := range list.units {
			t.add(unit, list.state)
		}
	}
	if len(resp.GetPaused())+len(resp.GetAlready())+len(resp.GetLifted()) == 0 {
		fmt.Fprintf(w, "nothing to do on management cluster %s\n", resp.GetMgmt().GetName())
	} else {
		t.write(w)
	}
	if len(resp.GetFindings()) > 0 {
		fmt.Fprintln(w)
		writeFindings(w, resp.GetFindings())
	}
}
