package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSchedulePause(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "pause NAME",
		Short: "Pause a schedule",
		Long: `Pause a schedule: it begins no snapshot until it is resumed, also after the daemon
restarts.

Changes: the daemon's record of the schedule, not its config.
Does not change: a running snapshot goes on; "mgmtctl schedule run" still works. Pausing a paused
schedule changes nothing.

Exit codes: 0 paused; 1 other error, such as no such schedule; 2 usage, such as --standalone.`,
		Example:           `  mgmtctl schedule pause nightly`,
		Args:              oneArg(scheduleArg),
		ValidArgsFunction: p.completeSchedules,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withSchedules(cmd, func(ctx context.Context, c *connection) error {
				resp, err := c.schedules.PauseSchedule(ctx, &mgmtv1.PauseScheduleRequest{Name: args[0]})
				if err != nil {
					return err
				}
				return p.print(resp.GetSchedule(), func(w io.Writer) { p.writeSchedule(w, resp.GetSchedule()) })
			})
		},
	}
}

func newScheduleResume(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME",
		Short: "End the pause of a schedule",
		Long: `Resume a paused schedule, also one that the daemon's config has paused.

Changes: the daemon's record of the schedule, not its config. Resuming a schedule that is not paused
changes nothing.

Exit codes: 0 resumed; 1 other error, such as no such schedule; 2 usage, such as --standalone.`,
		Example:           `  mgmtctl schedule resume nightly`,
		Args:              oneArg(scheduleArg),
		ValidArgsFunction: p.completeSchedules,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withSchedules(cmd, func(ctx context.Context, c *connection) error {
				resp, err := c.schedules.ResumeSchedule(ctx, &mgmtv1.ResumeScheduleRequest{Name: args[0]})
				if err != nil {
					return err
				}
				return p.print(resp.GetSchedule(), func(w io.Writer) { p.writeSchedule(w, resp.GetSchedule()) })
			})
		},
	}
}
