package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// planned is work that is planned before it runs: a restore or a move.
type planned interface {
	// kind is the noun of its commands.
	kind() string
	// request asks the server for the plan.
	request(ctx context.Context, c *connection) (*plan, error)
	// begin starts the run. The server refuses when its plan has another digest; an empty one
	// accepts any plan.
	begin(ctx context.Context, c *connection, tuning *mgmtv1.RestoreTuning, digest string) (
		*mgmtv1.Operation, error)
}

// runPlan prints a plan.
func runPlan(ctx context.Context, p *program, c *connection, work planned) error {
	pl, err := p.request(ctx, c, work)
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
	if pl.blocked() {
		p.sayPlanAgain(work)
		return exit(service.ExitFindings)
	}
	return nil
}

// request asks the server for a plan, and adds our commands to its hints.
func (p *program) request(ctx context.Context, c *connection, work planned) (*plan, error) {
	pl, err := work.request(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, f := range pl.findings {
		p.completeHint(f)
	}
	return pl, nil
}

// sayPlanAgain prints the command that follows a plan which findings block.
func (p *program) sayPlanAgain(work planned) {
	p.say("findings block this and nothing was changed; once their causes are mended, plan again:\n"+
		"  %s",
		p.planCommand(work.kind()))
}

// runFlags are the flags of "run" that do not decide the plan.
type runFlags struct {
	tuning   *mgmtv1.RestoreTuning
	observe  time.Duration
	limit    time.Duration // of post-flight
	planFile string
	yes      bool
	// plan is the plan of --plan, nil without the flag.
	plan *plan
	// pausing: the command has --max-pause, which is maxPause.
	pausing  bool
	maxPause time.Duration
}

// newRunFlags adds the flags of "run" to a command. verb is what is done to workload clusters, in
// the words of its help; concurrency is the server's default for --concurrency.
func newRunFlags(cmd *cobra.Command, verb string, concurrency int) *runFlags {
	f := &runFlags{tuning: &mgmtv1.RestoreTuning{MaxFailures: new(int32)}}
	cmd.Flags().StringVar(&f.planFile, "plan", "", "run the plan in this `FILE`, and nothing else")
	_ = cmd.MarkFlagFilename("plan", "json", "yaml")
	f.addTuning(cmd, verb, concurrency)
	return f
}

// addTuning adds all flags but --plan.
func (f *runFlags) addTuning(cmd *cobra.Command, verb string, concurrency int) {
	set := cmd.Flags()
	set.BoolVar(&f.yes, "yes", false, "do not ask")
	set.Int32Var(&f.tuning.Concurrency, "concurrency", 0, fmt.Sprintf("%s at most `N` workload "+
		"clusters at once (default %d)", verb, concurrency))
	set.Var(&checkedOne{&f.tuning.Canary, checkWorkload, "NS/NAME"}, "canary", verb+
		" this workload cluster before all others")
	set.Int32Var(f.tuning.MaxFailures, "max-failures", service.DefaultMaxFailures,
		"begin and release no further workload cluster once `N` have failed; 0 means no limit")
	set.DurationVar(&f.limit, "post-flight-timeout", 0, fmt.Sprintf("let a released workload "+
		"cluster take this `duration` to be healthy (default %s, and 1s for each one released)",
		strings.TrimSuffix(service.DefaultPostFlight.String(), "0s")))
	set.DurationVar(&f.observe, "observe", 0, "watch the target for this `duration` after the last "+
		"release: Machines that come or go, MachineHealthChecks that are not reconciled")
}

// addMaxPause adds the flag that limits the pause of a move.
func (f *runFlags) addMaxPause(cmd *cobra.Command) {
	f.pausing = true
	cmd.Flags().DurationVar(&f.maxPause, "max-pause", service.DefaultMaxPause, "give a workload "+
		"cluster back to the source when it is not handed over this `duration` after its pause; 0 "+
		"means no limit")
}

// read validates the flags, and reads the plan of --plan. decided are the flags that a plan already
// contains.
func (f *runFlags) read(p *program, cmd *cobra.Command, kind string, decided []string,
	needs []need) error {
	for _, name := range decided {
		if f.planFile != "" && cmd.Flags().Changed(name) {
			return usageError(cmd, "--%s and --plan exclude each other: the plan says it already", name)
		}
	}
	switch {
	case f.tuning.GetConcurrency() < 0:
		return usageError(cmd, "--concurrency is negative")
	case f.tuning.GetMaxFailures() < 0:
		return usageError(cmd, "--max-failures is negative")
	case f.limit < 0:
		return usageError(cmd, "--post-flight-timeout is negative")
	case f.observe < 0:
		return usageError(cmd, "--observe is negative")
	case f.maxPause < 0:
		return usageError(cmd, "--max-pause is negative")
	}
	if f.pausing {
		f.tuning.MaxPause = durationpb.New(f.maxPause)
	}
	if f.observe > 0 {
		f.tuning.Observe = durationpb.New(f.observe)
	}
	if f.limit > 0 {
		f.tuning.PostFlightTimeout = durationpb.New(f.limit)
	}
	if err := p.check(cmd, needs); err != nil || f.planFile == "" {
		return err
	}
	var err error
	if f.plan, err = readPlan(kind, f.planFile); err != nil {
		return err
	}
	p.planFlags, p.planFile = f.plan.header.flags(), f.planFile
	return f.plan.checkModifiers(cmd)
}

// checkModifiers returns an error for a plan with modified objects where no modifiers are given.
// The server would only find that it plans something else.
func (pl *plan) checkModifiers(cmd *cobra.Command) error {
	given := cmd.Flags().Lookup(modifiersFlagName)
	modified := slices.ContainsFunc(pl.findings, func(f *mgmtv1.Finding) bool {
		return f.GetCode() == string(object.CodeModified)
	})
	if given == nil || given.Changed || !modified {
		return nil
	}
	return &service.Error{Reason: service.ReasonUsage,
		Message: "the plan was made with resource modifiers, which are not in it",
		Hint:    "give the same file again", HintKey: object.HintResourceModifiers}
}

// consented returns an error when there is neither --yes nor a terminal to ask on.
func (f *runFlags) consented(p *program, cmd *cobra.Command) error {
	if f.yes || p.interactive {
		return nil
	}
	return usageError(cmd, "confirmation missing: give --yes, since there is no terminal to ask on")
}

// runPlanned shows the plan, asks, and carries it out; with --yes it starts at once.
func runPlanned(ctx context.Context, p *program, c *connection, work planned, f *runFlags) error {
	digest := ""
	if f.plan != nil {
		digest = f.plan.summary.GetDigest()
	}
	if !f.yes {
		shown := f.plan
		if shown == nil {
			var err error
			if shown, err = p.request(ctx, c, work); err != nil {
				return err
			}
		}
		shown.writeSummary(p.stderr, p)
		if shown.summary.GetBlocked() {
			p.sayPlanAgain(work)
			return exit(service.ExitFindings)
		}
		if err := p.confirm(ctx, fmt.Sprintf("%s%s this?", strings.ToUpper(work.kind()[:1]),
			work.kind()[1:])); err != nil {
			return err
		}
		digest = shown.summary.GetDigest()
	}
	err := p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation,
		error) {
		return work.begin(ctx, c, f.tuning, digest)
	})
	if service.ExitCode(err) == service.ExitFindings && f.yes {
		// The error has no findings; the plan has them.
		if pl, err := p.request(ctx, c, work); err == nil {
			pl.writeSummary(p.stderr, p)
		}
	}
	return err
}
