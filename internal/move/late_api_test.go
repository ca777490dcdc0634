//go:build api

package move_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// whenOnce returns an observer of steps that calls fn once: at a phase of a unit of the fleet.
func (fx *fixture) whenOnce(unit, phase string, state catalog.StepState, fn func() error) func(
	context.Context, catalog.StepRecord) error {
	var once sync.Once
	return func(_ context.Context, r catalog.StepRecord) (err error) {
		if r.Step.Unit == fx.namespace+"/"+unit && r.Step.Phase == phase && r.State == state {
			once.Do(func() { err = fn() })
		}
		return err
	}
}

// hasLateWrite checks that an operation reported a write to an object of the source.
func (e end) hasLateWrite(t *testing.T, words ...string) {
	t.Helper()
	if !slices.ContainsFunc(e.Findings, func(f string) bool {
		return strings.HasPrefix(f, string(object.CodeChangedLate)) &&
			!slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(f, w) })
	}) {
		t.Errorf("no finding %s with %q: %q", object.CodeChangedLate, words, e.Findings)
	}
}

// left returns how many objects of a unit are on the source.
func (fx *fixture) left(unit string) (n int) {
	fx.t.Helper()
	for ref := range fx.live(fx.at) {
		if unitName(ref.Name) == unit {
			n++
		}
	}
	return n
}

// accept accepts a unit of the newest operation.
func (fx *fixture) accept(unit string) {
	fx.t.Helper()
	c, err := fx.order(doResume).openCatalog(fx.t.Context())
	must(fx.t, err)
	ops, err := c.Operations(fx.t.Context(), catalog.OperationFilter{Limit: 1})
	must(fx.t, err)
	must(fx.t, c.AcceptUnit(fx.t.Context(), ops[0].ID, object.Finding{Severity: object.Warning,
		Code: object.CodeUnitAccepted, Unit: fx.namespace + "/" + unit}))
	must(fx.t, c.Close())
}

func scale(to int64) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, to, "spec", "replicas")
	}
}

// TestAPIMoveKeepsWhatSomebodyWroteAfterTheHandOver: somebody scales a MachineDeployment of the
// source after the release of its workload cluster, and creates another one. Nothing of that one is
// removed, by this run or by a resume, until the operator accepts it. Then what was created stays
// there, and is reported. The source's controllers write a status of another one, which is moved.
func TestAPIMoveKeepsWhatSomebodyWroteAfterTheHandOver(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "late")
	unit, other := classyUnits[0], classyUnits[1]
	scaled := fx.one("MachineDeployment", unit)
	created := scaled
	created.Name = "somebodys"
	machine := fx.one("DevCluster", other)
	e := fx.carryOut(fx.order(doMove), catalog.Failed, fx.whenOnce(unit, "release", catalog.StepDone,
		func() error {
			u := fx.get(fx.at, machine)
			_ = unstructured.SetNestedField(u.Object, "once more", "status", "failureMessage")
			if _, err := fx.source().Writer().UpdateStatus(t.Context(),
				fx.kind(fx.at, machine.GroupKind()), u); err != nil {
				return err
			}
			if err := fx.createLike(fx.at, scaled, created.Name); err != nil {
				return err
			}
			return fx.tryChange(fx.at, scaled, scale(7))
		}))
	e.hasLateWrite(t, scaled.Name, "spec.replicas")
	if want := string(object.CodeCreatedOnSource) + " " + fx.namespace + "/" +
		unit; !slices.Contains(e.Warnings, want) {
		t.Errorf("it warns of %q, not of %q", e.Warnings, want)
	}
	moved, _ := fx.split(unit)
	if n := fx.left(unit); n != len(moved) || fx.left(other) > 0 {
		t.Errorf("%d of %d objects are left of %s, and %d of %s", n, len(moved), unit, fx.left(other),
			other)
	}
	if n, _, _ := unstructured.NestedInt64(fx.get(fx.at, scaled).Object, "spec", "replicas"); n != 7 {
		t.Errorf("it has %d replicas", n)
	}
	o := fx.elsewhere(doResume)
	fx.carryOut(o, catalog.Failed, nil).hasLateWrite(t, scaled.Name, "spec.replicas")
	if n := fx.left(unit); n != len(moved) {
		t.Errorf("after a resume %d of %d objects are left", n, len(moved))
	}
	fx.accept(unit)
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	fx.get(fx.at, created)
	fx.remove(fx.at, func(name string) bool { return name == created.Name })
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkMoved(st))
}

// createLike creates an object with the labels and the spec of another one, as a user would.
func (fx *fixture) createLike(i int, like object.Ref, name string) error {
	k := fx.kind(i, like.GroupKind())
	u, err := fx.sides[i].Reader().Get(context.Background(), k, like.Namespace, like.Name)
	if err != nil {
		return err
	}
	made := &unstructured.Unstructured{Object: map[string]any{"spec": u.Object["spec"]}}
	made.SetAPIVersion(u.GetAPIVersion())
	made.SetKind(u.GetKind())
	made.SetNamespace(u.GetNamespace())
	made.SetName(name)
	made.SetLabels(map[string]string{capi.LabelClusterName: u.GetLabels()[capi.LabelClusterName]})
	_, err = fx.sides[i].Writer().Create(context.Background(), k, made)
	return err
}

// TestAPIMoveKeepsWhatSomebodyWritesDuringTheRemoval: the writes come when the objects of a
// workload cluster were compared and its removal has begun. Nothing is removed above them. Once the
// target has the same, a resume goes on.
func TestAPIMoveKeepsWhatSomebodyWritesDuringTheRemoval(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "during")
	unit := classyUnits[0]
	infrastructure := fx.one("DevCluster", unit)
	secret := object.Ref{Kind: "Secret", Namespace: fx.namespace, Name: unit + "-kubeconfig"}
	writes := []func(i int) error{
		func(i int) error {
			return fx.tryChange(i, infrastructure, func(u *unstructured.Unstructured) {
				labels := u.GetLabels()
				if labels == nil {
					labels = map[string]string{}
				}
				labels["example.test/by"] = "somebody"
				u.SetLabels(labels)
			})
		},
		func(i int) error {
			return fx.tryChange(i, secret, func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, "bmV3", "data", "value")
			})
		},
	}
	e := fx.carryOut(fx.order(doMove), catalog.Failed, fx.whenOnce(unit, "retire", catalog.StepBegun,
		func() error {
			if err := writes[0](fx.at); err != nil {
				return err
			}
			return writes[1](fx.at)
		}))
	e.hasLateWrite(t)
	live := fx.live(fx.at)
	for _, ref := range []object.Ref{infrastructure, secret, clusterRef(fx.namespace, unit)} {
		if live[ref] == nil {
			t.Errorf("%s is gone from the source", ref)
		}
	}
	if got, want := encode(live[infrastructure].GetFinalizers()),
		encode(fx.was[infrastructure].GetFinalizers()); got != want {
		t.Errorf("its finalizers are %s, were %s", got, want)
	}
	n := fx.left(unit)
	fx.carryOut(fx.order(doResume), catalog.Failed, nil).hasLateWrite(t, infrastructure.Name,
		secret.Name, "metadata.labels.example.test/by", "data.value")
	if now := fx.left(unit); now != n {
		t.Errorf("the resume has removed %d objects", n-now)
	}
	for _, write := range writes {
		must(t, write(1-fx.at))
	}
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	if n := fx.left(unit); n > 0 {
		t.Errorf("%d objects are left", n)
	}
}

// TestAPIMoveComparesWhatADeadRemovalHasLeft: a process dies while it removes a workload cluster.
// What it has begun to remove counts as unchanged. A write to what is left is found by a resume on
// another host, and once it is taken back, that goes on.
func TestAPIMoveComparesWhatADeadRemovalHasLeft(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "remains")
	unit := classyUnits[0]
	o := fx.order(doMove)
	o.Canary = fx.namespace + "/" + unit
	o.Kill = &kill{Point: inside, Step: "ns/" + unit + "/retire", Write: 6, Answered: true}
	_, err := fx.run(o)
	must(t, err)
	n := fx.left(unit)
	moved, _ := fx.split(unit)
	if n == 0 || n == len(moved) {
		t.Fatalf("%d of %d objects are left", n, len(moved))
	}
	cluster := clusterRef(fx.namespace, unit)
	annotate := func(value any) {
		t.Helper()
		patch := map[string]any{"annotations": map[string]any{"example.test/by": value}}
		_, err := fx.source().Writer().PatchMetadata(t.Context(), fx.kind(fx.at, cluster.GroupKind()),
			cluster.Namespace, cluster.Name, patch)
		must(t, err)
	}
	annotate("somebody")
	fx.carryOut(fx.elsewhere(doResume), catalog.Failed, nil).hasLateWrite(t, cluster.String(),
		"metadata.annotations")
	if now := fx.left(unit); now != n {
		t.Errorf("the resume has removed %d objects", n-now)
	}
	annotate(nil)
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkMoved(st))
}

// owned returns an object that an object of the source owns.
func (fx *fixture) owned(by object.Ref) object.Ref {
	fx.t.Helper()
	for ref, u := range fx.was {
		for _, owner := range u.GetOwnerReferences() {
			if owner.UID == fx.was[by].GetUID() {
				return ref
			}
		}
	}
	fx.t.Fatalf("%s owns nothing", by)
	return object.Ref{}
}

// TestAPIMoveKeepsSharedObjectsWrittenDuringTheirRemoval: somebody writes to shared objects of the
// source that were compared with those of the target, and are about to be removed. They stay, and
// so does the class that owns one of them, with which the garbage collector would delete it.
func TestAPIMoveKeepsSharedObjectsWrittenDuringTheirRemoval(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "late-shared")
	class := object.Ref{Group: "cluster.x-k8s.io", Kind: "ClusterClass", Namespace: fx.namespace,
		Name: "in-memory"}
	template := fx.owned(class)
	written := []object.Ref{template,
		{Kind: "Secret", Namespace: fx.namespace, Name: "registry-credentials"}}
	kept := append(slices.Clone(written), class)
	var once sync.Once
	fx.carryOut(fx.order(doMove), catalog.Succeeded,
		func(_ context.Context, r catalog.StepRecord) (err error) {
			if !strings.HasPrefix(r.Step.Phase, "retire-shared") || r.State != catalog.StepBegun {
				return nil
			}
			once.Do(func() {
				for _, ref := range written {
					err = errors.Join(err, fx.tryChange(fx.at, ref, func(u *unstructured.Unstructured) {
						capi.Annotate(u.Object, "example.test/by", "somebody")
					}))
				}
			})
			return err
		})
	live := fx.live(fx.at)
	for _, ref := range kept {
		if live[ref] == nil {
			t.Errorf("%s is gone from the source", ref)
		}
		delete(live, ref)
	}
	for ref := range live {
		t.Errorf("%s is still on the source", ref)
	}
}

// TestAPIMoveKeepsAClassThatComesIntoUse: somebody begins to use a class when the source was
// captured for the last time, and the source refuses its removal, as the webhook of Cluster API
// does then. Nothing that the class owns is removed before it.
func TestAPIMoveKeepsAClassThatComesIntoUse(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "late-class")
	class := object.Ref{Group: "cluster.x-k8s.io", Kind: "ClusterClass", Namespace: fx.namespace,
		Name: "in-memory"}
	allow := fx.denyWith(fx.source(), "Forbidden", "DELETE", "in-use", "clusterclasses", "false")
	var retired atomic.Int32
	var made sync.WaitGroup
	defer made.Wait()
	fx.carryOut(fx.order(doMove), catalog.Succeeded,
		func(_ context.Context, r catalog.StepRecord) error {
			if r.Step.Phase != "retire" || r.State != catalog.StepDone ||
				int(retired.Add(1)) < len(allUnits) {
				return nil
			}
			made.Go(func() {
				time.Sleep(time.Second) // the last capture takes less
				fx.fill(fx.kind(fx.at, capi.Cluster), `{"metadata":{"name":"later"},
					"spec":{"topology":{"classRef":{"name":"in-memory"},"version":"v1.36.0"}}}`)
			})
			return nil
		})
	made.Wait()
	allow()
	live := fx.live(fx.at)
	for ref, u := range fx.was {
		owned := slices.ContainsFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
			return o.UID == fx.was[class].GetUID()
		})
		if (owned || ref == class) && live[ref] == nil {
			t.Errorf("%s is gone from the source", ref)
		}
	}
}

// TestAPIMoveKeepsWhatAnotherHasComeToUse: after a workload cluster is at work on the target, one
// that stays on the source comes to use its template and its Secret. The template is owned by what
// leaves, so nothing is removed, by this run or by a resume on a host that does not know what there
// was. The Secret stays when the rest leaves, also where the first attempt dies in the middle of
// that.
func TestAPIMoveKeepsWhatAnotherHasComeToUse(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "late-use")
	unit, other := classyUnits[0], classyUnits[1]
	template, user := fx.one("DevMachineTemplate", unit), fx.one("KubeadmControlPlane", other)
	credentials := object.Ref{Kind: "Secret", Namespace: fx.namespace, Name: "late-credentials"}
	fx.fill(kube.SecretKind, `{"metadata":{"name":"`+credentials.Name+`"}}`)
	reads := func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"path": "/etc/late",
			"contentFrom": map[string]any{"secret": map[string]any{"name": credentials.Name,
				"key": "value"}}}}, "spec", "kubeadmConfigSpec", "files")
	}
	fx.change(fx.at, fx.one("KubeadmControlPlane", unit), reads)
	path := []string{"spec", "machineTemplate", "spec", "infrastructureRef", "name"}
	was, found, _ := unstructured.NestedString(fx.was[user].Object, path...)
	if !found {
		t.Fatal("it names no template")
	}
	use := func(name string) error {
		return fx.tryChange(fx.at, user, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, name, path...)
			reads(u)
		})
	}
	key, _ := object.ParseKey(fx.namespace + "/" + unit)
	o := fx.order(doMove)
	o.Spec.Selection = restore.Selection{Workloads: []object.Key{key}}
	e := fx.carryOut(o, catalog.Failed, fx.whenOnce(unit, "release", catalog.StepDone,
		func() error { return use(template.Name) }))
	e.hasLateWrite(t, template.String(), user.Name)
	moved, neighbours := fx.split(unit)
	if n := fx.left(unit); n != len(moved) {
		t.Errorf("%d of %d objects are left", n, len(moved))
	}
	snapshots, err := fx.store.Snapshots(t.Context(), fx.source().UID())
	must(t, err)
	paused, err := fx.store.GetEnvelope(t.Context(), snapshots[len(snapshots)-1])
	must(t, err)
	without := len(moved) + 2 // the namespace and the Secret
	for _, u := range neighbours {
		if u.GetKind() != capi.Cluster.Kind && u.GetLabels()[capi.LabelClusterName] == "" {
			without++
		}
	}
	if n := int(paused.Counts.Objects); n > without || paused.Counts.Units != 1 {
		t.Errorf("the snapshot in the pause has %d objects and %d workload clusters; %d are of this one "+
			"or have no label", n, paused.Counts.Units, without)
	}
	fx.carryOut(fx.elsewhere(doResume), catalog.Failed, nil).hasLateWrite(t, template.String())
	fx.accept(unit) // what it is on the target says nothing of what stays
	fx.carryOut(fx.order(doResume), catalog.Failed, nil).hasLateWrite(t, template.String())
	if n := fx.left(unit); n != len(moved) {
		t.Errorf("after a resume %d of %d objects are left", n, len(moved))
	}
	must(t, use(was))
	resume := fx.order(doResume)
	resume.Kill = &kill{Point: inside, Step: "ns/" + unit + "/retire", Write: 6, Answered: true}
	if _, err := fx.run(resume); err != nil {
		t.Fatal(err)
	}
	fx.carryOut(fx.elsewhere(doResume), catalog.Succeeded, nil)
	if left, others := fx.left(unit), fx.left(other); left > 0 || others == 0 {
		t.Errorf("%d objects are left, and %d of the other workload cluster", left, others)
	}
	for i := range fx.sides {
		if fx.live(i)[credentials] == nil {
			t.Errorf("side %d has no %s", i, credentials)
		}
	}
}

// TestAPIMoveListsAgainWhatIsTakenOffTheList: somebody takes a workload cluster off the list of the
// admission policy after its hand-over. It is on the list again before it is removed from the
// source, where nothing else denies to create it.
func TestAPIMoveListsAgainWhatIsTakenOffTheList(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "relisted")
	unit, taken := classyUnits[0], false
	fx.carryOut(fx.order(doMove), catalog.Succeeded,
		fx.whenOnce(unit, "release", catalog.StepDone, func() error {
			list := object.Ref{Kind: "ConfigMap", Namespace: "kube-system", Name: "mgmtd-moved"}
			return fx.tryChange(fx.at, list, func(u *unstructured.Unstructured) {
				key := fx.namespace + "." + unit
				_, taken, _ = unstructured.NestedString(u.Object, "data", key)
				unstructured.RemoveNestedField(u.Object, "data", key)
			})
		}))
	if !taken {
		t.Fatal("nothing was taken off the list")
	}
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(false, st))
}
