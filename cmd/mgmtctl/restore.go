package main

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newRestore(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "restore",
		Short: "Bring workload clusters of a snapshot under a target management cluster",
		Long: `Bring workload clusters of a snapshot under the control of a target management
cluster.

Objects are created paused, owners first, verified, and released last. Read the plan before you run
it.`,
	}, newRestorePlan(p), newRestoreRun(p), newRestoreRelease(p))
}

// restoreFlags are the flags that decide a plan; plan and run share them.
type restoreFlags struct {
	spec          *mgmtv1.RestoreSpec
	at            moment
	managedFields managedFields
	modifiers     modifiersFlag
}

// restoreFlagNames are the flags that a plan already contains.
var restoreFlagNames = []string{"source", "snapshot", "at", "scope", "at-least-sequence",
	"target", "namespace", "workload", "selector", "source-is-gone", "force", "no-release",
	"drop-owner", "accept-difference",
	"managed-fields", "location", "include-unowned", "renew-kubeconfigs"}

func newRestoreFlags(cmd *cobra.Command) *restoreFlags {
	spec := &mgmtv1.RestoreSpec{Selection: &mgmtv1.Selection{}}
	f := &restoreFlags{spec: spec}
	set := cmd.Flags()
	set.StringVar(&spec.Snapshot, "snapshot", "", "`ID` of the snapshot, the beginning of one, or "+
		"\"latest\" (default latest)")
	addScope(cmd, &spec.Scope)
	set.Int64Var(&spec.AtLeastSequence, "at-least-sequence", 0, "refuse a snapshot with a lower `NUMBER`: "+
		"give the one that metric mgmtd_snapshot_sequence had last")
	set.Var(&f.at, "at", "the newest snapshot not after this time, such as 2026-03-01T14:30:00Z")
	addSource(cmd, &spec.Source)
	set.StringVar(&spec.Target, "target", "", "`NAME` of the target management cluster; needed "+
		"only when there are several")
	addLocation(cmd, &spec.Location)
	addSelection(cmd, spec.Selection, "restore")
	addDropOwners(cmd, &spec.DropOwners)
	addAcceptDifferences(cmd, &spec.AcceptDifferences)
	addManagedFields(cmd, &f.managedFields)
	set.BoolVar(&spec.SourceIsGone, "source-is-gone", false, "your word that no controller of the "+
		"source runs any more")
	addForce(cmd, &spec.ForceCodes, object.Restores)
	set.BoolVar(&spec.IncludeUnowned, "include-unowned", false, "restore objects, too, that name a "+
		"Cluster which is not restored")
	addRenewKubeconfigs(cmd, &spec.RenewKubeconfigs)
	f.modifiers.register(cmd)
	set.BoolVar(&spec.NoRelease, "no-release", false, "leave everything on the target paused")
	return f
}

func addRenewKubeconfigs(cmd *cobra.Command, renew *bool) {
	cmd.Flags().BoolVar(renew, "renew-kubeconfigs", false, "renew expired kubeconfigs of workload "+
		"clusters before the release, from the CA of the snapshot; those that users provided stay as "+
		"they are")
}

// read returns the work that the flags ask for.
func (f *restoreFlags) read(cmd *cobra.Command) (*restoreWork, error) {
	if !f.at.IsZero() {
		if f.spec.GetSnapshot() != "" {
			return nil, usageError(cmd, "--at and --snapshot exclude each other")
		}
		f.spec.At = timestamppb.New(f.at.Time)
	}
	f.spec.ManagedFields = f.managedFields.request()
	modifiers, err := f.modifiers.read()
	return &restoreWork{spec: f.spec, modifiers: modifiers}, err
}

// restoreWork is a requested restore.
type restoreWork struct {
	spec      *mgmtv1.RestoreSpec
	identity  []byte
	modifiers []byte
}

func (r *restoreWork) kind() string { return kindRestore }

func (r *restoreWork) request(ctx context.Context, c *connection) (*plan, error) {
	stream, err := c.restores.PlanRestore(ctx, &mgmtv1.PlanRestoreRequest{Spec: r.spec,
		Identity: r.identity, ResourceModifiers: r.modifiers})
	if err != nil {
		return nil, err
	}
	return receivePlan(stream, func(piece *mgmtv1.PlanRestoreResponse) (header, bool) {
		return restoreHeader{piece.GetHeader()}, piece.GetHeader() != nil
	})
}

func (r *restoreWork) begin(ctx context.Context, c *connection, tuning *mgmtv1.RestoreTuning,
	digest string) (*mgmtv1.Operation, error) {
	resp, err := c.restores.RunRestore(ctx, &mgmtv1.RunRestoreRequest{Spec: r.spec, Tuning: tuning,
		Identity: r.identity, PlanDigest: digest, ResourceModifiers: r.modifiers})
	return resp.GetOperation(), err
}
