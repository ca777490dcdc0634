package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// answer is what the target says about a create that stores nothing.
type answer struct {
	// refusal are its words when it refuses the object; down: a webhook did not answer.
	refusal string
	down    bool
	// unknown: the target cannot say, because a webhook supports no dry-run.
	unknown bool
	// exists: the target has an object of this name.
	exists bool
	// deviation of what it would store from what is sent. Of managedFields and status, which a
	// create does not set, it says nothing.
	deviation deviation
	// rollsOut are the paths in which it would change what Cluster API compares with the Machines
	// that there are: it would replace them.
	rollsOut []string
}

// ask sends an object as a dry-run of a create. Owners that do not live on the target yet have the
// UIDs of the source: admission does not check them. An error says nothing of the object: the
// target did not answer, or ctx has ended.
func (s standard) ask(ctx context.Context, rows *capi.Table, k kube.Kind,
	body *unstructured.Unstructured) (answer, error) {
	strip(body)
	rows.Pause(body.Object)
	delete(body.Object, "status")
	stored, err := s.dryRunCreate(ctx, k, body)
	hangs, isDown := errors.AsType[*downError](err)
	switch {
	case ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	case isDown:
		return answer{down: true, refusal: kube.SafeText(k.GroupKind, hangs.err)}, nil
	case kube.Unanswered(err):
		return answer{}, kube.SafeError(k.GroupKind, err)
	case apierrors.IsAlreadyExists(err):
		return answer{exists: true}, nil
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "dry run"):
		return answer{unknown: true}, nil
	case err != nil:
		return answer{refusal: kube.SafeText(k.GroupKind, err)}, nil
	}
	ref := object.Ref{Group: k.Group, Kind: k.Kind}
	a := answer{deviation: s.judge(ctx, ref, body, stored, equality.Spec)}
	if is, ok := kube.FindKind(s.kinds, k.GroupKind); ok && is.Version != k.Version {
		// The answer went through the version that the target stores.
		a.deviation.converted = append(a.deviation.converted, a.deviation.lost...)
		a.deviation.lost = nil
	}
	a.rollsOut = s.comparedPaths(rows.Row(k.GroupKind), body, a.deviation)
	return a, nil
}

// dryRunCreate repeats a dry-run while its failure may pass. It returns a *downError when a webhook
// does not answer.
func (s standard) dryRunCreate(ctx context.Context, k kube.Kind, body *unstructured.Unstructured) (
	stored *unstructured.Unstructured, err error) {
	err = kube.Retry(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
		defer cancel()
		stored, err = s.prober.DryRunCreate(ctx, k, body)
		if down(err) {
			return &downError{err} // it hangs for seconds: once is enough
		}
		return err
	})
	return stored, err
}

// comparedPaths returns the paths of a deviation whose values a controller compares with Machines,
// and which the operator does not accept.
func (s standard) comparedPaths(row *capi.Row, body *unstructured.Unstructured,
	d deviation) []string {
	var paths []string
	for _, path := range slices.Concat(d.lost, d.added) {
		if row.IsCompared(body.Object, path) && !s.accepts(row.GroupKind, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// rotate adds to an answer about a template of a ClusterClass what the topology controller would
// find different from what it has made of it: the paths that the target adds to the template, and
// not to the copies of it. Where a policy or a default adds to all of them, nothing differs. It
// reports false when the target cannot say what it adds to the copies yet.
func (s standard) rotate(ctx context.Context, rows *capi.Table, a *answer,
	template *unstructured.Unstructured, ref object.Ref, copies func() []copyOf) (known bool,
	err error) {
	var added []string
	for _, path := range a.deviation.added {
		if strings.HasPrefix(path, "spec.") && !s.accepts(ref.GroupKind(), path) {
			added = append(added, path)
		}
	}
	if len(added) == 0 || !capi.IsClassTemplate(template.Object) {
		return true, nil
	}
	for _, c := range copies() {
		body, err := c.decode()
		if err != nil {
			return false, err
		}
		if !capi.ClonedFrom(body.Object, ref) {
			continue
		}
		if c.kind.GroupKind != ref.GroupKind() {
			// It is not replaced, but written to: that replaces Machines when it is compared.
			if len(rows.Row(c.kind.GroupKind).Compared) > 0 {
				a.rollsOut = append(a.rollsOut, added...)
			}
			continue
		}
		same, err := s.ask(ctx, rows, c.kind, body)
		if err != nil || same.refusal != "" {
			return false, err
		}
		for _, path := range added {
			if !slices.Contains(same.deviation.added, path) {
				a.rollsOut = append(a.rollsOut, path)
			}
		}
	}
	slices.Sort(a.rollsOut)
	a.rollsOut = slices.Compact(a.rollsOut)
	return true, nil
}

// copyOf is an object of a unit that may have been made from a template.
type copyOf struct {
	kind   kube.Kind
	decode func() (*unstructured.Unstructured, error)
}

// downError stops the retries of a dry-run.
type downError struct{ err error }

func (e *downError) Error() string { return e.err.Error() }

// refusals collects what the target says about the objects of one unit. It may be used
// concurrently.
type refusals struct {
	notes
	mu     sync.Mutex
	counts map[object.Code]*refusal
}

// refusal is one kind of answer that blocks a unit: of how many objects, and which is the first.
type refusal struct {
	objects int
	first   object.Ref
	words   string
}

func (r *refusals) addAnswer(ref object.Ref, a answer) {
	r.addDeviation(ref, a.deviation)
	switch {
	case a.down:
		r.refuse(object.CodeWebhookDown, ref, a.refusal)
	case a.refusal != "":
		r.refuse(object.CodeRefusedByTarget, ref, a.refusal)
	case a.unknown:
		r.add(object.CodeNotChecked, ref, []string{"a webhook that supports no dry-run"})
	case len(a.rollsOut) > 0:
		r.refuse(object.CodeWouldRollOut, ref, shortened(a.rollsOut))
	case len(a.deviation.lost) > 0:
		r.refuse(object.CodeChangedByTarget, ref, shortened(a.deviation.lost))
	}
}

func (r *refusals) refuse(code object.Code, ref object.Ref, words string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[object.Code]*refusal{}
	}
	if r.counts[code] == nil {
		r.counts[code] = &refusal{first: ref, words: words}
	}
	one := r.counts[code]
	one.objects++
	if object.CompareRefs(ref, one.first) < 0 {
		one.first, one.words = ref, words
	}
}

// refusalTexts are the answers that block a unit, in the order in which they are reported.
var refusalTexts = []struct {
	code          object.Code
	message, hint string
}{
	{object.CodeWebhookDown, "a webhook of the target does not answer",
		"wait until the provider's controllers run and their certificates are in place"},
	{object.CodeRefusedByTarget, "the target refuses to create it",
		"change what refuses it on the target: a policy, a webhook, a quota or a validation rule"},
	{object.CodeStatusInvalid, "its status is not valid by the schema of the target",
		"install the provider of this kind on the target at the version of the source"},
	{object.CodeWouldRollOut, "the target would change what Cluster API compares with the Machines, " +
		"and would replace them", "stop the policy or the webhook that changes it, or accept the " +
		"difference when you want the rollout"},
	{object.CodeChangedByTarget, "the target would change values of the snapshot",
		"stop the policy or the webhook that changes them, or accept the difference"},
}

// refusedError says that the target would not create an object as it is in the snapshot.
type refusedError struct{ text, hint string }

func (e *refusedError) Error() string { return e.text }

// Hint says what to do next.
func (e *refusedError) Hint() string { return e.hint }

// refused returns a *refusedError when an answer keeps an object from being created.
func (a answer) refused(ref object.Ref) error {
	var about refusals
	about.addAnswer(ref, a)
	for _, f := range about.findings("") {
		if f.Severity >= object.Error {
			return &refusedError{f.Message, f.Hint}
		}
	}
	return nil
}

// findings returns one finding for each kind of answer.
func (r *refusals) findings(unit string) []object.Finding {
	out := r.notes.findings(unit)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range refusalTexts {
		one := r.counts[text.code]
		if one == nil {
			continue
		}
		message := text.message + ": " + one.words
		if one.objects > 1 {
			message = fmt.Sprintf("%s (and %d objects more)", message, one.objects-1)
		}
		out = append(out, object.Finding{Severity: object.Error, Code: text.code, Unit: unit,
			Ref: one.first, Message: message, Hint: text.hint})
	}
	return out
}
