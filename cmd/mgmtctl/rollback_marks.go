package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// marksFlags are the flags of a rollback from marks.
type marksFlags struct {
	enabled, dryRun, yes bool
	spec                 *mgmtv1.MarksSpec
}

func newMarksFlags() *marksFlags {
	return &marksFlags{spec: &mgmtv1.MarksSpec{Selection: &mgmtv1.Selection{}}}
}

// marksFlagNames are those that have no meaning without --from-marks.
var marksFlagNames = []string{"dry-run", "yes", "target", "location", "namespace", "workload",
	"selector"}

func (f *marksFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.BoolVar(&f.enabled, "from-marks", false, "remove the paused copies that lost restores and "+
		"moves have left on the target; most other flags need this one")
	set.StringVar(&f.spec.Target, "target", "", "`NAME` of the target management cluster")
	addLocation(cmd, &f.spec.Location)
	addSelection(cmd, f.spec.Selection, "remove")
	addForce(cmd, &f.spec.ForceCodes, object.Marks, object.Rollbacks, object.Returns)
	set.BoolVar(&f.dryRun, "dry-run", false, "show the plan, and do nothing")
	set.BoolVar(&f.yes, "yes", false, "do not ask")
}

// first returns a flag that was given and needs --from-marks, "" when there is none.
func (f *marksFlags) first(cmd *cobra.Command) string {
	for _, name := range marksFlagNames {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// run plans, asks, and carries the plan out.
func (f *marksFlags) run(p *program, cmd *cobra.Command) error {
	if !f.dryRun {
		if err := p.consented(cmd, f.yes); err != nil {
			return err
		}
	}
	p.standalone.targetName = f.spec.GetTarget()
	return p.withServer(cmd, []need{needTarget}, func(ctx context.Context, c *connection) error {
		plan, err := c.restores.PlanRollbackFromMarks(ctx,
			&mgmtv1.PlanRollbackFromMarksRequest{Spec: f.spec})
		if err != nil {
			return err
		}
		for _, finding := range plan.GetFindings() {
			p.completeHint(finding)
		}
		switch nothing := len(plan.GetUnits()) == 0; {
		case f.dryRun || nothing:
			err = p.print(plan, func(w io.Writer) { writeMarksPlan(w, plan) })
		case !f.yes || plan.GetBlocked():
			writeMarksPlan(p.stderr, plan)
		}
		if err != nil {
			return err
		}
		if plan.GetBlocked() {
			return exit(service.ExitFindings)
		}
		if f.dryRun || len(plan.GetUnits()) == 0 {
			return nil
		}
		if !f.yes {
			if err := p.confirm(ctx, marksQuestion(plan)); err != nil {
				return err
			}
		}
		return p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation, error) {
			resp, err := c.restores.RollbackFromMarks(ctx, &mgmtv1.RollbackFromMarksRequest{Spec: f.spec,
				PlanDigest: plan.GetDigest()})
			return resp.GetOperation(), err
		})
	})
}

func marksQuestion(plan *mgmtv1.PlanRollbackFromMarksResponse) string {
	units, objects := 0, int64(0)
	for _, u := range plan.GetUnits() {
		if u.GetBlocked() {
			continue
		}
		if u.GetName() != "" {
			units++
		}
		objects += u.GetObjects()
	}
	return fmt.Sprintf("Remove the copies of %s (%s) from %s?", count(units, "workload cluster"),
		count(int(objects), "object"), plan.GetTarget())
}

// writeMarksPlan writes what a rollback from marks removes, and what it leaves.
func writeMarksPlan(w io.Writer, plan *mgmtv1.PlanRollbackFromMarksResponse) {
	var l pairs
	l.add("target", sideText(plan.GetTarget(), plan.GetTargetUid()))
	l.write(w)
	if len(plan.GetUnits()) == 0 {
		fmt.Fprintln(w, "\nno workload cluster there has the mark of a copy that was never released")
	} else {
		fmt.Fprintln(w)
		t := newTable("WORKLOAD CLUSTER", "OBJECTS", "MACHINES", "MADE BY", "ROLLBACK")
		for _, u := range plan.GetUnits() {
			does := "removes it"
			if u.GetBlocked() {
				does = "leaves it"
			}
			t.add(unitText(u.GetName()), fmt.Sprint(u.GetObjects()), fmt.Sprint(u.GetMachines()),
				strings.Join(u.GetOperations(), ", "), does)
		}
		t.write(w)
	}
	if len(plan.GetFindings()) > 0 {
		fmt.Fprintln(w)
		writeFindings(w, plan.GetFindings())
	}
}
