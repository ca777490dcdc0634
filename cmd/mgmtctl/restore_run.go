package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// restoreRun is what "restore run" was asked for.
type restoreRun struct {
	spec    *mgmtv1.RestoreSpec
	tuning  *mgmtv1.RestoreTuning
	observe time.Duration
	// plan is the one of --plan, nil without.
	plan *plan
	yes  bool
}

func newRestoreRun(p *program) *cobra.Command {
	var flags *restoreFlags
	var planFile string
	run := &restoreRun{tuning: &mgmtv1.RestoreTuning{}}
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Restore workload clusters to a target management cluster",
		Long: `Restore workload clusters of a snapshot to a target management cluster: plan, check, create everything paused, verify, release.

Without --yes it shows the plan's summary and asks, which needs a terminal. With --plan FILE it runs what "restore plan -o json" has printed, and refuses when
the plan would be another by now; flags that decide a plan are then refused.

Changes: creates objects on the target, and releases them last, so that its controllers take the workload clusters over. Equal objects that are there are
adopted; the annotation mgmtd.dev/workload-id is written.
Does not change: different objects that are there are a finding, never overwritten. The snapshot and the source are not touched. Without --source-is-gone a
restore to another management cluster is refused.

It can be interrupted, or die, and be resumed: "mgmtctl operation resume ID".

Standalone it needs --store, --target-kubeconfig, and --identity and --trusted-key (or --plain).

Exit codes: 0 restored; 1 other error, such as an unreachable target; 2 usage, or confirmation missing; 3 findings block everything or the plan changed,
nothing was done; 4 some was done and work is left, the command that goes on is printed; 10 store; 11 fenced, owned or locked by another; 12 identity or
signature; 130 interrupted before any change.`,
		Example: `  mgmtctl restore run --standalone --store /backup/mgmt --identity identity.txt --trusted-key signing.pub \
      --target-kubeconfig new.kubeconfig --source-is-gone
  mgmtctl restore run --plan plan.json --yes --canary team-a/web`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if err := run.read(cmd, flags, planFile); err != nil {
				return err
			}
			if err := p.check(cmd, needsOfRestore); err != nil {
				return err
			}
			if planFile != "" {
				if run.plan, err = readPlan(planFile); err != nil {
					return err
				}
				run.spec = run.plan.header.GetSpec()
			}
			p.standalone.sourceName, p.standalone.targetName = run.spec.GetSource(), run.spec.GetTarget()
			return p.withServer(cmd, needsOfRestore, func(ctx context.Context, c *connection) error {
				if !run.yes && !p.interactive {
					return usageError(cmd, "confirmation missing: give --yes, since there is no terminal to ask on")
				}
				return runRestoreRun(ctx, p, c, run)
			})
		},
	}
	flags = newRestoreFlags(cmd)
	set := cmd.Flags()
	set.StringVar(&planFile, "plan", "", "run the plan in this `FILE`, and nothing else")
	set.BoolVar(&run.yes, "yes", false, "do not ask")
	set.Int32Var(&run.tuning.Concurrency, "concurrency", 0, "at most `N` workload clusters at once (default 8)")
	set.Var(&checkedOne{&run.tuning.Canary, checkWorkload, "NS/NAME"}, "canary", "restore and release this workload cluster before all others")
	set.Int32Var(&run.tuning.MaxFailures, "max-failures", 0, "begin no further workload cluster once `N` have failed; 0 means no limit")
	set.DurationVar(&run.observe, "observe", 0, "watch the target for this `duration` after the last release, for Machines that come or go")
	_ = cmd.MarkFlagFilename("plan", "json", "yaml")
	return cmd
}

// read checks the flags that are not right one by one.
func (r *restoreRun) read(cmd *cobra.Command, flags *restoreFlags, planFile string) error {
	for _, name := range restoreFlagNames {
		if planFile != "" && cmd.Flags().Changed(name) {
			return usageError(cmd, "--%s and --plan exclude each other: the plan says it already", name)
		}
	}
	switch {
	case r.tuning.GetConcurrency() < 0:
		return usageError(cmd, "--concurrency is negative")
	case r.tuning.GetMaxFailures() < 0:
		return usageError(cmd, "--max-failures is negative")
	case r.observe < 0:
		return usageError(cmd, "--observe is negative")
	case r.observe > 0:
		r.tuning.Observe = durationpb.New(r.observe)
	}
	var err error
	r.spec, err = flags.read(cmd)
	return err
}

func runRestoreRun(ctx context.Context, p *program, c *connection, run *restoreRun) error {
	identity, err := p.readIdentity()
	if err != nil {
		return err
	}
	req := &mgmtv1.RunRestoreRequest{Spec: run.spec, Tuning: run.tuning, Identity: identity}
	if run.plan != nil {
		req.PlanDigest = run.plan.summary.GetDigest()
	}
	if !run.yes {
		looked := run.plan
		if looked == nil {
			if looked, err = requestPlan(ctx, c, run.spec, identity); err != nil {
				return err
			}
		}
		looked.writeSummary(p.stderr, p)
		if looked.summary.GetBlocked() {
			return exit(service.ExitFindings)
		}
		if err := p.confirm(ctx, "Restore this?"); err != nil {
			return err
		}
		req.PlanDigest = looked.summary.GetDigest()
	}
	err = p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation, error) {
		resp, err := c.restores.RunRestore(ctx, req)
		return resp.GetOperation(), err
	})
	if service.ExitCode(err) == service.ExitFindings && run.yes {
		p.showRefusal(ctx, c, run.spec, identity)
	}
	return err
}

// showRefusal shows why a run was refused: the refusal itself is one sentence, the findings are in the plan.
func (p *program) showRefusal(ctx context.Context, c *connection, spec *mgmtv1.RestoreSpec, identity []byte) {
	if pl, err := requestPlan(ctx, c, spec, identity); err == nil {
		pl.writeSummary(p.stderr, p)
	}
}
