package restore

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// Admit decides whether an operation may execute its plan. It emits the findings, and stores the
// plan in the form that a resume reads. It runs before anything changes. digest is that of the plan
// that the operator has seen; empty when there is none. Errors: *PlanChangedError; *FindingsError
// for a plan or a canary that is blocked; those of the catalog.
func (p *Plan) Admit(ctx context.Context, c *catalog.Catalog, j *catalog.Journal,
	canary, digest string, stored any) error {
	if err := j.EmitFindings(ctx, p.Findings); err != nil {
		return err
	}
	if digest != "" && digest != p.Digest() {
		return &PlanChangedError{Want: digest, Got: p.Digest()}
	}
	if err := p.CheckCanary(canary); err != nil {
		return err
	}
	if p.Blocked {
		return &FindingsError{Findings: p.Findings}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	if _, err := c.PutPlan(ctx, j.Operation(), bytes.NewReader(text)); err != nil {
		return err
	}
	for _, u := range p.Units {
		state := catalog.UnitPending
		if u.Blocked {
			state = catalog.UnitBlocked
		}
		if err := j.SetUnit(ctx, u.Name, state, ""); err != nil {
			return err
		}
	}
	return nil
}
