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

func newPrunePlan(p *program) *cobra.Command {
	var flags *pruneFlags
	cmd := &cobra.Command{
		Use:   "plan [flags]",
		Short: "Show what a prune would remove",
		Long: `Show for every snapshot in a store whether a prune would retain it, and why, and how
much space a prune would free. Through a daemon the rules are those of its config unless a --keep
flag is given.

Changes: nothing. Ages are measured with the clock of this host or of the daemon; a run uses the
clock of the storage.

Standalone it needs --store; with --trusted-key it also checks signatures.

Exit codes: 0 shown; 1 other error; 2 usage; 3 envelopes cannot be read, so that no content would be
removed; 10 store; 11 catalog locked; 12 a trusted key that is not one.`,
		Example: `  mgmtctl prune plan --standalone --store /backup/mgmt --trusted-key signing.pub \
      --keep-daily 7 --keep-weekly 4
  mgmtctl prune plan -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.read(cmd); err != nil {
				return err
			}
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				return runPrunePlan(ctx, p, c, flags.spec)
			})
		},
	}
	flags = newPruneFlags(cmd)
	return cmd
}

// prunePlan is the whole plan of a prune, collected from its stream.
type prunePlan struct {
	snapshots []*mgmtv1.PrunedSnapshot
	findings  []*mgmtv1.Finding
	summary   *mgmtv1.PruneSummary
}

func (p *program) requestPrunePlan(ctx context.Context, c *connection,
	spec *mgmtv1.PruneSpec) (*prunePlan, error) {
	stream, err := c.prunes.PlanPrune(ctx, &mgmtv1.PlanPruneRequest{Spec: spec})
	if err != nil {
		return nil, err
	}
	all, err := receiveAll(stream)
	if err != nil {
		return nil, err
	}
	pl := &prunePlan{}
	for _, piece := range all {
		switch item := piece.GetItem().(type) {
		case *mgmtv1.PlanPruneResponse_Snapshot:
			pl.snapshots = append(pl.snapshots, item.Snapshot)
		case *mgmtv1.PlanPruneResponse_Finding:
			p.completeHint(item.Finding)
			pl.findings = append(pl.findings, item.Finding)
		case *mgmtv1.PlanPruneResponse_Summary:
			pl.summary = item.Summary
		}
	}
	return pl, nil
}

func runPrunePlan(ctx context.Context, p *program, c *connection, spec *mgmtv1.PruneSpec) error {
	pl, err := p.requestPrunePlan(ctx, c, spec)
	if err != nil {
		return err
	}
	document, err := pl.document()
	if err != nil {
		return err
	}
	if err := p.print(document, func(w io.Writer) { pl.write(w, p) }); err != nil {
		return err
	}
	if pl.summary.GetBlocked() {
		return exit(service.ExitFindings)
	}
	return nil
}

// document is the plan as JSON or YAML.
func (pl *prunePlan) document() (any, error) {
	snapshots, err := rawList(pl.snapshots)
	if err != nil {
		return nil, err
	}
	findings, err := rawList(pl.findings)
	if err != nil {
		return nil, err
	}
	summary, err := rawJSON(pl.summary)
	return struct {
		Snapshots []json.RawMessage `json:"snapshots"`
		Findings  []json.RawMessage `json:"findings"`
		Summary   json.RawMessage   `json:"summary"`
	}{snapshots, findings, summary}, err
}

// write writes the plan for people.
func (pl *prunePlan) write(w io.Writer, p *program) {
	if len(pl.snapshots) > 0 {
		t := newTable("ID", "SOURCE", "AGE", "STORED", "PLAN", "WHY")
		for _, s := range pl.snapshots {
			plan, why := "keep", strings.Join(s.GetKeep(), "; ")
			if len(s.GetKeep()) == 0 {
				plan, why = "remove", "no rule keeps it"
			}
			t.add(s.GetSnapshot().GetId(), sourceText(s.GetSnapshot()), p.age(s.GetSnapshot().GetTime()),
				size(s.GetSnapshot().GetStoredBytes()), plan, why)
		}
		t.write(w)
		fmt.Fprintln(w)
	}
	if len(pl.findings) > 0 {
		writeFindings(w, pl.findings)
		fmt.Fprintln(w)
	}
	s := pl.summary
	var l pairs
	l.add("rules", rulesText(s.GetRetention()))
	l.add("keeps", count(s.GetKept(), "snapshot"))
	l.add("removes", count(s.GetRemoved(), "snapshot"))
	if s.GetBlocked() {
		l.add("frees", "no content: what some snapshots need is not known")
	} else {
		l.add("frees", amountText(s.GetFrees()))
	}
	if s.GetWaits().GetKeys() > 0 {
		l.add("waits", amountText(s.GetWaits())+" that no snapshot names, younger than the grace of "+
			s.GetGrace().AsDuration().String())
	}
	l.write(w)
}

// rulesText returns rules in the form of their flags.
func rulesText(r *mgmtv1.Retention) string {
	var words []string
	for i, n := range []int32{r.GetKeepLast(), r.GetKeepHourly(), r.GetKeepDaily(), r.GetKeepWeekly(),
		r.GetKeepMonthly()} {
		if n > 0 {
			words = append(words, fmt.Sprintf("%s %d", keepFlagNames[i], n))
		}
	}
	if d := r.GetKeepWithin().AsDuration(); d > 0 {
		words = append(words, "keep-within "+d.String())
	}
	if len(words) == 0 {
		return "none: only what has expired goes"
	}
	return strings.Join(words, ", ")
}
