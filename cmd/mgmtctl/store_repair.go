package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newStoreRepair(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "repair",
		Short: "Bring back what somebody hid or wrote over in a bucket with versions",
		Long: `Bring back what somebody hid with delete markers, or wrote over, in a bucket with versions:
snapshots, what they need, mgmtd.json, and the records of owners, pins, verifies and prunes. A
version counts only when it is proven to be the right one: by the hash in its name, or by the
signature of a trusted key. A directory has no versions.`,
	}, newStoreRepairPlan(p), newStoreRepairRun(p))
}

func newStoreRepairPlan(p *program) *cobra.Command {
	var location string
	cmd := &cobra.Command{
		Use:   "plan [flags]",
		Short: "Show what a repair would bring back",
		Long: `List the keys of a store that a delete marker hides or that were overwritten, with what a run
would do: "possible" it brings an older version back; "pruned" a record says that a prune removed
the snapshot, so it stays away; "lost" no version is proven to be the right one.

Changes: nothing. It lists all versions in the bucket, and reads those of keys with several.

Standalone it needs --store, and --trusted-key for all but packs, shards and trees.

Exit codes: 0 nothing is hidden or overwritten; 1 other error; 2 usage; 3 something is; 10 store;
12 a trusted key that is not one.`,
		Example: `  mgmtctl store repair plan --standalone --store s3://bucket/prefix --trusted-key signing.pub
  mgmtctl store repair plan -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				r, err := planRepair(ctx, p, c, location)
				if err != nil {
					return err
				}
				if err := r.print(p); err != nil || len(r.keys) == 0 {
					return err
				}
				return exit(service.ExitFindings)
			})
		},
	}
	addLocation(cmd, &location)
	return cmd
}

func newStoreRepairRun(p *program) *cobra.Command {
	var location string
	var yes bool
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Bring back what was hidden or overwritten",
		Long: `Bring back the versions that "store repair plan" lists as possible. The delete marker of a key is
removed where the credentials allow it ("undeleted"). Otherwise the right version is written on top
once more ("copied"). Without --yes it shows the plan and asks, which needs a terminal.

Changes: writes to the store. It may be interrupted and run again.
Does not change: no version is deleted, and no snapshot comes back that a prune removed. Versions of
somebody else stay below, as evidence. Run "mgmtctl catalog rebuild" afterwards.

Standalone it needs --store, and --trusted-key for all but packs, shards and trees.

Exit codes: 0 all is brought back, or nothing was to; 1 other error; 2 usage, or confirmation
missing; 3 nothing was brought back and something is lost; 4 something was brought back and
something is lost or failed; 10 store; 12 a trusted key that is not one; 130 interrupted.`,
		Example: `  mgmtctl store repair run --standalone --store s3://bucket/prefix --trusted-key signing.pub
  mgmtctl store repair run --yes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.consented(cmd, yes); err != nil {
				return err
			}
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				return runStoreRepair(ctx, p, c, location, yes)
			})
		},
	}
	addLocation(cmd, &location)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// repairList is a plan or a run, collected from its stream.
type repairList struct {
	summary *mgmtv1.RepairSummary
	keys    []*mgmtv1.RepairKey
}

func planRepair(ctx context.Context, p *program, c *connection, location string) (*repairList,
	error) {
	stream, err := c.repairs.PlanRepair(ctx, &mgmtv1.PlanRepairRequest{Location: location})
	if err != nil {
		return nil, err
	}
	return receiveRepair(p, stream)
}

// receiveRepair reads a stream to its end, and shows its summaries as progress.
func receiveRepair[P any, M interface {
	*P
	GetSummary() *mgmtv1.RepairSummary
	GetKey() *mgmtv1.RepairKey
}](p *program, stream grpc.ServerStreamingClient[P]) (*repairList, error) {
	progress := p.newProgress()
	defer progress.end()
	r := &repairList{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		m := M(resp)
		if key := m.GetKey(); key != nil {
			r.keys = append(r.keys, key)
		}
		if summary := m.GetSummary(); summary != nil {
			if r.summary != nil { // not in a small store
				progress.show(&mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_PROGRESS,
					Progress: "keys looked at", Done: summary.GetExamined()})
			}
			r.summary = summary
		}
	}
}

func runStoreRepair(ctx context.Context, p *program, c *connection, location string,
	yes bool) error {
	if !yes {
		plan, err := planRepair(ctx, p, c, location)
		if err != nil {
			return err
		}
		plan.write(p.stderr, p)
		if err := p.confirm(ctx, "Bring this back?"); err != nil {
			return err
		}
	}
	stream, err := c.repairs.RunRepair(ctx, &mgmtv1.RunRepairRequest{Location: location})
	if err != nil {
		return err
	}
	r, err := receiveRepair(p, stream)
	if err != nil {
		return err
	}
	if err := r.print(p); err != nil {
		return err
	}
	back := r.count(mgmtv1.RepairState_REPAIR_STATE_UNDELETED, mgmtv1.RepairState_REPAIR_STATE_COPIED)
	left := r.count(mgmtv1.RepairState_REPAIR_STATE_LOST, mgmtv1.RepairState_REPAIR_STATE_FAILED)
	switch {
	case left == 0:
		return nil
	case back == 0:
		return exit(service.ExitFindings)
	}
	return exit(service.ExitIncomplete)
}

func (r *repairList) count(states ...mgmtv1.RepairState) (n int) {
	for _, k := range r.keys {
		for _, s := range states {
			if k.GetState() == s {
				n++
			}
		}
	}
	return n
}

func (r *repairList) print(p *program) error {
	var d struct {
		Summary json.RawMessage   `json:"summary"`
		Keys    []json.RawMessage `json:"keys"`
	}
	var err error
	if d.Summary, err = rawJSON(r.summary); err == nil {
		d.Keys, err = rawList(r.keys)
	}
	if err != nil {
		return err
	}
	return p.print(d, func(w io.Writer) { r.write(w, p) })
}

func (r *repairList) write(w io.Writer, p *program) {
	if !r.summary.GetVersioned() {
		fmt.Fprintln(w, "the store has no versions: what was deleted or overwritten cannot be "+
			"brought back")
		return
	}
	if len(r.keys) == 0 {
		fmt.Fprintf(w, "nothing is hidden or overwritten; looked at %s\n",
			count(r.summary.GetExamined(), "key"))
		return
	}
	t := newTable("KEY", "WHAT", "VERSIONS", "GOOD VERSION", "STATE", "WHY")
	for _, k := range r.keys {
		what, good := "overwritten", ""
		if k.GetHidden() {
			what = "hidden"
		}
		if k.GetGoodTime().IsValid() {
			good = p.when(k.GetGoodTime())
		}
		t.add(k.GetKey(), what, number(k.GetVersions()), good, word(k.GetState(), "REPAIR_STATE_"),
			k.GetReason())
	}
	t.write(w)
}
