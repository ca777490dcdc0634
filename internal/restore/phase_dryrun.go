package restore

import (
	"context"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// dryRun asks the target about every object that the plan could not ask about, before anything of
// a unit is created. Units with a refusal are blocked: nothing of them is created, and a resume
// asks again. It changes the plan of this run only, never the stored one, and not the journaled
// state of a unit: UnitBlocked is the end of a unit in a move, and this one is still paused on the
// source.
func (r *run) dryRun(ctx context.Context) error {
	if r.Prober == nil {
		return nil
	}
	var g task.Group
	g.SetLimit(r.Tuning.Concurrency)
	for i := range r.Plan.Units {
		u := &r.Plan.Units[i]
		if u.Blocked || r.shared.blocked(u.Name, false) != nil {
			continue // what a shared object blocks would be refused for want of it
		}
		g.Go(func() error {
			refused, err := r.dryRunUnit(ctx, *u)
			u.Blocked = refused
			return err
		})
	}
	return g.Wait()
}

// dryRunUnit reports what the target says about the objects of one unit. refused: nothing of it
// may be created.
func (r *run) dryRunUnit(ctx context.Context, u Unit) (refused bool, err error) {
	todo := slices.DeleteFunc(early(u.Objects), func(o Object) bool {
		return o.Action != Create || o.Checked || r.uid(o.Ref) != ""
	})
	var about refusals
	s := r.standard()
	if err := r.each(todo, func(o Object) error {
		body, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return err
		}
		a, err := s.ask(ctx, r.Rows, r.kinds[o.GroupKind()], body)
		if err == nil && !a.exists { // created by a run that died before it was journaled
			about.addAnswer(o.Ref, a)
		}
		return err
	}); err != nil {
		return false, fmt.Errorf("%s: %w", u.Name, err)
	}
	for _, f := range about.findings(u.Name) {
		r.report(ctx, u.Name, f)
		refused = refused || f.Severity >= object.Error
	}
	return refused, nil
}
