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

// listFormat is how a list of objects is printed.
type listFormat string

const (
	listTable listFormat = "table"
	listJSON  listFormat = "json"
	listYAML  listFormat = "yaml"
	listName  listFormat = "name"
)

func newSnapshotLs(p *program) *cobra.Command {
	req := &mgmtv1.ListObjectsRequest{Filter: &mgmtv1.ObjectFilter{}}
	as := listTable
	cmd := &cobra.Command{
		Use:   "ls [ID|latest] [NAMESPACE] [flags]",
		Short: "List the objects of a snapshot",
		Long: `List the objects of a snapshot, the newest when none is named: kind, namespace and name, the
workload cluster (unit) that each belongs to, and its size in bytes. STATE is paused, deleting,
shared (workload clusters need it, and it belongs to none), or omitted: the snapshot left the object
out, because it had too many owners or references.

Several kinds, namespaces or workload clusters add up; an object has to fit each flag that is given.
With -o name, each line can be given to "mgmtctl snapshot cat". No value of any field is shown.

Changes: nothing.

Standalone it needs --store and --identity (not for a plain store).

Exit codes: 0 listed, also when no object fits; 1 other error, such as no such snapshot; 2 usage,
such as a namespace or a workload cluster that the snapshot does not have; 10 store; 12 identity or
signature.`,
		Example: `  mgmtctl snapshot ls latest team-a --identity identity.txt
  mgmtctl snapshot ls 1a2b --kind Secret --workload team-a/web --identity identity.txt -o name`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				return usageError(cmd, "takes a snapshot and a namespace, got also %q", args[2])
			}
			return nil
		},
		ValidArgsFunction: p.completeSnapshot,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id = latestSnapshot
			if len(args) > 0 {
				req.Id = args[0]
			}
			if len(args) > 1 {
				req.Filter.Namespaces = append(req.Filter.Namespaces, args[1])
			}
			return p.withServer(cmd, []need{needStore, needIdentity}, func(ctx context.Context,
				c *connection) error {
				return runSnapshotLs(ctx, p, c, req, as)
			})
		},
	}
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	addObjectFilter(cmd, req.Filter)
	cmd.Flags().VarP(newEnum(&as, listTable, listJSON, listYAML, listName), "output", "o",
		"how to print the list")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json",
		"yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// latestSnapshot names the newest snapshot.
const latestSnapshot = "latest"

// addObjectFilter adds the flags that narrow down the objects of a snapshot.
func addObjectFilter(cmd *cobra.Command, f *mgmtv1.ObjectFilter) {
	cmd.Flags().Var(&checked{&f.Kinds, checkName, "KIND"}, "kind", "only this kind: Kind of any "+
		"group, or Kind.group (repeatable)")
	addNamespaces(cmd, &f.Namespaces, "only this namespace")
	cmd.Flags().Var(&checked{&f.Workloads, checkWorkload, "NS/NAME"}, "workload", "only objects of "+
		"this workload cluster, without shared ones (repeatable)")
}

func runSnapshotLs(ctx context.Context, p *program, c *connection,
	req *mgmtv1.ListObjectsRequest, as listFormat) error {
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	stream, err := c.snapshots.ListObjects(ctx, req)
	if err != nil {
		return err
	}
	all, err := receiveAll(stream)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		p.say("no objects")
	}
	list, err := rawList(all)
	if err != nil {
		return err
	}
	p.format = map[listFormat]format{listJSON: formatJSON, listYAML: formatYAML,
		listTable: formatTable, listName: formatTable}[as]
	return p.print(objectsDocument{list}, func(w io.Writer) {
		if as != listName {
			writeObjects(w, all)
			return
		}
		for _, o := range all {
			fmt.Fprintln(w, refText(o.GetRef()))
		}
	})
}

// objectsDocument is the result for machines.
type objectsDocument struct {
	Objects []json.RawMessage `json:"objects"`
}

func writeObjects(w io.Writer, objects []*mgmtv1.ListObjectsResponse) {
	if len(objects) == 0 {
		return
	}
	t := newTable("KIND", "NAMESPACE", "NAME", "WORKLOAD CLUSTER", "SIZE", "STATE")
	for _, o := range objects {
		bytes := ""
		if !o.GetOmitted() {
			bytes = size(o.GetSize())
		}
		t.add(kindText(o.GetRef()), o.GetRef().GetNamespace(), o.GetRef().GetName(), o.GetUnit(), bytes,
			objectState(o))
	}
	t.write(w)
}

// objectState returns what is special about an object.
func objectState(o *mgmtv1.ListObjectsResponse) string {
	var states []string
	for _, s := range []struct {
		is   bool
		word string
	}{{o.GetOmitted(), "omitted"}, {o.GetPaused(), "paused"}, {o.GetDeleting(), "deleting"},
		{o.GetShared(), "shared"}} {
		if s.is {
			states = append(states, s.word)
		}
	}
	return strings.Join(states, ", ")
}
