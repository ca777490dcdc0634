package restore

import (
	"context"
	"errors"
	"io"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/task"
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
	if err := put(ctx, c, j.Operation(), stored); err != nil {
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

// put stores a plan as encoding/json writes it, piece by piece: the text of a plan of a thousand
// workload clusters takes 40 MiB to make, at a time when most of a move is in memory.
func put(ctx context.Context, c *catalog.Catalog, id catalog.OperationID, stored any) error {
	r, w := io.Pipe()
	defer func() { _ = r.Close() }()
	var g task.Group
	g.Go(func() error {
		err := errPlanNotEncoded // unless the encoder returns
		defer func() { _ = w.CloseWithError(err) }()
		err = jsonv2.MarshalWrite(w, stored, jsonv1.DefaultOptionsV1())
		return err
	})
	_, err := c.PutPlan(ctx, id, r)
	_ = r.CloseWithError(err) // it may not have read all
	encodeErr := g.Wait()
	if _, panicked := errors.AsType[*task.PanicError](encodeErr); panicked || err == nil {
		return encodeErr
	}
	return err
}

var errPlanNotEncoded = errors.New("the plan could not be encoded")
