package main

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newMgmtList(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List management clusters, and whether each answers",
		Long: `List the management clusters that requests can name, and whether each answers. -o json
also has their providers.

Changes: nothing.

Exit codes: 0 listed, also those that do not answer; 1 other error, such as an unreachable daemon;
2 usage.`,
		Example: `  mgmtctl mgmt list
  mgmtctl mgmt list --standalone --source-kubeconfig prod.kubeconfig \
      --target-kubeconfig new.kubeconfig`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runMgmtList(ctx, p, c)
			})
		},
	}
}

func runMgmtList(ctx context.Context, p *program, c *connection) error {
	resp, err := c.mgmts.ListMgmts(ctx, &mgmtv1.ListMgmtsRequest{})
	if err != nil {
		return err
	}
	if len(resp.GetMgmts()) == 0 {
		p.say("no management clusters")
	}
	return p.print(resp, func(w io.Writer) {
		t := newTable("NAME", "UID", "KUBERNETES", "WORKLOAD CLUSTERS", "PROVIDERS", "STATUS")
		for _, m := range resp.GetMgmts() {
			workloads, providers := "", ""
			if m.GetError() == "" {
				workloads, providers = number(m.GetWorkloadClusters()), number(int64(len(m.GetProviders())))
			}
			t.add(m.GetName(), m.GetUid(), m.GetKubernetesVersion(), workloads, providers,
				cmp.Or(m.GetError(), "answers"))
		}
		t.write(w)
	})
}
