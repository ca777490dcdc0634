package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newCatalogCheck(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the catalog for damage",
		Long: `Read the whole catalog and list what is wrong with it: damaged pages, records that cannot
be read, indexes that disagree with their records. When something is wrong it says which restores
and moves the file must be kept for, and how to go on.

Changes: nothing. A daemon writes nothing to its catalog meanwhile, which takes seconds for a
large one. Standalone it checks the file of --catalog, which no other process may have open; a file
of an older version stays as it is.

Exit codes: 0 nothing is wrong; 1 other error, such as no such file; 2 usage; 3 something is wrong;
11 catalog locked.`,
		Example: `  mgmtctl catalog check
  mgmtctl catalog check --standalone --catalog /var/lib/mgmtd/catalog.db`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runCatalogCheck(ctx, p, c)
			})
		},
	}
}

func runCatalogCheck(ctx context.Context, p *program, c *connection) error {
	resp, err := c.catalog.CheckCatalog(ctx, &mgmtv1.CheckCatalogRequest{})
	if err != nil {
		return err
	}
	err = p.print(resp, func(w io.Writer) {
		var l pairs
		l.add("catalog", resp.GetPath())
		l.add("size", fmt.Sprintf("%s, %s of it free", size(resp.GetSize()), size(resp.GetFree())))
		l.add("schema", number(int64(resp.GetSchema())))
		l.add("operations", number(resp.GetOperations()))
		l.add("snapshots", number(resp.GetSnapshots()))
		l.add("problems", number(int64(len(resp.GetProblems()))))
		l.write(w)
		for _, problem := range resp.GetProblems() {
			fmt.Fprintf(w, "  %s\n", problem)
		}
	})
	if err != nil || len(resp.GetProblems()) == 0 {
		return err
	}
	if len(resp.GetUnfinished()) > 0 {
		p.say("it has operations that are not finished: %s", strings.Join(resp.GetUnfinished(), ", "))
	}
	p.say("hint: stop the process that uses it, move the file away and do not delete it, and begin "+
		"with a new one: the index of snapshots is rebuilt from the store, and restores and moves that "+
		"are not finished are imported from their mirror there\n  mv %[1]s %[1]s.old\n  %[2]s",
		resp.GetPath(), p.commandLine("catalog", "rebuild"))
	return exit(service.ExitFindings)
}
