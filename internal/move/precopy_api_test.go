//go:build api

package move_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestAPIMoveCopiesInItsPauseWhatHasChanged: objects are changed, made and deleted on the source
// after their unit was copied and before it is paused. The target has them as they are then. A unit
// that has lost an object is copied once more, and one that somebody has paused stays paused, which
// is reported. Without changes nothing is written in the pause.
func TestAPIMoveCopiesInItsPauseWhatHasChanged(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "pre-copy")
	machine := fx.one("Machine", classyUnits[0])
	fx.change(0, machine, func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, "example.test/earlier", "")
	})
	must(t, fx.awaitQuiet())
	made := fx.one("MachineHealthCheck", classyUnits[0])
	made.Name = classyUnits[0] + "-made-later"
	gone := fx.one("MachineHealthCheck", classyUnits[1])
	cluster := clusterRef(fx.namespace, classyUnits[0])
	e := fx.carryOut(fx.order(doMove), catalog.Succeeded,
		func(_ context.Context, r catalog.StepRecord) error {
			switch {
			case r.Step.Phase != "pause" || r.State != catalog.StepBegun:
				return nil
			case strings.HasSuffix(r.Step.Unit, classyUnits[0]):
				pause := func(u *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(u.Object, true, "spec", "paused")
				}
				pause(fx.was[cluster])
				return errors.Join(fx.liveOn(machine, made), fx.tryChange(0, cluster, pause))
			case strings.HasSuffix(r.Step.Unit, classyUnits[1]):
				return fx.loses(gone)
			}
			return nil
		})
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(false, st))
	if len(e.PreCopies) != 1 || !strings.Contains(e.PreCopies[0], classyUnits[1]+": ") {
		t.Errorf("copied once more: %q", e.PreCopies)
	}
	staysPaused := slices.DeleteFunc(e.Warnings, func(w string) bool {
		return !strings.HasPrefix(w, string(object.CodeStaysPaused))
	})
	if want := "stays-paused " + fx.namespace + "/" + classyUnits[0]; len(staysPaused) != 1 ||
		staysPaused[0] != want {
		t.Errorf("%q, not %s, is reported to stay paused", staysPaused, want)
	}

	written, copied := 0, 0
	for _, step := range fx.follow(t, fx.order(doMove), nil, catalog.Succeeded) {
		switch _, phase, _ := strings.Cut(strings.TrimPrefix(step.Step, "ns/"), "/"); {
		case !strings.HasPrefix(step.Step, "ns/w-"), step.Undo:
		case strings.HasPrefix(phase, "pre-create"):
			copied += step.Writes
		case strings.HasPrefix(phase, "create"), strings.HasPrefix(phase, "cluster-status"):
			written += step.Writes
		}
	}
	if copied == 0 || written > 0 {
		t.Errorf("%d writes before the pause, and %d in it", copied, written)
	}
}

// one returns an object of a kind of a unit.
func (fx *fixture) one(kind, unit string) object.Ref {
	fx.t.Helper()
	for ref := range fx.was {
		if ref.Kind == kind && unitName(ref.Name) == unit {
			return ref
		}
	}
	fx.t.Fatalf("%s has no %s", unit, kind)
	return object.Ref{}
}

// liveOn changes the fleet on the source as its controllers and users do: one object is changed,
// and one is made.
func (fx *fixture) liveOn(changed, made object.Ref) error {
	if err := fx.tryChange(fx.at, changed, func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, "example.test/later", "")
		capi.Unannotate(u.Object, "example.test/earlier")
	}); err != nil {
		return err
	}
	capi.Annotate(fx.was[changed].Object, "example.test/later", "")
	capi.Unannotate(fx.was[changed].Object, "example.test/earlier")

	ctx, like := fx.t.Context(), fx.one(made.Kind, classyUnits[0])
	u := fx.was[like].DeepCopy()
	u.SetName(made.Name)
	u.SetUID("")
	u.SetResourceVersion("")
	u.SetManagedFields(nil)
	u, err := fx.source().Writer().Create(ctx, fx.kind(fx.at, made.GroupKind()), u)
	if err != nil {
		return err
	}
	fx.was[made] = u.DeepCopy()
	return nil
}

// loses deletes an object on the source.
func (fx *fixture) loses(gone object.Ref) error {
	k := fx.kind(fx.at, gone.GroupKind())
	live, err := fx.source().Reader().Get(fx.t.Context(), k, gone.Namespace, gone.Name)
	if err != nil {
		return err
	}
	delete(fx.was, gone)
	return fx.source().Writer().Delete(fx.t.Context(), k, gone.Namespace, gone.Name, live.GetUID(), "")
}

// TestAPIMoveCopiesOnceMoreWhatTheTargetDoesNotUpdate: the target refuses to update what changed on
// the source after the pre-copy, as webhooks do with immutable fields. The copy is removed, without
// a controller of the target seeing that a Machine is deleted, and made whole in the pause.
func TestAPIMoveCopiesOnceMoreWhatTheTargetDoesNotUpdate(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "no-update")
	unit := classyUnits[1] // in a batch with another one
	machine := fx.one("Machine", unit)
	const label = "example.test/refused"
	allow := fx.denyOn(fx.target(), "UPDATE", "refuses-updates", "machines",
		`!("`+label+`" in object.metadata.?labels.orValue({})) ||`+
			`("`+label+`" in oldObject.metadata.?labels.orValue({}))`)
	defer allow()
	mark := func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, "", "metadata", "labels", label)
	}
	deleted := fx.watchDeleted(1 - fx.at)
	e := fx.carryOut(fx.order(doMove), catalog.Succeeded,
		func(_ context.Context, r catalog.StepRecord) error {
			if r.Step.Phase != "pause" || r.State != catalog.StepBegun ||
				!strings.HasSuffix(r.Step.Unit, unit) {
				return nil
			}
			mark(fx.was[machine])
			return fx.tryChange(fx.at, machine, mark)
		})
	if !slices.ContainsFunc(e.PreCopies, func(text string) bool {
		return strings.Contains(text, "not wanted here") && strings.Contains(text, "once more")
	}) {
		t.Errorf("it reported: %q", e.PreCopies)
	}
	fx.report(deleted())
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(false, st))
}

// watchDeleted lists Machines and their infrastructure on a side until the function that it returns
// is called, which returns those that were seen as being deleted.
func (fx *fixture) watchDeleted(i int) (stop func() []string) {
	ctx, cancel := context.WithCancel(fx.t.Context())
	seen := map[string]bool{}
	var done sync.WaitGroup
	done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			for _, k := range fx.sides[i].kinds {
				if k.Kind != "Machine" && k.Kind != "DevMachine" {
					continue
				}
				_, _ = fx.sides[i].Reader().List(ctx, k, kube.ListOptions{Namespace: fx.namespace,
					Metadata: true}, func(raw []byte) error {
					if meta := gjson.GetBytes(raw, "metadata"); meta.Get("deletionTimestamp").Exists() {
						seen[k.Kind+" "+meta.Get("name").String()+" is being deleted"] = true
					}
					return nil
				})
			}
		}
	})
	return func() []string {
		cancel()
		done.Wait()
		return slices.Sorted(maps.Keys(seen))
	}
}

// TestAPIRemoveByUIDLeavesAnotherObject: an object that is removed by its UID, without being read
// first, is left alone when it is another one, with nothing written to it.
func TestAPIRemoveByUIDLeavesAnotherObject(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "by-uid")
	ref := fx.one("MachineHealthCheck", classyUnits[0])
	k, was := fx.kind(fx.at, ref.GroupKind()), fx.get(fx.at, ref)
	remove := func(uid types.UID, version string) error {
		return restore.Remove(t.Context(), fx.source().Reader(), fx.source().Writer(), k, ref,
			metav1.ObjectMeta{UID: uid, ResourceVersion: version, Finalizers: []string{"any"}},
			func(*unstructured.Unstructured) error { return errOther })
	}
	if err := remove("another", ""); !errors.Is(err, errOther) {
		t.Errorf("another UID: %v", err)
	}
	if err := remove(was.GetUID(), "1"); !errors.Is(err, errOther) {
		t.Errorf("another version: %v", err)
	}
	if is := fx.get(fx.at, ref); is.GetResourceVersion() != was.GetResourceVersion() {
		t.Error("it was written to")
	}
	must(t, remove(was.GetUID(), was.GetResourceVersion()))
	if _, err := fx.source().Reader().Get(t.Context(), k, ref.Namespace, ref.Name); !apierrors.IsNotFound(
		err) {
		t.Errorf("it is there: %v", err)
	}
	must(t, remove(was.GetUID(), was.GetResourceVersion())) // once more
}

// TestAPIRemoveWritesNothingBeforeADeletion: what has no finalizers is deleted, and annotated only
// when a webhook or a policy refuses that.
func TestAPIRemoveWritesNothingBeforeADeletion(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "no-finalizers")
	allow := fx.denyOn(fx.source(), "DELETE", "asks-for-annotation", "machines",
		`"`+restore.AnnotationDeleteForMove+`" in oldObject.metadata.?annotations.orValue({})`)
	for kind, patches := range map[string]int{"MachineHealthCheck": 0, "Machine": 1} {
		ref := fx.one(kind, classyUnits[0])
		fx.change(fx.at, ref, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
		k, was := fx.kind(fx.at, ref.GroupKind()), fx.get(fx.at, ref)
		b := &between{Remover: fx.source().Writer()}
		must(t, restore.Remove(t.Context(), fx.source().Reader(), b, k, ref,
			metav1.ObjectMeta{UID: was.GetUID(), ResourceVersion: was.GetResourceVersion()},
			func(*unstructured.Unstructured) error { return errOther }))
		if _, err := fx.source().Reader().Get(t.Context(), k, ref.Namespace, ref.Name); b.patches !=
			patches || !apierrors.IsNotFound(err) {
			t.Errorf("%s: %d patches, want %d: %v", kind, b.patches, patches, err)
		}
	}
	allow()
}

var errOther = errors.New("another object")
