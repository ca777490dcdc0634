package main

import (
	"context"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newScheduleRun(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME",
		Short: "Take the snapshot of a schedule now",
		Long: `Take the snapshot of a schedule now, whether it is due or paused or not, and follow
it.

Changes: writes a new snapshot to the schedule's storage location.
Does not change: when the schedule is due next. The source is only read, and never paused.
Interrupting this command does not interrupt the snapshot.

Exit codes: 0 snapshot taken; 1 other error, such as no such schedule or an unreachable source;
2 usage, such as --standalone; 4 stopped with something written; 10 store; 11 one of its runs is
going on; 12 signing key; 130 interrupted with nothing written.`,
		Example:           `  mgmtctl schedule run nightly`,
		Args:              oneArg(scheduleArg),
		ValidArgsFunction: p.completeSchedules,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withSchedules(cmd, func(ctx context.Context, c *connection) error {
				return p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation, error) {
					resp, err := c.schedules.RunSchedule(ctx, &mgmtv1.RunScheduleRequest{Name: args[0]})
					return resp.GetOperation(), err
				})
			})
		},
	}
}
