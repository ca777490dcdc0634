package live

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// TestRestoresAfterAnOutage kills the source and restores different namespaces of its fleet in
// parallel.
func TestRestoresAfterAnOutage(t *testing.T) {
	skipInLong(t)
	if shared.moveFailed {
		t.Fatal("the moves failed: the source is not in the expected state")
	}
	if err := shared.killSource(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("Whole", testWhole)
	t.Run("Stock", testStock)
	t.Run("LivedIn", testLivedIn)
	t.Run("Selection", testSelection)
	t.Run("KilledAndResumed", testKilledAndResumed)
	t.Run("NoRelease", testNoRelease)
	t.Run("BadInput", testBadInput)
}

// testStock restores a workload cluster of the ClusterClass that Cluster API publishes, 3 control
// planes and 2 workers. Its control plane is Available and being scaled up, so the KubeadmConfigs
// of its control plane Machines have no annotation yet, while the control plane's controller owns
// the empty map of annotations. It was paused in that state. The test unpauses the copy: the
// target must finish the control plane with the Machines that there are.
func testStock(t *testing.T) {
	o := operate(t)
	before := o.before.In(stockNS)
	if n := len(withoutAnnotations(before.Of("bootstrap.cluster.x-k8s.io",
		"KubeadmConfig"))); n != 2 {
		t.Fatalf("%d KubeadmConfigs have no annotation, want those of 2 control plane Machines", n)
	}
	o.restore(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--namespace", stockNS)
	o.assertRestored(t, before, nil, stockNS)
	restored := o.inventory(stockNS)

	cluster := object("cluster.x-k8s.io/v1beta2", "Cluster", stockNS, "stock")
	unpause := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`))
	if err := o.clients[o.target].Patch(t.Context(), cluster, unpause); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*healthTimeout)
	defer cancel()
	if err := fleet.WaitAvailable(ctx, o.clients[o.target],
		client.ObjectKeyFromObject(cluster)); err != nil {
		t.Fatal(err)
	}
	after, err := observe.StableInventory(ctx, o.target.Kubeconfig(), stockNS)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range restored.Refs() {
		if is := after[ref]; is == nil || is.GetUID() != restored[ref].GetUID() {
			t.Errorf("%s was deleted or created again", ref)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ref := range after.Refs() {
		if restored[ref] == nil && (ref.Kind == "Machine" || ref.Kind == "DevMachine") {
			o.scaledUp = append(o.scaledUp, ref.String()+" was created and did not exist before")
		}
	}
	if machines := observe.Machines(after); len(machines) != 5 || len(o.scaledUp) != 2 {
		t.Errorf("want 5 Machines, one of them new: %+v, new: %v", machines, o.scaledUp)
	}
	slices.Sort(o.scaledUp)
	o.rechecks = append(o.rechecks, recheck{"Stock", func(t *testing.T) {
		o.assertRestored(t, after, nil, stockNS)
	}})
}

// testLivedIn restores workload clusters that were scaled, upgraded, rolled out, relabelled,
// remediated, paused and unpaused, or deleted and created again, before they were captured.
func testLivedIn(t *testing.T) {
	o := operate(t)
	before := o.before.In(livedNS)
	if versions := o.livedVersions(before); len(versions) != 2 {
		t.Fatalf("the Machines of namespace %s have versions %v, want an upgraded workload cluster and "+
			"one that is not", livedNS, versions)
	}
	o.restore(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--namespace", livedNS)
	o.assertRestored(t, before, nil, livedNS)
	o.checkAgainLater("LivedIn", func(t *testing.T) { o.assertRestored(t, before, nil, livedNS) })
}

// livedVersions counts Machines by their Kubernetes version.
func (o *operator) livedVersions(objects observe.Objects) map[string]int {
	versions := map[string]int{}
	for _, m := range objects.Of("cluster.x-k8s.io", "Machine") {
		version, _, err := unstructured.NestedString(m.Object, "spec", "version")
		if err != nil {
			o.t.Fatal(err)
		}
		versions[version]++
	}
	return versions
}

// withoutAnnotations returns the objects without annotations.
func withoutAnnotations(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return len(o.GetAnnotations()) > 0
	})
}

// testWhole restores one namespace of a mixed fleet, then the whole snapshot, and then the whole
// snapshot again.
func testWhole(t *testing.T) {
	o := operate(t)
	namespaces := o.namespacesWith("mixed-")
	before := o.before.In(namespaces...)
	// The snapshot was taken before the moves, which have left everything equal.
	o.restoreTwice(before, "mixed-team-a", "--source-is-gone", "--force", "source-seen-recently",
		"--snapshot", o.mixed, "--signing-key",
		o.keys("signing.key"))
	o.assertRestored(t, before, nil, namespaces...)
	o.checkAgainLater("Whole", func(t *testing.T) { o.assertRestored(t, before, nil, namespaces...) })

	t.Run("Again", func(t *testing.T) {
		o := &operator{fixture: o.fixture, t: t, state: t.TempDir()}
		is, err := observe.StableInventory(t.Context(), o.target.Kubeconfig(), namespaces...)
		if err != nil {
			t.Fatal(err)
		}
		p := o.plan(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--snapshot",
			o.mixed)
		if p.Summary.Create != 0 || p.Summary.Adopt == 0 {
			t.Errorf("the plan creates %d and adopts %d objects, want to adopt all", p.Summary.Create,
				p.Summary.Adopt)
		}
		o.restore(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--snapshot", o.mixed)
		o.assertUnchanged(is, namespaces...)
	})
}

// restoreTwice restores one namespace, and then everything that flags select: the second restore
// adopts what the first has released (docs/outage.md, step 5). With a signing key among flags, the
// first has claimed the ownership of its workload clusters for the target.
func (o *operator) restoreTwice(before observe.Objects, namespace string, flags ...string) {
	o.t.Helper()
	o.restore(codeDone, slices.Concat(flags, []string{"--namespace", namespace})...)
	first, err := observe.StableInventory(o.t.Context(), o.target.Kubeconfig(), namespace)
	if err != nil {
		o.t.Fatal(err)
	}
	assertEqual(o.t, "Clusters of the first restore", names(first), names(before.In(namespace)))
	out := o.restore(codeDone, flags...)
	if printed := out.stdout + out.stderr; strings.Contains(printed, "no-fence") {
		o.t.Errorf("the second restore has claimed no ownership:\n%s", out.text())
	}
	o.assertUnchanged(first, namespace)
}

// names are the workload clusters of objects.
func names(objects observe.Objects) []string {
	var names []string
	for _, cluster := range objects.Of("cluster.x-k8s.io", "Cluster") {
		names = append(names, cluster.GetNamespace()+"/"+cluster.GetName())
	}
	return names
}

// testSelection restores one workload cluster by its name and one by its label. A third one of
// their namespace must not be restored.
func testSelection(t *testing.T) {
	o := operate(t)
	check := func(came, stayed []string) {
		t.Helper()
		assertNone(t, "restored without need", belonging(o.inventory(selectionNS, classesNS), stayed))
		o.assertRestored(t, o.selected(t, came...), nil, selectionNS, classesNS)
	}
	o.restore(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--workload",
		selectionNS+"/by-name")
	check([]string{"by-name"}, []string{"by-label", "left"})
	// The ClusterClass of another namespace must be restored with its templates.
	after := o.inventory(classesNS)
	for _, ref := range o.before.In(classesNS).Refs() {
		isTemplate := strings.HasSuffix(ref.Kind, "Template")
		if (ref.Kind == "ClusterClass" || ref.Kind == "Namespace" || isTemplate) && after[ref] == nil {
			t.Errorf("%s was not restored", ref)
		}
	}
	o.restore(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--selector",
		"stage=chosen")
	check([]string{"by-name", "by-label"}, []string{"left"})
	o.checkAgainLater("Selection", func(t *testing.T) {
		o.assertRestored(t, o.selected(t, "by-name", "by-label"), nil, selectionNS, classesNS)
	})
}

// selected returns the objects of the source that belong to workload clusters, and the objects of
// the source that were restored with them.
func (f *fixture) selected(t *testing.T, clusters ...string) observe.Objects {
	t.Helper()
	after, err := observe.Inventory(t.Context(), f.target.Kubeconfig(), selectionNS, classesNS)
	if err != nil {
		t.Fatalf("inventory of the target: %v", err)
	}
	selected := observe.Objects{}
	for ref, object := range f.before.In(selectionNS, classesNS) {
		if slices.Contains(clusters, clusterOf(object)) || after[ref] != nil {
			selected[ref] = object
		}
	}
	return selected
}

// clusterOf returns the name of the workload cluster that an object belongs to. A
// ClusterResourceSetBinding has no label, but the name of the Cluster.
func clusterOf(o *unstructured.Unstructured) string {
	if kind := o.GetKind(); kind == "Cluster" || kind == "ClusterResourceSetBinding" {
		return o.GetName()
	}
	return o.GetLabels()["cluster.x-k8s.io/cluster-name"]
}

// belonging returns the objects that belong to workload clusters.
func belonging(objects observe.Objects, clusters []string) []string {
	var refs []string
	for _, ref := range objects.Refs() {
		if slices.Contains(clusters, clusterOf(objects[ref])) {
			refs = append(refs, ref.String())
		}
	}
	return refs
}

// testKilledAndResumed kills mgmtctl with kill -9 at three moments of a restore, and resumes the
// restore each time.
func testKilledAndResumed(t *testing.T) {
	o := operate(t)
	resume := slices.Concat([]string{"operation", "resume", "latest"}, o.flags())
	o.runAndKill(moment{o.target, "Cluster", resumeNS, created},
		slices.Concat([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
			"source-seen-recently", "--namespace", resumeNS},
			o.flags())...)
	o.assertReadable("stopped", codeLeft)
	o.runAndKill(moment{o.target, "Machine", resumeNS, created}, resume...)
	o.runAndKill(moment{o.target, "Cluster", resumeNS, released}, resume...)
	o.run(codeDone, resume...)
	o.assertRestored(t, o.before.In(resumeNS), nil, resumeNS)
	o.assertReadable("succeeded", codeDone)

	is, err := observe.StableInventory(t.Context(), o.target.Kubeconfig(), resumeNS)
	if err != nil {
		t.Fatal(err)
	}
	o.run(codeDone, resume...) // resuming a succeeded operation changes nothing
	o.assertUnchanged(is, resumeNS)
	o.checkAgainLater("Resumed", func(t *testing.T) {
		o.assertRestored(t, o.before.In(resumeNS), nil,
			resumeNS)
	})
}

// assertReadable asserts the output of operation list, show and watch for the one operation.
func (o *operator) assertReadable(state string, code int) {
	o.t.Helper()
	unit := resumeNS + "/web"
	for _, c := range []struct {
		code int
		args []string
		want []string
	}{
		{codeDone, []string{"operation", "list"}, []string{"ID", "KIND", "STATE", "restore", state}},
		{codeDone, []string{"operation", "show", "latest"}, []string{"restore", state, unit}},
		{code, []string{"operation", "watch", "latest"}, []string{unit, "create"}},
	} {
		out := o.run(c.code, append(c.args, "--standalone")...)
		for _, want := range c.want {
			if !strings.Contains(out.stdout, want) {
				o.t.Errorf("want %q in:\n%s", want, out.text())
			}
		}
	}
}

// testNoRelease restores everything paused, and releases it with a second restore.
func testNoRelease(t *testing.T) {
	o := operate(t)
	before := o.before.In(pausedNS)
	// --source-is-gone is not needed: no controller of the target works on what is paused.
	o.restore(codeDone, "--no-release", "--namespace", pausedNS)
	after := o.inventory(pausedNS)
	var differences []string
	for _, d := range observe.Compare(before, after, observe.Options{}) {
		differences = append(differences, d.String())
	}
	assertEqual(t, "differences", differences, []string{
		"Cluster.cluster.x-k8s.io/no-release/web differs in spec.paused",
		// It had no annotations; pausing adds one.
		"ClusterResourceSet.addons.cluster.x-k8s.io/no-release/addons differs in metadata.annotations",
	})
	for _, machine := range after.Of("cluster.x-k8s.io", "Machine") {
		if !observe.ConditionTrue(machine, "Paused") {
			t.Errorf("Machine %s is not paused", machine.GetName())
		}
	}
	if refs, dangling, err := observe.CheckOwners(t.Context(), o.target.Kubeconfig(),
		pausedNS); err != nil || len(dangling) > 0 || refs == 0 {
		t.Errorf("owners: %d, %v, %v", refs, dangling, err)
	}
	// Give the controllers of the target time to do something wrong.
	time.Sleep(5 * time.Second)
	o.restore(codeDone, "--source-is-gone", "--force", "source-seen-recently", "--namespace", pausedNS)
	o.assertRestored(t, before, nil, pausedNS)
	o.checkAgainLater("Released", func(t *testing.T) { o.assertRestored(t, before, nil, pausedNS) })
}

// testBadInput makes one mistake after the other. Each restore is refused and changes nothing,
// until the last mistake is corrected.
func testBadInput(t *testing.T) {
	o := operate(t)
	selection := []string{"--namespace", badNS}
	gone := append([]string{"--source-is-gone", "--force", "source-seen-recently"}, selection...)
	refused := func(code string, flags ...string) {
		t.Helper()
		is := o.inventory(badNS)
		if p := o.plan(codeFindings, flags...); !p.finds(code) {
			t.Errorf("the plan does not find %s: %+v", code, p.Findings)
		}
		out := o.restore(codeFindings, flags...)
		if !strings.Contains(out.stdout+out.stderr, code) {
			t.Errorf("the refusal does not say %s:\n%s", code, out.text())
		}
		o.assertUnchanged(is, badNS)
	}
	refused("source-not-gone", selection...)

	t.Run("KindNotServed", func(t *testing.T) {
		o := &operator{fixture: o.fixture, t: t, state: t.TempDir()}
		o.refusedWithoutKind(gone...)
	})

	// The target has a foreign object with the name of one in the snapshot.
	namespace := o.before[observe.Ref{Kind: "Namespace", Name: badNS}]
	o.create(namespace)
	equal := o.secret(badNS, "registry-credentials")
	foreign := equal.DeepCopy()
	foreign.Object["data"] = map[string]any{"config.json": "c29tZWJvZHkgZWxzZSdz"}
	o.create(foreign)
	refused("exists-different", append([]string{"--drop-owner", outsider.String()}, gone...)...)

	// The object is equal now, so it is adopted. What is left is an owner that no snapshot
	// contains.
	o.create(equal)
	adopted := o.inventory(badNS)
	refused("owner-missing", gone...)
	o.restore(codeDone, append([]string{"--drop-owner", outsider.String()}, gone...)...)
	corrected := func(t *testing.T) {
		o.assertRestored(t, o.before.In(badNS), []string{owned.String() +
			" differs in metadata.ownerReferences"}, badNS)
	}
	corrected(t)
	o.checkAgainLater("Corrected", corrected)
	after := o.inventory(badNS)
	for ref, was := range adopted {
		if is := after[ref]; is == nil || is.GetUID() != was.GetUID() ||
			is.GetResourceVersion() != was.GetResourceVersion() {
			t.Errorf("%s was there, and the restore has written to it", ref)
		}
	}
}

// refusedWithoutKind asserts that a restore into a management cluster that lacks a provider is
// refused and changes nothing. That cluster has no inventory of clusterctl, so it has the providers
// whose kinds it serves.
func (o *operator) refusedWithoutKind(args ...string) {
	o.t.Helper()
	bare, err := clientOf(o.bare)
	if err != nil {
		o.t.Fatal(err)
	}
	crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "",
		"devmachinetemplates.infrastructure.cluster.x-k8s.io")
	if err := bare.Delete(o.t.Context(), crd); err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Minute)
	defer cancel()
	for err = nil; err == nil; time.Sleep(200 * time.Millisecond) {
		err = bare.Get(ctx, client.ObjectKeyFromObject(crd), crd)
	}
	if !apierrors.IsNotFound(err) {
		o.t.Fatal(err)
	}
	flags := slices.Concat([]string{"restore", "run", "--yes"}, o.flags(), args,
		[]string{"--target-kubeconfig", o.bare.Kubeconfig()})
	if out := o.run(codeFindings, flags...); !strings.Contains(out.stdout+out.stderr,
		"kind-not-served") {
		o.t.Errorf("the refusal does not say kind-not-served:\n%s", out.text())
	}
	objects, err := observe.Inventory(o.t.Context(), o.bare.Kubeconfig())
	if err != nil || len(objects) > 0 {
		o.t.Errorf("the target without the kind holds %d objects: %v", len(objects), err)
	}
}
