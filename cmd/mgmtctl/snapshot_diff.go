package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSnapshotDiff(p *program) *cobra.Command {
	req := &mgmtv1.DiffSnapshotsRequest{}
	cmd := &cobra.Command{
		Use:   "diff ID|latest {ID|latest|--live} [flags]",
		Short: "Compare two snapshots, or one with the live source, object by object",
		Long: `Compare a snapshot with a newer one, or with the live source. Each object that differs
is listed as added, removed, replaced (deleted and created again) or changed, with the fields that
changed. Objects that were written without a change are counted. Values are never shown, because
they may be secrets.

Changes: nothing.

Standalone it needs --store and --identity (not for a plain store), and with --live also
--source-kubeconfig.

Exit codes: 0 compared, whether or not they differ; 1 other error, such as no such snapshot;
2 usage; 10 store; 12 identity or signature.`,
		Example: `  mgmtctl snapshot diff 1a2b latest --identity identity.txt
  mgmtctl snapshot diff latest --live --standalone --store /backup/mgmt --identity identity.txt \
      --source-kubeconfig prod.kubeconfig`,
		Args: func(cmd *cobra.Command, args []string) error {
			want := 2
			if req.GetLive() {
				want = 1
			}
			switch {
			case len(args) > want:
				return usageError(cmd, "takes two snapshots, or one and --live")
			case len(args) < want:
				return usageError(cmd, "argument missing: %s; two of them, or one and --live", snapshotArg)
			}
			return nil
		},
		ValidArgsFunction: completeLatest,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.From = args[0]
			needs := []need{needStore, needIdentity}
			if req.GetLive() {
				needs = append(needs, needSource)
				p.standalone.sourceName = req.GetSource()
			} else {
				req.To = args[1]
			}
			return p.withServer(cmd, needs, func(ctx context.Context, c *connection) error {
				return runSnapshotDiff(ctx, p, c, req)
			})
		},
	}
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	addNamespaces(cmd, &req.Namespaces, "only this namespace")
	cmd.Flags().BoolVar(&req.Live, "live", false, "compare with the live source")
	return cmd
}

func runSnapshotDiff(ctx context.Context, p *program, c *connection,
	req *mgmtv1.DiffSnapshotsRequest) error {
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	stream, err := c.snapshots.DiffSnapshots(ctx, req)
	if err != nil {
		return err
	}
	all, err := receiveAll(stream)
	if err != nil {
		return err
	}
	objects, err := rawList(all)
	if err != nil {
		return err
	}
	return p.print(diffDocument{objects}, func(w io.Writer) { writeDiff(w, all) })
}

// diffDocument is the result for machines.
type diffDocument struct {
	Objects []json.RawMessage `json:"objects"`
}

func writeDiff(w io.Writer, objects []*mgmtv1.DiffSnapshotsResponse) {
	count := map[mgmtv1.Difference]int{}
	t := newTable("DIFFERENCE", "KIND", "NAMESPACE", "NAME", "WORKLOAD CLUSTER", "FIELDS")
	for _, o := range objects {
		if count[o.GetDifference()]++; o.GetDifference() != mgmtv1.Difference_DIFFERENCE_TOUCHED {
			t.add(word(o.GetDifference(), "DIFFERENCE_"), kindText(o.GetRef()), o.GetRef().GetNamespace(),
				o.GetRef().GetName(), o.GetUnit(), strings.Join(o.GetPaths(), ", "))
		}
	}
	touched := count[mgmtv1.Difference_DIFFERENCE_TOUCHED]
	if len(objects) > touched {
		t.write(w)
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%d added, %d removed, %d replaced, %d changed; %d written to without a change\n",
		count[mgmtv1.Difference_DIFFERENCE_ADDED],
		count[mgmtv1.Difference_DIFFERENCE_REMOVED], count[mgmtv1.Difference_DIFFERENCE_REPLACED],
		count[mgmtv1.Difference_DIFFERENCE_CHANGED], touched)
}
