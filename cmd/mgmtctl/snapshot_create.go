package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSnapshotCreate(p *program) *cobra.Command {
	req := &mgmtv1.CreateSnapshotRequest{}
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "create [flags]",
		Short: "Take a snapshot of a management cluster",
		Long: `Take a snapshot of a management cluster: all its Cluster API objects as of one
resourceVersion, and the Secrets, ConfigMaps and Namespaces that they need.

Changes: writes a new snapshot to the store, and makes the store when there is none. The envelope is
written last: a run that dies leaves no snapshot, only data that nothing names. Content that has not
changed since the parent snapshot is reused, unless --full is given.
Does not change: the source is only read, and never paused; older snapshots are not changed.

With --selector it holds only the workload clusters whose Cluster has the labels, in all namespaces
or in those of --namespace: each whole, with the shared objects that it needs, and nothing else. A
selector that selects none gives an empty snapshot and the warning nothing-selected. Snapshots of
another selection are another scope: retention counts them apart.

Standalone it needs --store, --source-kubeconfig, and --recipient and --signing-key (or --plain).

Exit codes: 0 snapshot taken; 1 other error, such as an unreachable source; 2 usage; 4 stopped with
something written; 10 store; 11 catalog locked; 12 signing key; 130 interrupted with nothing
written.`,
		Example: `  mgmtctl snapshot create --standalone --store /backup/mgmt \
      --source-kubeconfig prod.kubeconfig --recipient age1... --signing-key signing.key
  mgmtctl snapshot create --namespace team-a --namespace team-b
  mgmtctl snapshot create --selector 'tier=gold,region in (eu,us)'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ttl > 0 {
				req.Ttl = durationpb.New(ttl)
			}
			p.standalone.sourceName = req.GetSource()
			return p.withServer(cmd, needsOfSnapshot, func(ctx context.Context, c *connection) error {
				return runSnapshotCreate(ctx, p, c, req)
			})
		},
	}
	cmd.Flags().BoolVar(&req.Full, "full", false, "write everything, also what is stored already; "+
		"for a store that has lost data")
	cmd.Flags().Var(&ageFlag{&ttl}, "ttl", "retain it for at least this long, 30d or 12h; after "+
		"that prunes remove it unless a rule keeps it")
	addSource(cmd, &req.Source)
	addLocation(cmd, &req.Location)
	addNamespaces(cmd, &req.Namespaces, "capture only this namespace and what it needs from others")
	addSelector(cmd, &req.Selector, "capture only the workload clusters whose Cluster has these "+
		"labels, with what they need")
	return cmd
}

func runSnapshotCreate(ctx context.Context, p *program, c *connection,
	req *mgmtv1.CreateSnapshotRequest) error {
	return p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation, error) {
		resp, err := c.snapshots.CreateSnapshot(ctx, req)
		return resp.GetOperation(), err
	})
}
