package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSnapshotFind(p *program) *cobra.Command {
	req := &mgmtv1.FindObjectRequest{}
	cmd := &cobra.Command{
		Use:   "find [KIND[.GROUP]] NAMESPACE/NAME [flags]",
		Short: "Find the snapshots that hold an object, and when it changed",
		Long: `Search all snapshots of a source for an object, and list those that hold it, newest first.
CHANGE says what became of it since the snapshot before: appeared, same, changed (it was written
to), replaced (deleted and created again), disappeared, or oldest: the oldest snapshot holds it
already.
Without a kind it lists objects of that name of every kind. A cluster-scoped object has no
NAMESPACE.

Snapshots are compared within their scope: one of a selection says nothing of objects that it was
not asked to hold. A part that several snapshots share is read once, so that the cost follows the
changes. No value of any field is shown; "mgmtctl snapshot diff" shows which fields changed.

Changes: nothing.

Standalone it needs --store and --identity (not for a plain store).

Exit codes: 0 found; 1 no snapshot holds it, or other error; 2 usage; 3 some snapshots cannot be
read and are listed with the reason; 10 store; 12 identity, or no snapshot opens with it.`,
		Example: `  mgmtctl snapshot find Secret team-a/web-ca --changes --identity identity.txt
  mgmtctl snapshot find team-a/web --standalone --store /backup/mgmt --identity identity.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usageError(cmd, "argument missing: %s", objectArg)
			case len(args) > 2:
				return usageError(cmd, "takes a kind and a name, got also %q", args[2])
			}
			return nameSearch(cmd, req, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withServer(cmd, []need{needStore, needIdentity}, func(ctx context.Context,
				c *connection) error {
				return runSnapshotFind(ctx, p, c, req)
			})
		},
	}
	addSource(cmd, &req.Source)
	addLocation(cmd, &req.Location)
	cmd.Flags().BoolVar(&req.Changes, "changes", false, "list only snapshots where something became "+
		"of it")
	return cmd
}

// nameSearch reads the arguments of a search: a kind and a name, a name, or a line of snapshot ls
// -o name of a namespaced object.
func nameSearch(cmd *cobra.Command, req *mgmtv1.FindObjectRequest, args []string) error {
	if len(args) == 2 {
		req.Kind = args[0]
	} else if strings.Count(args[0], "/") == 2 {
		of := &mgmtv1.GetObjectRequest{}
		err := nameObject(cmd, of, args)
		req.Kind, req.Namespace, req.Name = of.GetKind(), of.GetNamespace(), of.GetName()
		return err
	}
	var err error
	req.Namespace, req.Name, err = splitName(cmd, args[len(args)-1])
	return err
}

func runSnapshotFind(ctx context.Context, p *program, c *connection,
	req *mgmtv1.FindObjectRequest) error {
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	stream, err := c.snapshots.FindObject(ctx, req)
	if err != nil {
		return err
	}
	all, err := receiveAll(stream)
	if err != nil {
		return err
	}
	list, err := rawList(all)
	if err != nil {
		return err
	}
	if err := p.print(findDocument{list}, func(w io.Writer) { p.writeFound(w, all) }); err != nil {
		return err
	}
	for _, f := range all {
		if f.GetProblem() != "" {
			return exit(service.ExitFindings)
		}
	}
	return nil
}

// findDocument is the result for machines.
type findDocument struct {
	Found []json.RawMessage `json:"found"`
}

func (p *program) writeFound(w io.Writer, found []*mgmtv1.FindObjectResponse) {
	t := newTable("KIND", "ID", "SOURCE", "AGE", "CHANGE", "RESOURCE VERSION", "SIZE",
		"WORKLOAD CLUSTER", "STATE")
	var problems []*mgmtv1.FindObjectResponse
	for _, f := range found {
		if f.GetProblem() != "" {
			problems = append(problems, f)
			continue
		}
		o, bytes := f.GetObject(), ""
		if o.GetSize() > 0 {
			bytes = size(o.GetSize())
		}
		t.add(kindText(o.GetRef()), f.GetSnapshot().GetId(), sourceText(f.GetSnapshot()),
			p.age(f.GetSnapshot().GetTime()), word(f.GetHistory(), "OBJECT_HISTORY_"),
			o.GetResourceVersion(), bytes, o.GetUnit(), objectState(o))
	}
	if len(t.rows) > 1 {
		t.write(w)
	}
	for i, f := range problems {
		if i == 0 && len(t.rows) > 1 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "not searched: %s: %s\n", f.GetSnapshot().GetId(), f.GetProblem())
	}
}
