package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// phase is one change of hands of all workload clusters.
type phase struct {
	before, after observe.Objects
	begun         time.Time
	command       time.Duration
	events        []observe.Event // on its target
	unexplained   []string        // events that it cannot explain
	references    int             // to owners
	dangling      []string        // those without a live owner
	twice         []string        // who was in two hands at once
	left          []string        // what its source still has
}

// look reads what the target holds, at rest, and healthy if it ever becomes so.
func (p *phase) look(ctx context.Context, kubeconfig string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	waitCtx, cancelWait := context.WithTimeout(ctx, patience)
	defer cancelWait()
	// What stays unhealthy is in the report, so this error is not needed.
	if after, err := observe.Await(waitCtx, kubeconfig, func(after observe.Objects) []string {
		return observe.Health(p.before, after)
	}); after == nil {
		return fmt.Errorf("look at the target: %w", err)
	}
	var err error
	if p.after, err = observe.Settled(ctx, kubeconfig); err != nil {
		return fmt.Errorf("look at the target: %w", err)
	}
	if p.references, p.dangling, err = observe.CheckOwners(ctx, kubeconfig); err != nil {
		return fmt.Errorf("look at owners on the target: %w", err)
	}
	return nil
}

// promise is one thing that has to be so, and what is not.
type promise struct {
	name, text string
	broken     []string
}

// promises of a phase, in the order of the report; those of both have the same names.
func (p *phase) promises() []promise {
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
			changed = append(changed, ref.String()+" is not the one of before")
		}
	}
	machines := len(observe.Machines(p.before))
	return []promise{
		{"objects equal", fmt.Sprintf("%d of %d", equal, len(p.before)), different},
		{"owner references live", fmt.Sprintf("%d of %d", p.references-len(p.dangling), p.references),
			p.dangling},
		{"Machines kept", fmt.Sprintf("%d of %d",
			machines-len(observe.CompareMachines(p.before, p.after)), machines),
			observe.CompareMachines(p.before, p.after)},
		{"health", "as before", observe.Health(p.before, p.after)},
		{"paused", "as before", observe.CheckPaused(p.before, p.after)},
		{"CAs and keys the same", fmt.Sprintf("%d of %d", len(authorities)-len(changed),
			len(authorities)), changed},
		{"made anew or lost", fmt.Sprint(len(p.unexplained)), p.unexplained},
	}
}
