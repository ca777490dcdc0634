//go:build api

package move_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestAPIMoveAvoidsDangersOfClusterctl: each subtest is a danger of clusterctl move for which there
// is no other test. docs/development.md has the table of all of them.
func TestAPIMoveAvoidsDangersOfClusterctl(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "dangers")
	t.Run("BlockMoveHoldsItsWorkloadCluster", fx.testBlockMove)
	t.Run("ObjectOfTheSameNameIsLeftAlone", fx.testSameName)
	t.Run("DeletedObjectIsNotResurrected", fx.testResurrected)
	t.Run("SourceIsRetiredAfterTheTargetHasReconciled", fx.testRetiredLast)
	t.Run("OnlyTheVersionThatWasPreparedIsDeleted", fx.testPrecondition)
}

// beginning calls fn when a step of a unit begins for the first time.
func (fx *fixture) beginning(unit, phase string, fn func() error) func(context.Context,
	catalog.StepRecord) error {
	var once sync.Once
	return func(_ context.Context, r catalog.StepRecord) (err error) {
		if r.Step.Unit == fx.namespace+"/"+unit && r.Step.Phase == phase &&
			r.State == catalog.StepBegun {
			once.Do(func() { err = fn() })
		}
		return err
	}
}

// checkOnSource asserts that one unit is at work on the source, and that the others have moved.
func (fx *fixture) checkOnSource(t *testing.T, unit string) {
	t.Helper()
	for _, name := range allUnits {
		_, err := fx.source().Reader().Get(t.Context(), fx.kind(fx.at, capi.Cluster), fx.namespace, name)
		if here := err == nil; here != (name == unit) || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s is on the source: %v, %v", name, here, err)
		}
	}
	if isPaused(fx.get(fx.at, clusterRef(fx.namespace, unit))) {
		t.Errorf("%s is paused on the source", unit)
	}
}

// testBlockMove: clusterctl reads the annotation before the pause, and waits for minutes. Here it
// counts in the pause, and for its workload cluster alone, also on an object that comes then.
func (fx *fixture) testBlockMove(t *testing.T) {
	unit := classyUnits[1]
	machine := fx.one("Machine", unit)
	fx.change(fx.at, machine, func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, capi.AnnotationBlockMove, "")
	})
	fx.moveHeldBack(t, unit, machine, nil)
	check := fx.one("MachineHealthCheck", unit)
	like := fx.was[check].DeepCopy()
	check.Name = unit + "-held-back"
	fx.moveHeldBack(t, unit, check, fx.beginning(unit, "pause", func() error {
		like.SetName(check.Name)
		like.SetUID("")
		like.SetResourceVersion("")
		like.SetManagedFields(nil)
		capi.Annotate(like.Object, capi.AnnotationBlockMove, "")
		made, err := fx.source().Writer().Create(t.Context(), fx.kind(fx.at, check.GroupKind()), like)
		if err == nil {
			capi.Unannotate(made.Object, capi.AnnotationBlockMove)
			fx.was[check] = made
		}
		return err
	}))
}

// moveHeldBack moves a fleet of which the provider of one object holds its unit back, and then that
// unit.
func (fx *fixture) moveHeldBack(t *testing.T, unit string, held object.Ref,
	onStep func(context.Context, catalog.StepRecord) error) {
	t.Helper()
	o := fx.order(doMove)
	o.MaxPause = 40 * time.Second // the others must not take as long, on a machine that is busy
	e := fx.carryOut(o, catalog.Failed, onStep)
	if !strings.Contains(e.Message, "its provider holds the move back") {
		t.Errorf("it ended with: %s", e.Message)
	}
	fx.checkOnSource(t, unit)
	fx.change(fx.at, held, func(u *unstructured.Unstructured) {
		capi.Unannotate(u.Object, capi.AnnotationBlockMove)
	})
	fx.resumeToEnd()
}

// testSameName: clusterctl overwrites what is on the target.
func (fx *fixture) testSameName(t *testing.T) {
	unit := classyUnits[1]
	secret := object.Ref{Kind: "Secret", Namespace: fx.namespace, Name: unit + "-ca"}
	other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": secret.Namespace, "name": secret.Name},
		"data":     map[string]any{"tls.key": "b3RoZXI="}}}
	e := fx.carryOut(fx.order(doMove), catalog.Failed, fx.beginning(unit, "lock", func() (err error) {
		other, err = fx.target().Writer().Create(t.Context(), kube.SecretKind, other)
		return err
	}))
	if !slices.ContainsFunc(e.Findings, func(f string) bool {
		return strings.HasPrefix(f, string(object.CodeExistsDifferent)+" ") &&
			strings.Contains(f, secret.Name)
	}) {
		t.Errorf("findings: %q", e.Findings)
	}
	fx.checkOnSource(t, unit)
	is := fx.get(1-fx.at, secret)
	if is.GetUID() != other.GetUID() || is.GetResourceVersion() != other.GetResourceVersion() {
		t.Errorf("it was written to: %v", is.GetAnnotations())
	}
	must(t, fx.target().Writer().Delete(t.Context(), kube.SecretKind, secret.Namespace, secret.Name,
		other.GetUID(), ""))
	fx.carryOut(fx.order(doMove), catalog.Succeeded, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(false, st))
}

// testResurrected: clusterctl creates an object that is being deleted without its deletion
// timestamp. And it looks before its pause alone whether anything is under way: here an update in
// place begins after the plan.
func (fx *fixture) testResurrected(t *testing.T) {
	unit := classyUnits[1] // in a batch with another one
	like := fx.one("MachineHealthCheck", unit)
	k, dying := fx.kind(fx.at, like.GroupKind()), fx.was[like].DeepCopy()
	dying.SetName(unit + "-dying")
	dying.SetUID("")
	dying.SetResourceVersion("")
	dying.SetManagedFields(nil)
	dying.SetFinalizers([]string{"example.test/held"})
	dying, err := fx.source().Writer().Create(t.Context(), k, dying)
	must(t, err)
	ref := like
	ref.Name = dying.GetName()
	found := func(e end, code object.Code, name string) {
		t.Helper()
		if !slices.ContainsFunc(e.Findings, func(f string) bool {
			return strings.HasPrefix(f, string(code)+" ") && strings.Contains(f, name)
		}) {
			t.Errorf("findings: %q, without %s", e.Findings, code)
		}
	}
	machine := fx.one("Machine", unit)
	const update = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
	e := fx.carryOut(fx.order(doMove), catalog.Failed, fx.beginning(unit, "pause", func() error {
		fx.change(fx.at, machine, func(u *unstructured.Unstructured) {
			capi.Annotate(u.Object, update, "")
		})
		return nil
	}))
	found(e, object.CodeUpdatingInPlace, machine.Name)
	fx.checkOnSource(t, unit)
	fx.change(fx.at, machine, func(u *unstructured.Unstructured) { capi.Unannotate(u.Object, update) })
	e = fx.carryOut(fx.order(doResume), catalog.Failed, fx.beginning(unit, "pause", func() error {
		return fx.source().Writer().Delete(t.Context(), k, ref.Namespace, ref.Name, dying.GetUID(), "")
	}))
	found(e, object.CodeDeleting, ref.Name)
	fx.checkOnSource(t, unit)
	if _, err := fx.target().Reader().Get(t.Context(), k, ref.Namespace,
		ref.Name); !apierrors.IsNotFound(err) {
		t.Errorf("it is on the target: %v", err)
	}
	fx.change(fx.at, ref, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
	fx.carryOut(fx.order(doMove), catalog.Succeeded, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(false, st))
}

// testRetiredLast: clusterctl deletes on the source what nobody has reconciled on the target, and
// replaces the annotations of what it deletes, which a webhook may need.
func (fx *fixture) testRetiredLast(t *testing.T) {
	unit := classyUnits[0]
	machine := fx.one("Machine", unit)
	const by = "example.test/by"
	fx.change(fx.at, machine, func(u *unstructured.Unstructured) {
		capi.Annotate(u.Object, by, "somebody")
	})
	must(t, fx.awaitQuiet())
	allow := func() {}
	deleted := fx.watchDeleted(fx.at)
	fx.carryOut(fx.order(doMove), catalog.Succeeded, fx.beginning(unit, "retire", func() error {
		live, err := fx.tryLive(t.Context(), 1-fx.at)
		for ref, u := range live {
			if unitName(ref.Name) == unit && capi.PublishesPause(u.Object) {
				if why := capi.NotAcknowledged(u.Object, "False"); why != "" {
					t.Errorf("the target has not reconciled %s: %s", ref, why)
				}
			}
		}
		has := func(annotation string) string {
			return `"` + annotation + `" in oldObject.metadata.?annotations.orValue({})`
		}
		allow = fx.denyOn(fx.source(), "DELETE", "asks-for-annotations", "machines",
			`oldObject.metadata.name != "`+machine.Name+`" || `+has(by)+` && `+
				has(restore.AnnotationDeleteForMove))
		return err
	}))
	fx.report(deleted())
	allow()
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(false, st))
}

// between is a Remover in which something may happen before the first deletion.
type between struct {
	restore.Remover
	happens          func()
	patches, deletes int
}

func (b *between) PatchMetadata(ctx context.Context, k kube.Kind, namespace, name string,
	metadata map[string]any) (*unstructured.Unstructured, error) {
	b.patches++
	return b.Remover.PatchMetadata(ctx, k, namespace, name, metadata)
}

func (b *between) Delete(ctx context.Context, k kube.Kind, namespace, name string, uid types.UID,
	resourceVersion string) error {
	if b.deletes++; b.deletes == 1 && b.happens != nil {
		b.happens()
	}
	return b.Remover.Delete(ctx, k, namespace, name, uid, resourceVersion)
}

// testPrecondition: clusterctl deletes by the name alone. Here a controller puts its finalizer back
// on an object that is about to be deleted, and never sees the object as being deleted.
func (fx *fixture) testPrecondition(t *testing.T) {
	for _, kind := range []string{"DevMachine", "Machine"} { // which owns the other one
		ref := fx.one(kind, classyUnits[0])
		fx.change(fx.at, ref, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
		k, live := fx.kind(fx.at, ref.GroupKind()), fx.get(fx.at, ref)
		was := metav1.ObjectMeta{UID: live.GetUID()}
		if kind == "DevMachine" { // without finalizers in this version
			was.ResourceVersion = live.GetResourceVersion()
		}
		deleted := fx.watchDeleted(fx.at)
		b := &between{Remover: fx.source().Writer(), happens: func() {
			fx.change(fx.at, ref, func(u *unstructured.Unstructured) {
				u.SetFinalizers([]string{"example.test/back"})
			})
		}}
		must(t, restore.Remove(t.Context(), fx.source().Reader(), b, k, ref, was,
			func(*unstructured.Unstructured) error { return nil }))
		fx.report(deleted())
		if _, err := fx.source().Reader().Get(t.Context(), k, ref.Namespace,
			ref.Name); !apierrors.IsNotFound(err) || b.deletes != 2 {
			t.Errorf("after %d deletions: %v", b.deletes, err)
		}
	}
}
