package restore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

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
	w, err := r.readUnit(u)
	if err == nil {
		err = r.useRenewed(ctx, w)
	}
	if err != nil {
		return err
	}
	gone := slices.Clone(u.Gone)
	force := r.Plan.Spec.Force
	if w.kubeconfig != nil && !w.otherCA() && (u.Compared || r.silent.Load() < mostSilent) {
		state, err := w.ask(ctx, nil)
		r.countSilent(err)
		r.reportSilent(ctx, u, w, err)
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
// one that did not answer in the plan either: from a host outside of their network each would cost
// a slot of the run workload.AnswerWithin.
const mostSilent = 16

// reportSilent reports a workload cluster that answered in the plan and does not before its
// release: what happened to it since is not known.
func (r *run) reportSilent(ctx context.Context, u Unit, w *recorded, err error) {
	if _, unknown := errors.AsType[*workload.UnknownError](err); unknown && u.Compared {
		r.report(ctx, u.Name, object.Finding{Severity: object.Warning, Code: object.CodeRealityUnknown,
			Ref: w.cluster, Message: "it could not be compared with the snapshot again right before its " +
				"release: " + err.Error(),
			Hint: "compare its Machines with the infrastructure"})
	}
}

func (r *run) countSilent(err error) {
	if _, unknown := errors.AsType[*workload.UnknownError](err); unknown {
		r.silent.Add(1)
	} else {
		r.silent.Store(0)
	}
}

// holdStep is the step in which a run holds Machines; one that finds more of them gone than the run
// before it has the next wave.
func holdStep(unit string, wave int) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "hold-remediation", Wave: wave}
}

// heldFor begins the value of the annotation of a Machine that an operation keeps from remediation.
const heldFor = "mgmtd operation "

// heldByOperation reports whether a Machine is kept from remediation by an operation of ours.
func heldByOperation(live *unstructured.Unstructured) bool {
	return strings.HasPrefix(live.GetAnnotations()[capi.AnnotationSkipRemediation], heldFor)
}

// Values of holdStep: whether a Machine got the annotation from this operation.
var heldByUs, heldByOthers = json.RawMessage("true"), json.RawMessage("false")

// holdRemediation prevents health checks from replacing Machines. Each Machine that gets the
// annotation is journaled first, so that those that had it before keep it.
func (r *run) holdRemediation(ctx context.Context, u Unit, gone []object.Ref) error {
	seen, wave, err := r.seenGone(ctx, u.Name)
	if err != nil {
		return err
	}
	var rest []Object
	for _, o := range u.Objects {
		if o.Action != Skip && slices.Contains(gone, o.Ref) && seen[o.Ref.String()] == nil {
			rest = append(rest, o)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, holdStep(u.Name, wave), func(ctx context.Context,
		h *catalog.StepHandle) error {
		recorded, err := r.Journal.Values(ctx, holdStep(u.Name, wave)) // by a run that died
		if err != nil {
			return err
		}
		for _, o := range rest {
			if err := r.holdMachine(ctx, h, o, recorded); err != nil {
				return err
			}
		}
		return nil
	})
}

// holdMachine annotates a Machine with this operation. What was recorded of it before counts: the
// annotation that is there may be ours.
func (r *run) holdMachine(ctx context.Context, h *catalog.StepHandle, o Object,
	recorded map[string]json.RawMessage) error {
	var unrecorded error
	key := o.Ref.String()
	err := r.change(ctx, o, func(live *unstructured.Unstructured) bool {
		why, has := live.GetAnnotations()[capi.AnnotationSkipRemediation]
		if recorded[key] == nil {
			value := heldByUs
			if has && why != heldFor+r.Operation { // a host that was lost may not have recorded it
				value = heldByOthers
			}
			unrecorded = h.Record(ctx, catalog.Value{Key: key, Data: value})
			recorded[key] = value
		}
		if has || unrecorded != nil {
			return false
		}
		capi.Annotate(live.Object, capi.AnnotationSkipRemediation, heldFor+r.Operation)
		return true
	})
	return errors.Join(unrecorded, err)
}

// seenGone returns the Machines that the steps that are done have seen, and the wave of the next
// step.
func (r *run) seenGone(ctx context.Context, unit string) (seen map[string]json.RawMessage, wave int,
	err error) {
	seen = map[string]json.RawMessage{}
	for ; ; wave++ {
		done, err := r.stepDone(ctx, holdStep(unit, wave))
		if err != nil || !done {
			return seen, wave, err
		}
		values, err := r.Journal.Values(ctx, holdStep(unit, wave))
		if err != nil {
			return nil, 0, err
		}
		maps.Copy(seen, values)
	}
}

// heldMachines returns the Machines that an annotation of ours keeps from remediation. The last
// step may not have ended.
func (r *run) heldMachines(ctx context.Context, unit string) (map[string]bool, error) {
	seen, wave, err := r.seenGone(ctx, unit)
	if err != nil {
		return nil, err
	}
	last, err := r.Journal.Values(ctx, holdStep(unit, wave))
	maps.Copy(seen, last)
	held := map[string]bool{}
	for ref, value := range seen {
		if bytes.Equal(value, heldByUs) {
			held[ref] = true
		}
	}
	return held, err
}

func resumeRemediationStep(unit string) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "resume-remediation"}
}

// resumeRemediation takes the annotations of holdRemediation away again, and those of an earlier
// operation that this one took the Machines over from.
func (r *run) resumeRemediation(ctx context.Context, u Unit) error {
	held, err := r.heldMachines(ctx, u.Name)
	if err != nil {
		return err
	}
	for _, o := range u.Objects {
		if o.Held {
			held[o.Ref.String()] = true
		}
	}
	if len(held) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, resumeRemediationStep(u.Name), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		for _, o := range u.Objects {
			if !held[o.Ref.String()] {
				continue
			}
			err := r.change(ctx, o, func(live *unstructured.Unstructured) bool {
				_, has := live.GetAnnotations()[capi.AnnotationSkipRemediation]
				capi.Unannotate(live.Object, capi.AnnotationSkipRemediation)
				return has
			})
			if err != nil && !isLost(o, err) {
				return err
			}
		}
		return nil
	})
}
