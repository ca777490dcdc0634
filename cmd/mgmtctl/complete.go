package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// completeTimeout bounds how long the shell waits after a Tab.
const completeTimeout = 2 * time.Second

// names returns names from a daemon for completion. Standalone it returns none, because that would
// open stores and catalogs. It ignores errors: completion must not print anything.
func (p *program) names(cmd *cobra.Command, ask func(context.Context, *connection) ([]string,
	error)) []string {
	if p.standalone.enabled || p.readEnvironment() != nil || p.checkDaemon(cmd) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, err := p.connectDaemon(ctx)
	if err != nil {
		return nil
	}
	defer func() { _ = c.close() }() // nothing was begun
	names, err := ask(ctx, c)
	if err != nil {
		return nil
	}
	return names
}

// completeOperations completes the argument that names an operation.
func (p *program) completeOperations(cmd *cobra.Command, args []string, word string) ([]string,
	cobra.ShellCompDirective) {
	words, directive := completeLatest(cmd, args, word)
	if len(args) > 0 {
		return words, directive
	}
	return append(words, p.operationNames(cmd, nil)...), directive
}

// completeOperationList completes arguments that each name an operation.
func (p *program) completeOperationList(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	return p.operationNames(cmd, args), cobra.ShellCompDirectiveNoFileComp
}

// completedOperations is how many operations a completion offers.
const completedOperations = 50

// operationNames returns the ids of the newest operations but those in args.
func (p *program) operationNames(cmd *cobra.Command, args []string) []string {
	return p.names(cmd, func(ctx context.Context, c *connection) ([]string, error) {
		resp, err := c.operations.ListOperations(ctx,
			&mgmtv1.ListOperationsRequest{PageSize: completedOperations})
		var names []string
		for _, op := range resp.GetOperations() {
			if !slices.Contains(args, op.GetId()) {
				names = append(names, cobra.CompletionWithDesc(op.GetId(), op.GetKind()+" "+
					stateWord(op.GetState())))
			}
		}
		return names, err
	})
}

// completedSnapshots is how many snapshots a completion offers.
const completedSnapshots = 50

// completeSnapshots completes arguments that name snapshots.
func (p *program) completeSnapshots(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	return p.names(cmd, func(ctx context.Context, c *connection) ([]string, error) {
		resp, err := c.snapshots.ListSnapshots(ctx,
			&mgmtv1.ListSnapshotsRequest{PageSize: completedSnapshots})
		var names []string
		for _, s := range resp.GetSnapshots() {
			if !slices.Contains(args, s.GetId()) {
				names = append(names, cobra.CompletionWithDesc(s.GetId(), sourceText(s)+" "+p.age(s.GetTime())))
			}
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// completeSnapshot completes the argument that names one snapshot.
func (p *program) completeSnapshot(cmd *cobra.Command, args []string, word string) ([]string,
	cobra.ShellCompDirective) {
	words, directive := completeLatest(cmd, args, word)
	if len(args) > 0 {
		return words, directive
	}
	names, directive := p.completeSnapshots(cmd, args, word)
	return append(words, names...), directive
}

// completeSchedules completes the argument that names a schedule.
func (p *program) completeSchedules(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.names(cmd, func(ctx context.Context, c *connection) ([]string, error) {
		resp, err := c.schedules.ListSchedules(ctx, &mgmtv1.ListSchedulesRequest{})
		var names []string
		for _, s := range resp.GetSchedules() {
			names = append(names, cobra.CompletionWithDesc(s.GetName(), s.GetCron()))
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// completeMgmt completes the name of a management cluster.
func (p *program) completeMgmt(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if p.standalone.enabled {
		return p.mgmtNames(), cobra.ShellCompDirectiveNoFileComp
	}
	return p.names(cmd, func(ctx context.Context, c *connection) ([]string, error) {
		resp, err := c.mgmts.ListMgmts(ctx, &mgmtv1.ListMgmtsRequest{})
		var names []string
		for _, m := range resp.GetMgmts() {
			names = append(names, m.GetName())
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// completeLocations returns the names of storage locations.
func (p *program) completeLocations(cmd *cobra.Command) []string {
	if p.standalone.enabled {
		return p.locationNames()
	}
	return p.names(cmd, func(ctx context.Context, c *connection) ([]string, error) {
		resp, err := c.stores.ListLocations(ctx, &mgmtv1.ListLocationsRequest{})
		var names []string
		for _, l := range resp.GetLocations() {
			names = append(names, cobra.CompletionWithDesc(l.GetName(), l.GetPlace()))
		}
		return names, err
	})
}

// completeFlags completes the flags of all commands below cmd that name a management cluster or a
// storage location, and the files of --config and --resource-modifiers.
func (p *program) completeFlags(cmd *cobra.Command) {
	if !cmd.HasParent() {
		_ = cmd.MarkPersistentFlagFilename("config", "yaml", "yml")
	}
	if cmd.Flags().Lookup(modifiersFlagName) != nil {
		_ = cmd.MarkFlagFilename(modifiersFlagName, "yaml", "yml", "json")
	}
	for _, name := range []string{"source", "target", "location", "to-location"} {
		if cmd.Flags().Lookup(name) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, word string) (
			[]string, cobra.ShellCompDirective) {
			if name == "location" || name == "to-location" {
				return p.completeLocations(cmd), cobra.ShellCompDirectiveNoFileComp
			}
			return p.completeMgmt(cmd, nil, word)
		})
	}
	for _, c := range cmd.Commands() {
		p.completeFlags(c)
	}
}
