package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSchedule(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "schedule",
		Short: "Show the daemon's schedules, pause and resume them, run one now",
		Long: `List the schedules of the daemon's config and their last runs, pause and resume them,
and run one now.

Schedules need a daemon. Without one, a timer of the system can run "mgmtctl snapshot create".`,
	}, newScheduleList(p), newSchedulePause(p), newScheduleResume(p), newScheduleRun(p))
}

// scheduleArg is the argument that names a schedule.
const scheduleArg = "the NAME of a schedule of the daemon's config"

// withSchedules calls do with a daemon.
func (p *program) withSchedules(cmd *cobra.Command, do func(context.Context,
	*connection) error) error {
	if p.standalone.enabled {
		return usageError(cmd, "schedules are the daemon's: leave out --standalone")
	}
	return p.withServer(cmd, nil, do)
}

// writeSchedule writes one schedule.
func (p *program) writeSchedule(w io.Writer, s *mgmtv1.Schedule) {
	var l pairs
	l.add("name", s.GetName())
	l.add("cron", s.GetCron())
	l.add("source", s.GetSource())
	l.add("namespaces", strings.Join(s.GetNamespaces(), ", "))
	l.add("selector", s.GetSelector())
	l.add("location", s.GetLocation())
	l.add("paused", yesNo(s.GetPaused()))
	if due := p.until(s.GetNextTime()); due != "" {
		l.add("next", due)
	}
	l.add("last", p.when(s.GetLastTime()))
	l.add("last operation", s.GetLastOperation())
	l.add("last success", p.when(s.GetLastSuccessTime()))
	l.add("newest in the store", p.when(s.GetNewestTime()))
	l.add("notes", p.scheduleNotes(s))
	l.write(w)
}

// scheduleNotes returns what an operator should know about a schedule.
func (p *program) scheduleNotes(s *mgmtv1.Schedule) string {
	var notes []string
	if s.GetOverdue() {
		notes = append(notes, "overdue")
	}
	switch newest := s.GetNewestTime(); {
	case !s.GetLastSuccessTime().IsValid():
	case newest == nil:
		notes = append(notes, "no snapshot of it is in the store")
	case newest.AsTime().Before(s.GetLastSuccessTime().AsTime()):
		notes = append(notes, "the newest in the store is "+p.age(newest)+" old")
	}
	if n := s.GetSkipped(); n > 0 {
		notes = append(notes, count(n, "run")+" skipped")
	}
	if s.GetLastError() != "" {
		notes = append(notes, s.GetLastError())
	}
	return strings.Join(notes, ", ")
}

// until returns how far ahead something is.
func (p *program) until(t *timestamppb.Timestamp) string {
	if !t.IsValid() || t.AsTime().Unix() == 0 {
		return ""
	}
	return fmt.Sprintf("in %s", duration.HumanDuration(max(0, t.AsTime().Sub(p.now()))))
}
