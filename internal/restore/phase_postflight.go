package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// finishUnit waits until a released unit is healthy, and calls the hooks; atWork is called
// earlier, see waitAtWork. With OnUnhealthy Repause it pauses a unit that is not healthy.
func (r *run) finishUnit(ctx context.Context, u Unit, atWork func()) error {
	err := r.unpauseFirst(ctx, u)
	if err == nil || r.accepted[u.Name] {
		err = r.postFlight(ctx, u, atWork)
	} else if machines := r.compareMachines(ctx, u); isMachines(machines) {
		err = errors.Join(machines, err) // its controllers work
	}
	if err == nil {
		err = r.resumeRemediation(ctx, u)
	}
	if err == nil && r.Hooks.OnHealthy != nil {
		r.Hooks.OnHealthy(u, r.clusterUID(u))
	}
	return r.unhealthy(ctx, u, err)
}

// unhealthy reacts to the error of a post-flight, and returns it.
func (r *run) unhealthy(ctx context.Context, u Unit, err error) error {
	if r.Hooks.OnUnhealthy == Repause && ctx.Err() == nil && isUnhealthy(err) {
		return errors.Join(err, r.repause(ctx, u))
	}
	return err
}

func postFlightStep(unit string) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "post-flight"}
}

// Passed reports whether a unit has passed its post-flight: it is not compared any more.
func (u Unit) Passed(ctx context.Context, j *catalog.Journal) (bool, error) {
	state, err := j.State(ctx, postFlightStep(u.Name))
	return state == catalog.StepDone, err
}

// isUnhealthy reports whether err is what was seen of a unit; an API server that did not answer
// says nothing of it.
func isUnhealthy(err error) bool {
	_, waited := errors.AsType[*WaitError](err)
	return waited || isMachines(err)
}

func isMachines(err error) bool {
	_, ok := errors.AsType[*machinesError](err)
	return ok
}

// postFlight waits until a released unit is healthy: every object is there, equal in what
// controllers do not write, owned by live UIDs, acknowledged as no longer paused, and in no worse
// condition than on the source (of what is reconciled seldom, one object of each kind is). A
// Machine that came or went since the release ends it at once. A unit whose state the operator
// accepts is not examined. It changes nothing.
func (r *run) postFlight(ctx context.Context, u Unit, atWork func()) error {
	var objects []Object
	for _, o := range u.Objects {
		if o.Action != Skip {
			objects = append(objects, o)
		}
	}
	step := postFlightStep(u.Name)
	if done, err := r.stepDone(ctx, step); err != nil || done {
		return err
	}
	if r.accepted[u.Name] {
		return r.Journal.Do(ctx, step, func(context.Context, *catalog.StepHandle) error { return nil })
	}
	if err := r.waitHealthy(ctx, u, objects, atWork); err != nil {
		return fmt.Errorf("post-flight: %w", err)
	}
	for _, o := range objects {
		if o.Kind == "Secret" && o.Group == "" && strings.HasSuffix(o.Name, kubeconfigSuffix) {
			r.tryKubeconfig(ctx, u.Name, o)
		}
	}
	if !creates(u) && r.Hooks.OnUnhealthy == Leave {
		return nil
	}
	// Journaled, so that a resume days later does not compare this unit with the snapshot again.
	return r.Journal.Do(ctx, step, func(context.Context, *catalog.StepHandle) error { return nil })
}

// waitHealthy waits until the controllers are at work, calls atWork, and waits until no object of
// the unit has a problem.
func (r *run) waitHealthy(ctx context.Context, u Unit, objects []Object, atWork func()) error {
	prompt, slow := r.byPace(objects)
	awaited, err := r.awaitedInStage(objects)
	if err != nil {
		return err
	}
	wait, followed, err := r.postFlightWait(ctx, u, awaited)
	if err != nil {
		return err
	}
	defer followed.Close()
	if err := r.waitAtWork(ctx, u, awaited, wait); err != nil {
		return err
	}
	atWork()
	// A Machine without its Node makes the conditions of all that own it worse.
	held, err := r.heldMachines(ctx, u.Name)
	if err != nil {
		return err
	}
	unhealthy := r.problemOf(ctx, u, len(held) > 0)
	if err := wait(prompt, true, unhealthy); err != nil {
		return err
	}
	if r.Hooks.OnWell != nil {
		r.Hooks.OnWell(u)
	}
	followed.Close() // it shows none of the others
	return wait(slow, true, unhealthy)
}

// problemOf returns the function that says what is wrong with an object of a released unit. held:
// Machines of it lack their Nodes.
func (r *run) problemOf(ctx context.Context, u Unit, held bool) problemFunc {
	return func(o Object, source, live *unstructured.Unstructured) string {
		why := r.changed(ctx, o, source, live)
		if why != "" || u.StaysPaused || r.seldomAtWork(o.GroupKind()) {
			return why
		}
		if why = unseenRelease(o, source, live); why == "" && !held {
			why = r.degradedCondition(o, source, live)
		}
		if why == "" {
			r.noteSeldom(o, source)
		}
		return why
	}
}

// byPace divides objects into those of controllers that reconcile them at once, and the others.
func (r *run) byPace(objects []Object) (prompt, slow []Object) {
	for _, o := range objects {
		if r.Rows.Row(o.GroupKind()).RateLimited {
			slow = append(slow, o)
		} else {
			prompt = append(prompt, o)
		}
	}
	return prompt, slow
}

// awaitedInStage returns those of objects whose controllers acknowledge the end of a pause, and do
// so soon.
func (r *run) awaitedInStage(objects []Object) (awaited []Object, err error) {
	prompt, _ := r.byPace(objects)
	for _, o := range prompt {
		source, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return nil, err
		}
		if capi.PublishesPause(source.Object) && !o.Paused {
			awaited = append(awaited, o)
		}
	}
	return awaited, nil
}

// waitAtWork waits until the controllers have acknowledged the end of the pause of objects
// (awaitedInStage). Those of rate-limited controllers are left to the post-flight. Then it waits
// for Tuning.Settle. Controllers that publish nothing need that time, and the others replace the
// restored conditions within it. It ends with an error when a Machine was created or deleted.
func (r *run) waitAtWork(ctx context.Context, u Unit, awaited []Object, wait waitFunc) error {
	if !u.StaysPaused {
		// What was copied before the release has acknowledged its pause, so that what shows the end of
		// that is no older. What comes later is read by the waits after this one.
		if err := wait(awaited, false, unseenRelease); err != nil {
			return err
		}
	}
	if r.Hooks.OnAcknowledged != nil {
		r.Hooks.OnAcknowledged(u)
	}
	if err := retry.Sleep(ctx, r.Tuning.Settle); err != nil {
		return err
	}
	return wait(nil, true, nil)
}

// unseenRelease says that a controller has not acknowledged the end of the pause of an object.
func unseenRelease(o Object, source, live *unstructured.Unstructured) string {
	if !capi.PublishesPause(source.Object) || o.Paused {
		return ""
	}
	return capi.NotAcknowledged(live.Object, "False")
}

// waitFunc waits until no object has a problem.
// fresh as in run.wait.
type waitFunc func(objects []Object, fresh bool, find problemFunc) error

// postFlightWait returns the waitFunc of the post-flight of a unit, and what it follows of it: the
// caller closes that. Each of its polls compares the Machines, too.
func (r *run) postFlightWait(ctx context.Context, u Unit, followed []Object) (waitFunc,
	*kube.Followed, error) {
	released, err := r.stepDone(ctx, releaseStep(u.Name))
	if err != nil {
		return nil, nil, err
	}
	f := &kube.Followed{}
	if !u.StaysPaused {
		f = r.follow(ctx, followed, false)
	}
	// Of a unit that was at work before this operation the Machines may change.
	compare := func() error {
		if !released {
			return nil
		}
		return r.compareMachines(ctx, u)
	}
	e := WaitError{Side: "target", What: "the released unit to be as it was"}
	return func(objects []Object, fresh bool, find problemFunc) error {
		if !fresh {
			if err := compare(); err != nil { // the first poll may come late
				return err
			}
		}
		w := r.waiting(f, objects, r.postFlightLimit(), fresh, find)
		judge, compared := w.Judge, false
		w.Judge = func(ctx context.Context, objects []Object, known map[object.Ref][]byte) ([]Object,
			string, error) {
			if compared = known == nil; compared {
				if err := compare(); err != nil {
					return objects, "", err
				}
			}
			return judge(ctx, objects, known)
		}
		if err := Wait(ctx, e, w); err != nil || compared {
			return err
		}
		return compare()
	}, f, nil
}

// postFlightLimit returns how long a released unit may take to be healthy.
func (r *run) postFlightLimit() time.Duration {
	if r.Tuning.PostFlight > 0 {
		return r.Tuning.PostFlight
	}
	return r.Tuning.Wait + time.Duration(r.released.Load())*time.Second
}

// changed compares what controllers do not write: metadata, spec, data but for the volatile fields
// of the kind.
func (r *run) changed(ctx context.Context, o Object,
	source, live *unstructured.Unstructured) string {
	want := source.DeepCopy()
	if o.Action == Adopt {
		acceptPause(want, live)
	}
	if err := r.setOwners(want, o, false); err != nil {
		return err.Error()
	}
	d := r.standard().judge(ctx, o.Ref, want, live, equality.Spec)
	d = d.atWork(r.Rows.Row(o.GroupKind()), source)
	return cmp.Or(d.difference(), wrongOwner(want, live))
}

// degradedCondition names a condition that was True on the source and is not on the target; ""
// when there is none. A target that stores the kind at another version may not know a condition of
// the source at all: its absence says nothing then.
func (r *run) degradedCondition(o Object, source, live *unstructured.Unstructured) string {
	row := r.Rows.Row(o.GroupKind())
	stored, ok := kube.FindKind(r.Kinds, o.GroupKind())
	converted := ok && stored.APIVersion() != live.GetAPIVersion()
	was, is := comparedConditions(source, live)
	for _, c := range was {
		m, ok := c.(map[string]any)
		name, _ := m["type"].(string)
		if !ok || m["status"] != "True" || !row.IsGood(name) {
			continue
		}
		now := condition(is, name)
		if now == nil && !converted {
			return "condition " + name + " was True and is not there"
		}
		if now != nil && now["status"] != "True" {
			return fmt.Sprintf("condition %s was True and is %v (%v)", name, now["status"], now["reason"])
		}
	}
	return ""
}

// comparedConditions returns the conditions of the newest contract that both objects have. Where
// that is status.v1beta2.conditions, those of status.conditions are of the older contract, which
// the controllers of newer versions write by other rules, or not at all.
func comparedConditions(source, live *unstructured.Unstructured) (was, is []any) {
	was = sliceOf(source.Object, "status", "v1beta2", "conditions")
	is = sliceOf(live.Object, "status", "v1beta2", "conditions")
	if len(was) > 0 && len(is) > 0 {
		return was, is
	}
	return sliceOf(source.Object, "status", "conditions"), sliceOf(live.Object, "status", "conditions")
}

// tryKubeconfig asks the workload cluster's API server through its kubeconfig on the target, which
// may have been renewed since the snapshot. That it does not answer here is a warning only: this
// host may have no way to it, and the controllers' own view is in the conditions.
func (r *run) tryKubeconfig(ctx context.Context, unit string, o Object) {
	err := func() error {
		live, err := r.Reader.Get(ctx, kube.SecretKind, o.Namespace, o.Name)
		if err != nil {
			return errors.New(kube.SafeText(o.GroupKind(), err))
		}
		raw, err := live.MarshalJSON()
		if err != nil {
			return errors.New("it cannot be read")
		}
		k, problem := readKubeconfig(raw)
		if k == nil {
			return errors.New(problem)
		}
		return k.Reach(ctx)
	}()
	if err != nil && ctx.Err() == nil {
		r.report(ctx, unit, object.Finding{Severity: object.Warning, Code: object.CodeWorkloadAPI,
			Ref: o.Ref,
			Message: "the workload cluster's API server did not answer through this kubeconfig: " +
				err.Error(),
			Hint: "from this host there may be no way to it; see the condition RemoteConnectionProbe " +
				"of the Cluster"})
	}
}
