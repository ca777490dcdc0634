package restore

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// A controller that reconciles seldom (capi.Row.RateLimited) acknowledges the end of a pause up to
// 15 s later than the others. How late says nothing of an object: only when the controller saw it
// last. So the post-flight waits for such an acknowledgement until one object of the kind has it:
// then the controller is at work on the target. The others are there and equal by then, and the
// other controllers, which run in the same manager, have acknowledged the rest of their unit. With
// Tuning.Observe the end of the run looks at all of them.

// seldomAtWork reports whether an object of the kind was seen to be reconciled after its release,
// by a controller that reconciles seldom.
func (r *run) seldomAtWork(gk object.GroupKind) bool {
	_, seen := r.seldom.Load(gk)
	return seen
}

// noteSeldom notes that an object has passed the post-flight.
func (r *run) noteSeldom(o Object, source *unstructured.Unstructured) {
	if r.Rows.Row(o.GroupKind()).RateLimited && capi.PublishesPause(source.Object) &&
		o.Action == Create && !o.Paused {
		r.seldom.Store(o.GroupKind(), true)
	}
}

// kindIn is a kind in one namespace.
type kindIn struct {
	object.GroupKind
	namespace string
}

// reportSeldom reports the kinds of which objects of released units have not acknowledged the end
// of the pause. That they cannot be read is no failure of the run.
func (r *run) reportSeldom(ctx context.Context) {
	left, err := r.seldomLeft(ctx)
	if err != nil && ctx.Err() == nil {
		r.report(ctx, "", object.Finding{Severity: object.Warning, Code: object.CodeNotAcknowledged,
			Message: "whether what is reconciled seldom has acknowledged the end of the pause is not " +
				"known: " + err.Error(), Hint: "look at the conditions Paused of MachineHealthChecks"})
	}
	for _, refs := range left {
		r.report(ctx, "", object.Finding{Severity: object.Warning, Code: object.CodeNotAcknowledged,
			Ref: refs[0], Message: fmt.Sprintf("%d objects of this kind have not acknowledged the end of "+
				"the pause", len(refs)),
			Hint: "look at their condition Paused in a minute; if it is still True, read the logs of " +
				"their controller"})
	}
}

// seldomLeft returns the objects of released units that are reconciled seldom and have not
// acknowledged the end of the pause, by kind. It lists each kind and namespace once.
func (r *run) seldomLeft(ctx context.Context) (map[object.GroupKind][]object.Ref, error) {
	names := map[kindIn]map[string]bool{}
	for _, u := range r.Plan.Units {
		_, slow := r.byPace(u.Objects)
		for _, o := range slow {
			if u.Blocked || u.StaysPaused || r.accepted[u.Name] || o.Action == Skip || o.Paused {
				continue
			}
			in := kindIn{o.GroupKind(), o.Namespace}
			if names[in] == nil {
				names[in] = map[string]bool{}
			}
			names[in][o.Name] = true
		}
	}
	left := map[object.GroupKind][]object.Ref{}
	for in, wanted := range names {
		refs, err := r.unacknowledged(ctx, in, wanted)
		if err != nil {
			return left, err
		}
		if len(refs) > 0 {
			left[in.GroupKind] = append(left[in.GroupKind], refs...)
		}
	}
	return left, nil
}

// unacknowledged returns the objects of some names whose controller has not acknowledged the end of
// the pause.
func (r *run) unacknowledged(ctx context.Context, in kindIn, names map[string]bool) (
	left []object.Ref, err error) {
	k, ok := kube.FindKind(r.Kinds, in.GroupKind)
	if !ok {
		return nil, nil
	}
	_, err = r.Reader.List(ctx, k, kube.ListOptions{Namespace: in.namespace},
		func(raw []byte) error {
			name := gjson.GetBytes(raw, fieldMetadata+".name").String()
			if !names[name] {
				return nil
			}
			live := &unstructured.Unstructured{}
			if err := live.UnmarshalJSON(raw); err != nil {
				return kube.SafeError(in.GroupKind, err)
			}
			if capi.PublishesPause(live.Object) && capi.NotAcknowledged(live.Object, "False") != "" {
				left = append(left, object.Ref{Group: in.Group, Kind: in.Kind, Namespace: in.namespace,
					Name: name})
			}
			return nil
		})
	return left, err
}
