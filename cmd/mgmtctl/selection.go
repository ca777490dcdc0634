package main

import (
	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// This file has the flags that restores and moves share.

// addSelection adds the flags that select workload clusters. verb is what is done to them.
func addSelection(cmd *cobra.Command, s *mgmtv1.Selection, verb string) {
	addNamespaces(cmd, &s.Namespaces, verb+" this namespace, whole")
	cmd.Flags().Var(&checked{&s.Workloads, checkWorkload, "NS/NAME"}, "workload", verb+
		" this workload cluster with what it needs (repeatable)")
	addSelector(cmd, &s.Selector, verb+" the workload clusters whose Cluster has these labels")
}

func addSelector(cmd *cobra.Command, value *string, what string) {
	cmd.Flags().Var(&checkedOne{value, checkSelector, "LABELS"}, "selector", what)
}

func addDropOwners(cmd *cobra.Command, refs *[]string) {
	cmd.Flags().Var(&checked{refs, checkRef, "REF"}, "drop-owner",
		"drop references to this owner (Kind.group/namespace/name) instead of blocking (repeatable)")
}

func addAcceptDifferences(cmd *cobra.Command, differences *[]string) {
	cmd.Flags().Var(&checked{differences, checkDifference, "KIND:PATH"}, "accept-difference",
		"release objects that differ at this path (Kind.group:path, never the data of Secrets) "+
			"(repeatable)")
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

func addManagedFields(cmd *cobra.Command, m *managedFields) {
	*m = managedFieldsApply
	cmd.Flags().Var(newEnum(m, managedFieldsApply, managedFieldsAll, managedFieldsNone),
		"managed-fields",
		"whose managedFields to write: of objects with server-side apply, of all or of none")
	_ = cmd.RegisterFlagCompletionFunc("managed-fields",
		cobra.FixedCompletions([]string{"apply", "all", "none"}, cobra.ShellCompDirectiveNoFileComp))
}
