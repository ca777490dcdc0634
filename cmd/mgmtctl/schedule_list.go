package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newScheduleList(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List schedules",
		Long: `List the schedules of the daemon's config, by name: when each is due, when it last ran
and last succeeded, and its last error. A schedule is overdue when a run was due and the store has
no later snapshot of it, whether that was never taken, was removed, or cannot be searched for.

Changes: nothing.

Exit codes: 0 listed, also when there is none or one is overdue; 1 other error, such as an
unreachable daemon; 2 usage, such as --standalone.`,
		Example: `  mgmtctl schedule list
  mgmtctl schedule list -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withSchedules(cmd, func(ctx context.Context, c *connection) error {
				return runScheduleList(ctx, p, c)
			})
		},
	}
}

func runScheduleList(ctx context.Context, p *program, c *connection) error {
	resp, err := c.schedules.ListSchedules(ctx, &mgmtv1.ListSchedulesRequest{})
	if err != nil {
		return err
	}
	if len(resp.GetSchedules()) == 0 {
		p.say("no schedules")
	}
	return p.print(resp, func(w io.Writer) {
		t := newTable("NAME", "CRON", "SOURCE", "LOCATION", "PAUSED", "NEXT", "LAST", "LAST SUCCESS",
			"OPERATION", "NOTES")
		for _, s := range resp.GetSchedules() {
			t.add(s.GetName(), s.GetCron(), s.GetSource(), s.GetLocation(), yesNo(s.GetPaused()),
				p.until(s.GetNextTime()), p.age(s.GetLastTime()),
				p.age(s.GetLastSuccessTime()), s.GetLastOperation(), p.scheduleNotes(s))
		}
		t.write(w)
	})
}
