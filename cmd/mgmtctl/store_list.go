package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newStoreList(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List storage locations, and how far their copies are",
		Long: `List the storage locations that --location can name. Of a copy it shows when the last run began
that succeeded, how many snapshots were not in it after the last run, and why that one failed.

Changes: nothing. No store is opened.

Exit codes: 0 listed; 1 other error, such as an unreachable daemon; 2 usage.`,
		Example: `  mgmtctl store list
  mgmtctl store list --standalone --config mgmtd.yaml -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				resp, err := c.stores.ListLocations(ctx, &mgmtv1.ListLocationsRequest{})
				if err != nil {
					return err
				}
				return p.print(resp, func(w io.Writer) { writeLocations(w, p, resp.GetLocations()) })
			})
		},
	}
}

func writeLocations(w io.Writer, p *program, locations []*mgmtv1.Location) {
	t := newTable("NAME", "PLACE", "ACCESS", "COPY OF", "LAST COPY", "BEHIND", "ERROR")
	for _, l := range locations {
		name, access, last, behind := l.GetName(), "read-write", "", ""
		if l.GetDefault() {
			name += " (default)"
		}
		if l.GetReadOnly() {
			access = "read-only"
		}
		if l.GetCopySuccessTime().IsValid() {
			last = p.age(l.GetCopySuccessTime())
		}
		if l.GetCopyOf() != "" && l.GetCopyBehind() >= 0 {
			behind = number(l.GetCopyBehind())
		}
		t.add(name, l.GetPlace(), access, l.GetCopyOf(), last, behind, l.GetCopyError())
	}
	t.write(w)
}
