//go:build api

package move_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// bothSides is what both sides and the store hold at one moment.
type bothSides struct {
	source, target map[object.Ref]*unstructured.Unstructured
	namespaces     [2]*unstructured.Unstructured // by side; nil where there is none
	handed         map[string]bool
	// listed are, by side, the Clusters of the fleet on the list of the admission policy.
	listed [2][]string
}

func (fx *fixture) state() (st bothSides, err error) {
	ctx := fx.t.Context()
	if st.source, err = fx.tryLive(ctx, fx.at); err != nil {
		return st, err
	}
	if st.target, err = fx.tryLive(ctx, 1-fx.at); err != nil {
		return st, err
	}
	for i, s := range fx.sides {
		st.namespaces[i], err = s.Reader().Get(ctx, kube.NamespaceKind, "", fx.namespace)
		if err != nil && !apierrors.IsNotFound(err) {
			return st, err
		}
		if st.listed[i], err = fx.listed(ctx, s); err != nil {
			return st, err
		}
	}
	st.handed, err = fx.handedOver(ctx)
	return st, err
}

// listed returns the Clusters of the fleet that the admission policy of a side denies to create.
func (fx *fixture) listed(ctx context.Context, s *side) ([]string, error) {
	u, err := s.Reader().Get(ctx, kube.ConfigMapKind, "kube-system", "mgmtd-moved")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var units []string
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if unit, ok := strings.CutPrefix(key, fx.namespace+"."); ok {
			units = append(units, unit)
		}
	}
	return units, nil
}

// checkListed asserts what is on the lists of the admission policies.
func (fx *fixture) checkListed(st bothSides, source, target []string) (problems []string) {
	for i, want := range map[int][]string{fx.at: source, 1 - fx.at: target} {
		if !slices.Equal(st.listed[i], want) {
			problems = append(problems, fmt.Sprintf("mgmt-%d denies to create %v, want %v", i+1,
				st.listed[i], want))
		}
	}
	return problems
}

// removeNamespace deletes the empty namespace on the target, so that a move has to create it.
func (fx *fixture) removeNamespace() error {
	for deadline := time.Now().Add(time.Minute); ; {
		ns, err := fx.target().Reader().Get(fx.t.Context(), kube.NamespaceKind, "", fx.namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && ns.GetDeletionTimestamp() == nil {
			err = fx.target().Writer().Delete(fx.t.Context(), kube.NamespaceKind, "", fx.namespace,
				ns.GetUID(),
				"")
		}
		if err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("the namespace on the target does not go")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// checkNamespaces asserts that nothing of an operation is left on the namespaces, which stay on
// either side.
func checkNamespaces(st bothSides) (problems []string) {
	for i, ns := range st.namespaces {
		if ns == nil {
			continue
		}
		for _, a := range ours {
			if v, left := ns.GetAnnotations()[a]; left {
				problems = append(problems, fmt.Sprintf("the namespace on mgmt-%d still has %s=%s", i+1, a, v))
			}
		}
	}
	return problems
}

// checkCrashed asserts invariants I1 and I2 in the state that a dead process left.
func (fx *fixture) checkCrashed(st bothSides, began time.Time) (problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	for _, unit := range allUnits {
		ref := clusterRef(fx.namespace, unit)
		source, target := st.source[ref], st.target[ref]
		onSource, onTarget := source != nil && !isPaused(source), target != nil && !isPaused(target)
		switch {
		case unit == pausedUnit:
			if onSource || onTarget {
				add("I1: %s was paused before and is not now", unit)
			}
		case onSource && onTarget:
			add("I1: %s is at work on both sides", unit)
		case onTarget && !st.handed[unit] && !fx.noFence:
			add("I1: %s is at work on the target, which no ownership record names", unit)
		case onSource && st.handed[unit]:
			add("I1: %s is at work on the source, and the ownership record names the target", unit)
		}
		if st.handed[unit] && !slices.Contains(st.listed[fx.at], unit) {
			add("I1: %s is handed over, and the source does not deny to unpause or create it", unit)
		}
	}
	released := func(unit string) bool {
		target := st.target[clusterRef(fx.namespace, unit)]
		return target != nil && !capi.PausedByUs(target.Object)
	}
	gone := 0
	for ref, was := range fx.was {
		if st.source[ref] != nil {
			continue
		}
		gone++
		target := st.target[ref]
		if target == nil {
			add("I2: %s is on neither side", ref)
			continue
		}
		if paths := equality.Differences(nil, was.Object, target.Object, equality.All); len(paths) > 0 {
			add("I2: %s is gone from the source, and on the target it differs in %v", ref, paths)
		}
		units := []string{unitName(ref.Name)}
		if units[0] == "" {
			units = allUnits // shared
		}
		for _, unit := range units {
			if !released(unit) {
				add("I2: %s is gone from the source, and %s is not released on the target", ref, unit)
			}
		}
	}
	if gone > 0 {
		if err := fx.checkSnapshot(began); err != nil {
			add("I2: %d objects are gone from the source: %v", gone, err)
		}
	}
	return problems
}

// checkSnapshot asserts that the store has a whole snapshot of the source that is newer than the
// begin of the run.
func (fx *fixture) checkSnapshot(began time.Time) error {
	keys, err := fx.store.Snapshots(fx.t.Context(), fx.source().UID())
	if err != nil {
		return err
	}
	if len(keys) == 0 || keys[len(keys)-1].Time.Before(began.Truncate(time.Millisecond)) {
		return errors.New("there is no snapshot that is newer than the run")
	}
	e, err := fx.store.GetEnvelope(fx.t.Context(), keys[len(keys)-1])
	if err != nil {
		return err
	}
	report, err := fx.store.VerifyStructure(fx.t.Context(), e.Envelope, nil)
	if err == nil && len(report.Findings) > 0 {
		err = fmt.Errorf("snapshot %s: %v", e.ID, report.Findings)
	}
	return err
}

// ours are the annotations of which nothing may be left when an operation is over.
var ours = []string{capi.AnnotationOperation, capi.AnnotationWasPaused,
	restore.AnnotationDeleteForMove}

// checkFleet asserts that one side has the whole fleet, and nothing that it had not before.
func (fx *fixture) checkFleet(live map[object.Ref]*unstructured.Unstructured) (
	problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	uids := map[types.UID]bool{}
	for _, u := range live {
		uids[u.GetUID()] = true
	}
	for ref, was := range fx.was {
		u := live[ref]
		if u == nil {
			add("%s is not there", ref)
			continue
		}
		if paths := equality.Differences(nil, was.Object, u.Object, equality.All); len(paths) > 0 {
			add("%s differs in %v", ref, paths)
		}
		if isPaused(u) != isPaused(was) {
			add("%s: paused is %v, and was %v", ref, isPaused(u), isPaused(was))
		}
		if _, set, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "paused"); set &&
			!isPaused(was) && ref.GroupKind() == capi.Cluster {
			add("%s has spec.paused, which it had not", ref)
		}
		for _, o := range u.GetOwnerReferences() {
			if !uids[o.UID] {
				add("%s: its owner %s/%s has a UID that does not live", ref, o.Kind, o.Name)
			}
		}
		for _, a := range ours {
			if v, left := u.GetAnnotations()[a]; left {
				add("%s still has %s=%s", ref, a, v)
			}
		}
		if u.GetDeletionTimestamp() != nil {
			add("%s is being deleted", ref)
		}
	}
	for ref := range live {
		if fx.was[ref] == nil {
			add("%s is new", ref)
		}
	}
	return problems
}

// checkMoved asserts that the whole fleet is on the target and nothing of it on the source.
func (fx *fixture) checkMoved(st bothSides) (problems []string) {
	problems = append(fx.checkFleet(st.target), checkNamespaces(st)...)
	problems = append(problems, fx.checkListed(st, allUnits, nil)...)
	for ref := range st.source {
		problems = append(problems, fmt.Sprintf("%s is still on the source", ref))
	}
	for unit, handed := range st.handed {
		if !handed && !fx.noFence {
			problems = append(problems, "the ownership record of "+unit+" does not name the target")
		}
	}
	return problems
}

// checkBack asserts that the source is exactly what it was, and that nothing is left on the
// target.
func (fx *fixture) checkBack(st bothSides) (problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	problems = append(fx.checkFleet(st.source), checkNamespaces(st)...)
	if len(st.listed[fx.at]) > 0 { // what was moved away from the target before stays listed there
		add("the source still denies to unpause %v", st.listed[fx.at])
	}
	for ref, was := range fx.was {
		u := st.source[ref]
		if u == nil {
			continue
		}
		if u.GetUID() != was.GetUID() {
			add("%s was deleted and created again", ref)
		}
		for _, path := range [][]string{{"metadata", "annotations"}, {"metadata", "labels"},
			{"metadata", "finalizers"}, {"metadata", "ownerReferences"}, {"spec"}, {"data"}} {
			is, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
			should, _, _ := unstructured.NestedFieldNoCopy(was.Object, path...)
			if a, b := encode(is), encode(should); a != b {
				add("%s: %s is not exactly what it was", ref, strings.Join(path, "."))
			}
		}
	}
	for ref := range st.target {
		add("%s is left on the target", ref)
	}
	for unit, handed := range st.handed {
		if handed {
			add("the ownership record of %s names the target", unit)
		}
	}
	return problems
}

func encode(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// isPaused reports whether an object carries a switch that is set, as controllers read it.
func isPaused(u *unstructured.Unstructured) bool {
	_, annotated := u.GetAnnotations()[capi.AnnotationPaused]
	paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
	return annotated || paused && u.GetKind() == "Cluster"
}

// split divides the objects of the fleet into those of the units and all others.
func (fx *fixture) split(units ...string) (in, out map[object.Ref]*unstructured.Unstructured) {
	in, out = map[object.Ref]*unstructured.Unstructured{}, map[object.Ref]*unstructured.Unstructured{}
	for ref, u := range fx.was {
		if slices.Contains(units, unitName(ref.Name)) {
			in[ref] = u
		} else {
			out[ref] = u
		}
	}
	return in, out
}

// checkStays asserts that objects of the source are what they were, to the last annotation.
func (fx *fixture) checkStays(live, stay map[object.Ref]*unstructured.Unstructured) (
	problems []string) {
	for ref, was := range stay {
		u := live[ref]
		if u == nil {
			problems = append(problems, ref.String()+" is gone from the source")
			continue
		}
		if paths := equality.Differences(nil, was.Object, u.Object, equality.All); len(paths) > 0 &&
			!slices.Contains(paths, "metadata.ownerReferences") {
			problems = append(problems, fmt.Sprintf("%s of the source differs in %v", ref, paths))
		}
		if encode(u.GetAnnotations()) != encode(was.GetAnnotations()) || isPaused(u) != isPaused(was) {
			problems = append(problems, fmt.Sprintf("%s of the source: annotations %v, were %v; "+
				"paused %v, was %v", ref, u.GetAnnotations(), was.GetAnnotations(), isPaused(u), isPaused(was)))
		}
	}
	return problems
}
