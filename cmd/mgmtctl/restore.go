package main

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newRestore(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "restore",
		Short: "Bring workload clusters of a snapshot under a target management cluster",
		Long: `Bring workload clusters of a snapshot under the control of a target management cluster.

Objects are created paused, owners first, verified, and released last. Look at the plan before you run it.`,
	}, newRestorePlan(p), newRestoreRun(p))
}

// managedFields says for which objects the snapshot's managedFields are written.
type managedFields string

const (
	managedFieldsApply managedFields = "apply"
	managedFieldsAll   managedFields = "all"
	managedFieldsNone  managedFields = "none"
)

func (m managedFields) request() mgmtv1.ManagedFields {
	return map[managedFields]mgmtv1.ManagedFields{
		managedFieldsApply: mgmtv1.ManagedFields_MANAGED_FIELDS_APPLY,
		managedFieldsAll:   mgmtv1.ManagedFields_MANAGED_FIELDS_ALL,
		managedFieldsNone:  mgmtv1.ManagedFields_MANAGED_FIELDS_NONE,
	}[m]
}

// restoreFlags are what decides a plan; plan and run share them.
type restoreFlags struct {
	spec          *mgmtv1.RestoreSpec
	at            moment
	managedFields managedFields
}

// restoreFlagNames are the flags that a plan holds already.
var restoreFlagNames = []string{"source", "snapshot", "at", "target", "namespace", "workload", "selector", "source-is-gone", "force", "no-release", "drop-owner",
	"managed-fields"}

func newRestoreFlags(cmd *cobra.Command) *restoreFlags {
	spec := &mgmtv1.RestoreSpec{Selection: &mgmtv1.Selection{}}
	f := &restoreFlags{spec: spec, managedFields: managedFieldsApply}
	set := cmd.Flags()
	set.StringVar(&spec.Snapshot, "snapshot", "", "`ID` of the snapshot, the beginning of one, or \"latest\" (default latest)")
	set.Var(&f.at, "at", "the newest snapshot not after this time, such as 2026-03-01T14:30:00Z")
	addSource(cmd, &spec.Source)
	set.StringVar(&spec.Target, "target", "", "`NAME` of the target management cluster; needed only when there are several")
	addNamespaces(cmd, &spec.Selection.Namespaces, "restore this namespace, whole")
	set.Var(&checked{&spec.Selection.Workloads, checkWorkload, "NS/NAME"}, "workload", "restore this workload cluster with what it needs (repeatable)")
	set.Var(&checkedOne{&spec.Selection.Selector, checkSelector, "LABELS"}, "selector", "restore the workload clusters whose Cluster has these labels")
	set.Var(&checked{&spec.DropOwners, checkRef, "REF"}, "drop-owner", "drop references to this owner (Kind.group/namespace/name) instead of blocking (repeatable)")
	set.Var(newEnum(&f.managedFields, managedFieldsApply, managedFieldsAll, managedFieldsNone), "managed-fields",
		"whose managedFields to write: of objects with server-side apply, of all or of none")
	set.BoolVar(&spec.SourceIsGone, "source-is-gone", false, "your word that no controller of the source runs any more")
	set.BoolVar(&spec.Force, "force", false, "override the refusals that say so in their hint")
	set.BoolVar(&spec.NoRelease, "no-release", false, "leave everything on the target paused")
	_ = cmd.RegisterFlagCompletionFunc("managed-fields", cobra.FixedCompletions([]string{"apply", "all", "none"}, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// read gives what the flags say.
func (f *restoreFlags) read(cmd *cobra.Command) (*mgmtv1.RestoreSpec, error) {
	if !f.at.IsZero() {
		if f.spec.GetSnapshot() != "" {
			return nil, usageError(cmd, "--at and --snapshot exclude each other")
		}
		f.spec.At = timestamppb.New(f.at.Time)
	}
	f.spec.ManagedFields = f.managedFields.request()
	return f.spec, nil
}
