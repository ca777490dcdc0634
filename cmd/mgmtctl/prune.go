package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// kindPrune is the kind of the operation.
const kindPrune = "prune"

func newPrune(p *program) *cobra.Command {
	return newGroup(&cobra.Command{
		Use:   "prune",
		Short: "Remove snapshots that no rule keeps, and free their space",
		Long: `Remove the snapshots of a store that no rule retains, and then all content that no
snapshot names.

A snapshot is retained while any of these applies: one of the --keep rules; its own expiry
(--ttl, or the ttl of its schedule); a pin; it is the newest of its scope (everything, or a
selection), or the newest verified one; an operation that has not ended needs it; or the grace:
until a newer snapshot is that old, a running snapshot may build on this one. Without any
--keep rule, snapshots without an expiry are never removed.`,
	}, newPrunePlan(p), newPruneRun(p))
}

// ageFlag is a flag that accepts a duration with days.
type ageFlag struct{ value *time.Duration }

// String is the present value.
func (a *ageFlag) String() string {
	if a.value == nil || *a.value == 0 {
		return ""
	}
	return a.value.String()
}

// Set accepts "30d", "12h", "1d12h".
func (a *ageFlag) Set(s string) error {
	d, err := service.ParseAge(s)
	if err == nil {
		*a.value = d
	}
	return err
}

// Type is what the help shows as the value.
func (a *ageFlag) Type() string { return "DURATION" }

// pruneFlags decide what a prune removes.
type pruneFlags struct {
	spec   *mgmtv1.PruneSpec
	keep   *mgmtv1.Retention
	within time.Duration
	grace  time.Duration
}

var keepFlagNames = []string{"keep-last", "keep-hourly", "keep-daily", "keep-weekly",
	"keep-monthly", "keep-within"}

func newPruneFlags(cmd *cobra.Command) *pruneFlags {
	f := &pruneFlags{spec: &mgmtv1.PruneSpec{}, keep: &mgmtv1.Retention{}}
	set := cmd.Flags()
	set.Int32Var(&f.keep.KeepLast, "keep-last", 0, "keep the newest `N` snapshots of each source")
	set.Int32Var(&f.keep.KeepHourly, "keep-hourly", 0, "keep the newest of each of the last `N` "+
		"hours that have snapshots (UTC)")
	set.Int32Var(&f.keep.KeepDaily, "keep-daily", 0, "the same of `N` days")
	set.Int32Var(&f.keep.KeepWeekly, "keep-weekly", 0, "the same of `N` weeks, from Monday")
	set.Int32Var(&f.keep.KeepMonthly, "keep-monthly", 0, "the same of `N` months")
	set.Var(&ageFlag{&f.within}, "keep-within", "keep all that are at most this much older "+
		"than the newest: 30d, 12h")
	addGrace(cmd, &f.grace)
	set.StringVar(&f.spec.Source, "source", "", "remove only snapshots of this source, by its "+
		"`NAME` or UID")
	set.BoolVar(&f.spec.AcceptGaps, "accept-gaps", false, "treat snapshots that are "+
		"missing without a record as removed on purpose, and record that")
	set.StringArrayVar(&f.spec.DropScopes, "drop-scope", nil, "remove all snapshots of this `SCOPE`, "+
		"also the newest: the name of a schedule that was removed, or an ID of snapshot list "+
		"(repeatable)")
	addLocation(cmd, &f.spec.Location)
	return f
}

func addGrace(cmd *cobra.Command, value *time.Duration) {
	cmd.Flags().Var(&ageFlag{value}, "grace", "how long content that a running snapshot may need "+
		"is safe (default 6h, at least 3h)")
}

// checkGrace refuses a grace that is too short before it reaches a server.
func checkGrace(cmd *cobra.Command, grace time.Duration) (*durationpb.Duration, error) {
	if !cmd.Flags().Changed("grace") {
		return nil, nil
	}
	if grace < service.MinGrace {
		return nil, usageError(cmd, "--grace is shorter than %s, which a snapshot that is "+
			"being taken needs", service.MinGrace)
	}
	return durationpb.New(grace), nil
}

// read returns the spec of the flags. Rules that are not given come from the config of the daemon.
func (f *pruneFlags) read(cmd *cobra.Command) (err error) {
	for _, name := range keepFlagNames {
		if !cmd.Flags().Changed(name) {
			continue
		}
		f.spec.Retention = f.keep
		if n, err := cmd.Flags().GetInt32(name); err == nil && n < 0 {
			return usageError(cmd, "--%s is negative", name)
		}
	}
	if f.within > 0 {
		f.keep.KeepWithin = durationpb.New(f.within)
	}
	f.spec.Grace, err = checkGrace(cmd, f.grace)
	return err
}

// consented returns an error when there is neither --yes nor a terminal to ask on.
func (p *program) consented(cmd *cobra.Command, yes bool) error {
	if yes || p.interactive {
		return nil
	}
	return usageError(cmd, "confirmation missing: give --yes, since there is no terminal to ask on")
}

// amountText returns how much is stored.
func amountText(a *mgmtv1.PruneAmount) string {
	return fmt.Sprintf("%s, %s", count(a.GetKeys(), "key"), size(a.GetBytes()))
}
