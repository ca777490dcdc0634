package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// phase is a restore or a move of all workload clusters.
type phase struct {
	before, after observe.Objects
	begun         time.Time
	command       time.Duration
	events        []observe.Event // on its target
	unexplained   []string        // events that the phase does not explain
	references    int             // number of owner references
	dangling      []string        // owner references without a live owner
	conflicts     []string        // workload clusters that both management clusters reconciled
	left          []string        // objects that its source still has
}

// inspect reads the objects of the target, once they are healthy and their controllers have seen
// the end of the pause, or healthTimeout has passed, and nothing changes. The controller of
// MachineHealthChecks reconciles each of them every 15 s at most, and no command waits for all.
func (p *phase) inspect(ctx context.Context, kubeconfig string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*healthTimeout)
	defer cancel()
	waitCtx, cancelWait := context.WithTimeout(ctx, healthTimeout)
	defer cancelWait()
	// The report shows what stays unhealthy, so a timeout is no error.
	if after, err := observe.Await(waitCtx, kubeconfig, func(after observe.Objects) []string {
		return append(observe.Health(p.before, after), observe.CheckPaused(p.before, after)...)
	}); after == nil {
		return fmt.Errorf("inventory of the target: %w", err)
	}
	var err error
	if p.after, err = observe.StableInventory(ctx, kubeconfig); err != nil {
		return fmt.Errorf("inventory of the target: %w", err)
	}
	if p.references, p.dangling, err = observe.CheckOwners(ctx, kubeconfig); err != nil {
		return fmt.Errorf("check owners on the target: %w", err)
	}
	return nil
}

// check is one row of the report.
type check struct {
	name, result string
	problems     []string
}

// checks returns the checks of a phase in the order of the report. Both phases have the same
// checks.
func (p *phase) checks() []check {
	differences := observe.Compare(p.before, p.after, observe.Options{WithoutStatus: true})
	equal, different := len(p.before), make([]string, 0, len(differences))
	for _, difference := range differences {
		different = append(different, difference.String())
		if difference.What != observe.New {
			equal--
		}
	}
	authorities, hashes := observe.Authorities(p.before), observe.Authorities(p.after)
	var changed []string
	for ref, hash := range authorities {
		if hashes[ref] != hash {
			changed = append(changed, ref.String()+" has another CA or key than before")
		}
	}
	machines := len(observe.Machines(p.before))
	return []check{
		{"objects equal", fmt.Sprintf("%d of %d", equal, len(p.before)), different},
		{"owner references live", fmt.Sprintf("%d of %d", p.references-len(p.dangling), p.references),
			p.dangling},
		{"Machines unchanged", fmt.Sprintf("%d of %d",
			machines-len(observe.CompareMachines(p.before, p.after)), machines),
			observe.CompareMachines(p.before, p.after)},
		{"health", "as before", observe.Health(p.before, p.after)},
		{"paused", "as before", observe.CheckPaused(p.before, p.after)},
		{"CAs and keys unchanged", fmt.Sprintf("%d of %d", len(authorities)-len(changed),
			len(authorities)), changed},
		{"created again or lost", fmt.Sprint(len(p.unexplained)), p.unexplained},
	}
}
