package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newMove(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "move",
		Short: "Move workload clusters from one living management cluster to another",
		Long: `Move workload clusters from one management cluster to another while both live.

At no moment do both reconcile a workload cluster. Read the plan before you run it.`,
	}, newMovePlan(p), newMoveRun(p))
}

// moveFlags are the flags that decide a plan; plan and run share them.
type moveFlags struct {
	spec          *mgmtv1.MoveSpec
	managedFields managedFields
	modifiers     modifiersFlag
}

// moveFlagNames are the flags that a plan already contains.
var moveFlagNames = []string{"source", "target", "location", "namespace", "workload", "selector",
	"drop-owner", "accept-difference", "managed-fields", "force", "no-fence",
	"suspend-gitops"}

func newMoveFlags(cmd *cobra.Command) *moveFlags {
	spec := &mgmtv1.MoveSpec{Selection: &mgmtv1.Selection{}}
	f := &moveFlags{spec: spec}
	set := cmd.Flags()
	set.StringVar(&spec.Source, "source", "", "`NAME` of the source management cluster; needed "+
		"only when there are several")
	set.StringVar(&spec.Target, "target", "", "`NAME` of the target management cluster; needed "+
		"only when there are several")
	addLocation(cmd, &spec.Location)
	addSelection(cmd, spec.Selection, "move")
	addDropOwners(cmd, &spec.DropOwners)
	addAcceptDifferences(cmd, &spec.AcceptDifferences)
	addManagedFields(cmd, &f.managedFields)
	addForce(cmd, &spec.ForceCodes, object.Moves)
	f.modifiers.register(cmd)
	set.BoolVar(&spec.NoFence, "no-fence", false, "hand over without an ownership record: then "+
		"only a lock on the source prevents another host from doing the same")
	set.BoolVar(&spec.SuspendGitops, "suspend-gitops", false, "suspend on the source, from the root "+
		"down, the tools that apply what moves (gitops-owner); a rollback resumes them")
	return f
}

// read returns the work that the flags ask for.
func (f *moveFlags) read(cmd *cobra.Command) (*moveWork, error) {
	f.spec.ManagedFields = f.managedFields.request()
	if f.spec.GetSource() != "" && f.spec.GetSource() == f.spec.GetTarget() {
		return nil, usageError(cmd, "--source and --target are both %q: a move needs two "+
			"management clusters", f.spec.GetSource())
	}
	modifiers, err := f.modifiers.read()
	return &moveWork{spec: f.spec, modifiers: modifiers}, err
}

// moveWork is a requested move.
type moveWork struct {
	spec      *mgmtv1.MoveSpec
	modifiers []byte
}

func (m *moveWork) kind() string { return kindMove }

func (m *moveWork) request(ctx context.Context, c *connection) (*plan, error) {
	stream, err := c.moves.PlanMove(ctx, &mgmtv1.PlanMoveRequest{Spec: m.spec,
		ResourceModifiers: m.modifiers})
	if err != nil {
		return nil, err
	}
	return receivePlan(stream, func(piece *mgmtv1.PlanMoveResponse) (header, bool) {
		return moveHeader{piece.GetHeader()}, piece.GetHeader() != nil
	})
}

func (m *moveWork) begin(ctx context.Context, c *connection, tuning *mgmtv1.RestoreTuning,
	digest string) (*mgmtv1.Operation, error) {
	resp, err := c.moves.RunMove(ctx, &mgmtv1.RunMoveRequest{Spec: m.spec, Tuning: tuning,
		PlanDigest: digest, ResourceModifiers: m.modifiers})
	return resp.GetOperation(), err
}
