package restore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
)

// realityError says that a workload cluster is not what the snapshot says, found right before its
// release.
type realityError struct{ finding object.Finding }

func (e *realityError) Error() string {
	return string(e.finding.Code) + ": " + e.finding.Ref.String() + ": " + e.finding.Message
}

// Hint says what to do next.
func (e *realityError) Hint() string { return e.finding.Hint }

// HintKey names the command that shows all findings.
func (e *realityError) HintKey() object.HintKey { return object.HintPlan }

// compareReality compares a unit with its workload cluster once more, right before its release: a
// plan may be days old. One that does not answer is released. Machines whose Node is gone are
// protected from remediation until post-flight is through.
func (r *run) compareReality(ctx context.Context, u Unit) error {
	var refs []object.Ref
	for _, o := range u.Objects {
		if o.Action != Skip {
			refs = append(refs, o.Ref)
		}
	}
	w, err := readRecorded(r.Rows, r.Contents, u.Name, refs)
	if err != nil {
		return err
	}
	gone := slices.Clone(u.Gone)
	force := r.Plan.Spec.Force
	if w.kubeconfig != nil && !w.otherCA() && r.silent.Load() < mostSilent {
		state, err := w.kubeconfig.Ask(ctx, w.ca)
		r.countSilent(err)
		_, otherCA := errors.AsType[*workload.CAError](err)
		switch {
		case otherCA && !force.Has(object.CodeCAMismatch):
			return &realityError{object.Finding{Severity: object.Error, Code: object.CodeCAMismatch,
				Ref: w.cluster, Message: err.Error()}}
		case err == nil:
			c := w.compare(state)
			findings := w.unknownFindings(c, object.Error, func(string) string { return "" })
			if !force.Has(object.CodeMachinesGone) {
				findings = append(findings, w.goneFindings(c, object.Error)...)
			}
			for _, f := range findings {
				if f.Severity >= object.Error {
					return &realityError{f}
				}
			}
			for _, m := range c.gone {
				gone = append(gone, m.ref)
			}
		}
	}
	return r.holdRemediation(ctx, u, gone)
}

// mostSilent is how many workload clusters in a row may give no answer before a run asks no further
// one: from a host outside of their network each would cost a slot of the run
// workload.AnswerWithin.
const mostSilent = 16

func (r *run) countSilent(err error) {
	if _, unknown := errors.AsType[*workload.UnknownError](err); unknown {
		r.silent.Add(1)
	} else {
		r.silent.Store(0)
	}
}

func holdStep(unit string) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "hold-remediation"}
}

// holdRemediation prevents health checks from replacing Machines. Each Machine that gets the
// annotation is journaled first, so that those that had it before keep it.
func (r *run) holdRemediation(ctx context.Context, u Unit, gone []object.Ref) error {
	if len(gone) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, holdStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		for _, o := range u.Objects {
			if o.Action == Skip || !slices.Contains(gone, o.Ref) {
				continue
			}
			var unrecorded error
			err := r.change(ctx, o, func(live *unstructured.Unstructured) bool {
				if _, has := live.GetAnnotations()[capi.AnnotationSkipRemediation]; has {
					return false
				}
				unrecorded = h.Record(ctx, catalog.Value{Key: o.Ref.String(),
					Data: json.RawMessage("true")})
				capi.Annotate(live.Object, capi.AnnotationSkipRemediation, "")
				return unrecorded == nil
			})
			if err := errors.Join(unrecorded, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// heldMachines returns the Machines that an annotation of ours keeps from remediation.
func (r *run) heldMachines(ctx context.Context, unit string) (map[string]json.RawMessage, error) {
	return r.Journal.Values(ctx, holdStep(unit))
}

// resumeRemediation takes the annotations of holdRemediation away again.
func (r *run) resumeRemediation(ctx context.Context, u Unit) error {
	held, err := r.heldMachines(ctx, u.Name)
	if err != nil || len(held) == 0 {
		return err
	}
	step := catalog.Step{Unit: u.Name, Phase: "resume-remediation"}
	return r.Journal.Do(ctx, step, func(ctx context.Context, _ *catalog.StepHandle) error {
		for _, o := range u.Objects {
			if held[o.Ref.String()] == nil {
				continue
			}
			err := r.change(ctx, o, func(live *unstructured.Unstructured) bool {
				_, has := live.GetAnnotations()[capi.AnnotationSkipRemediation]
				capi.Unannotate(live.Object, capi.AnnotationSkipRemediation)
				return has
			})
			if _, deleted := errors.AsType[*deletedError](err); err != nil && !deleted &&
				!apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	})
}
