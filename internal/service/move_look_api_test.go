//go:build api

package service

import (
	"encoding/json"
	"errors"
	"fmt"
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

// moveState is what both sides and the store hold at one moment.
type moveState struct {
	source, target map[object.Ref]*unstructured.Unstructured
	namespaces     [2]*unstructured.Unstructured // by side; nil where there is none
	handed         map[string]bool
}

func (y *moveFixture) look() (st moveState, err error) {
	ctx := y.t.Context()
	if st.source, err = y.tryLive(ctx, y.at); err != nil {
		return st, err
	}
	if st.target, err = y.tryLive(ctx, 1-y.at); err != nil {
		return st, err
	}
	for i, s := range y.sides {
		st.namespaces[i], err = s.Reader().Get(ctx, kube.NamespaceKind, "", y.namespace)
		if err != nil && !apierrors.IsNotFound(err) {
			return st, err
		}
	}
	st.handed, err = y.handedOver(ctx)
	return st, err
}

// removeNamespace takes the empty namespace on the target away, so that a move has to make it.
func (y *moveFixture) removeNamespace() error {
	for deadline := time.Now().Add(time.Minute); ; {
		ns, err := y.target().Reader().Get(y.t.Context(), kube.NamespaceKind, "", y.namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && ns.GetDeletionTimestamp() == nil {
			err = y.target().Writer().Delete(y.t.Context(), kube.NamespaceKind, "", y.namespace, ns.GetUID(),
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
func checkNamespaces(st moveState) (problems []string) {
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
func (y *moveFixture) checkCrashed(st moveState, began time.Time) (problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	for _, unit := range allUnits {
		ref := clusterRef(y.namespace, unit)
		source, target := st.source[ref], st.target[ref]
		onSource, onTarget := source != nil && !isPaused(source), target != nil && !isPaused(target)
		switch {
		case unit == pausedUnit:
			if onSource || onTarget {
				add("I1: %s was paused before and is not now", unit)
			}
		case onSource && onTarget:
			add("I1: %s is at work on both sides", unit)
		case onTarget && !st.handed[unit] && !y.noFence:
			add("I1: %s is at work on the target, which no ownership record names", unit)
		case onSource && st.handed[unit]:
			add("I1: %s is at work on the source, and the ownership record names the target", unit)
		}
	}
	released := func(unit string) bool {
		target := st.target[clusterRef(y.namespace, unit)]
		return target != nil && !capi.PausedByUs(target.Object)
	}
	gone := 0
	for ref, was := range y.was {
		if st.source[ref] != nil {
			continue
		}
		gone++
		target := st.target[ref]
		if target == nil {
			add("I2: %s is on neither side", ref)
			continue
		}
		if paths := equality.Differences(was.Object, target.Object, equality.All); len(paths) > 0 {
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
		if err := y.checkSnapshot(began); err != nil {
			add("I2: %d objects are gone from the source: %v", gone, err)
		}
	}
	return problems
}

// checkSnapshot asserts that the store has a whole snapshot of the source that is newer than the
// begin of the run.
func (y *moveFixture) checkSnapshot(began time.Time) error {
	keys, err := y.store.Snapshots(y.t.Context(), y.source().UID())
	if err != nil {
		return err
	}
	if len(keys) == 0 || keys[len(keys)-1].Time.Before(began.Truncate(time.Millisecond)) {
		return errors.New("there is no snapshot that is newer than the run")
	}
	e, err := y.store.GetEnvelope(y.t.Context(), keys[len(keys)-1])
	if err != nil {
		return err
	}
	report, err := y.store.VerifyStructure(y.t.Context(), e.Envelope, nil)
	if err == nil && len(report.Findings) > 0 {
		err = fmt.Errorf("snapshot %s: %v", e.ID, report.Findings)
	}
	return err
}

// ours are the annotations of which nothing may be left when an operation is over.
var ours = []string{capi.AnnotationOperation, capi.AnnotationWasPaused,
	restore.AnnotationDeleteForMove}

// checkFleet asserts that one side has the whole fleet, and nothing that it had not before.
func (y *moveFixture) checkFleet(live map[object.Ref]*unstructured.Unstructured) (
	problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	uids := map[types.UID]bool{}
	for _, u := range live {
		uids[u.GetUID()] = true
	}
	for ref, was := range y.was {
		u := live[ref]
		if u == nil {
			add("%s is not there", ref)
			continue
		}
		if paths := equality.Differences(was.Object, u.Object, equality.All); len(paths) > 0 {
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
		if y.was[ref] == nil {
			add("%s is new", ref)
		}
	}
	return problems
}

// checkMoved asserts that the whole fleet is on the target and nothing of it on the source.
func (y *moveFixture) checkMoved(st moveState) (problems []string) {
	problems = append(y.checkFleet(st.target), checkNamespaces(st)...)
	for ref := range st.source {
		problems = append(problems, fmt.Sprintf("%s is still on the source", ref))
	}
	for unit, handed := range st.handed {
		if !handed && !y.noFence {
			problems = append(problems, "the ownership record of "+unit+" does not name the target")
		}
	}
	return problems
}

// checkBack asserts that the source is exactly what it was, and that nothing is left on the target.
func (y *moveFixture) checkBack(st moveState) (problems []string) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	problems = append(y.checkFleet(st.source), checkNamespaces(st)...)
	for ref, was := range y.was {
		u := st.source[ref]
		if u == nil {
			continue
		}
		if u.GetUID() != was.GetUID() {
			add("%s was made anew", ref)
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
