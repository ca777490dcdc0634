package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/cmd/mgmtctl/internal/draw"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// graphFormat is how a graph is printed.
type graphFormat string

const (
	graphDot     graphFormat = "dot"
	graphMermaid graphFormat = "mermaid"
	graphSVG     graphFormat = "svg"
	graphJSON    graphFormat = "json"
	graphYAML    graphFormat = "yaml"
)

// graphLimit is how many objects are drawn one by one without --all: a larger drawing is not
// readable.
const graphLimit = 500

// mermaidEdges is how many edges Mermaid draws unless it is configured to draw more.
const mermaidEdges = 500

func newSnapshotGraph(p *program) *cobra.Command {
	req := &mgmtv1.GraphSnapshotRequest{Selection: &mgmtv1.Selection{}}
	as, all := graphDot, false
	cmd := &cobra.Command{
		Use:   "graph [ID|latest] [flags]",
		Short: "Draw the objects of a snapshot and what leads from one to another",
		Long: `Draw the objects of a snapshot, the newest when none is named, or a selection of it
with what it needs. Each workload cluster is a box with its objects in it; shared objects, and those
that no workload cluster needs, are in boxes of their own. A solid arrow leads from an owner to what
it owns, a dashed one from an object to one that it names and does not own; missing objects are red.
Names are shown, but no value of any field.

Without a selection, more than ` + fmt.Sprint(graphLimit) + ` objects are folded: each workload
cluster is drawn as one box that counts its objects. --all draws them one by one.

  dot       for Graphviz (dot -Tpng), which draws large graphs best
  mermaid   for Markdown
  svg       for a browser
  json      the objects and their edges, as yaml

Changes: nothing.

Standalone it needs --store and --identity (not for a plain store).

Exit codes: 0 drawn; 1 other error, such as no such snapshot; 2 usage, such as a selection that the
snapshot does not have; 10 store; 12 identity or signature.`,
		Example: `  mgmtctl snapshot graph --workload team-a/web --identity identity.txt -o svg \
      > web.svg
  mgmtctl snapshot graph 1a2b --namespace team-a --identity identity.txt | dot -Tpng > team-a.png`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(cmd, "takes one snapshot, got also %q", args[1])
			}
			return nil
		},
		ValidArgsFunction: completeLatest,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id = "latest"
			if len(args) > 0 {
				req.Id = args[0]
			}
			return p.withServer(cmd, []need{needStore, needIdentity}, func(ctx context.Context,
				c *connection) error {
				return runSnapshotGraph(ctx, p, c, req, as, all)
			})
		},
	}
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	addSelection(cmd, req.Selection, "draw")
	cmd.Flags().BoolVar(&all, "all", false, "draw every object, however many there are")
	cmd.Flags().VarP(newEnum(&as, graphDot, graphMermaid, graphSVG, graphJSON, graphYAML), "output",
		"o", "how to print the graph")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"dot", "mermaid",
		"svg", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runSnapshotGraph(ctx context.Context, p *program, c *connection,
	req *mgmtv1.GraphSnapshotRequest, as graphFormat, all bool) error {
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	stream, err := c.snapshots.GraphSnapshot(ctx, req)
	if err != nil {
		return err
	}
	objects, err := receiveAll(stream)
	if err != nil {
		return err
	}
	if as == graphJSON || as == graphYAML {
		p.format = map[graphFormat]format{graphJSON: formatJSON, graphYAML: formatYAML}[as]
		list, err := rawList(objects)
		if err != nil {
			return err
		}
		return p.print(graphDocument{list}, nil)
	}
	s := req.GetSelection()
	fold := !all && len(objects) > graphLimit && len(s.GetNamespaces()) == 0 &&
		len(s.GetWorkloads()) == 0 && s.GetSelector() == ""
	if fold {
		p.say("%d objects: each workload cluster is drawn as one; --all draws them all, --namespace, "+
			"--workload or --selector a part", len(objects))
	}
	drawing := draw.New(objects, fold)
	if as == graphMermaid && drawing.Edges() > mermaidEdges {
		p.say("%d edges: Mermaid draws at most %d, unless its maxEdges allows more", drawing.Edges(),
			mermaidEdges)
	}
	write := map[graphFormat]func() []byte{graphDot: drawing.DOT, graphMermaid: drawing.Mermaid,
		graphSVG: drawing.SVG}[as]
	if _, err := p.stdout.Write(write()); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// graphDocument is the result for machines.
type graphDocument struct {
	Objects []json.RawMessage `json:"objects"`
}
