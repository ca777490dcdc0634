package live

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// TestOutage kills the source and restores different parts of its fleet side by side.
func TestOutage(t *testing.T) {
	if shared.brokenMove {
		t.Skip("the moves have failed: the source is not what it must be")
	}
	if err := shared.lose(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("Whole", testWhole)
	t.Run("Stock", testStock)
	t.Run("Selection", testSelection)
	t.Run("KilledAndResumed", testKilledAndResumed)
	t.Run("NoRelease", testNoRelease)
	t.Run("BadInput", testBadInput)
}

// testStock restores a workload cluster of the ClusterClass that Cluster API publishes itself. Its
// objects have fewer fields than those of our own class: the KubeadmConfigs of its Machines have no
// annotation of an author.
func testStock(t *testing.T) {
	o := operate(t)
	before := o.before.In(stockNS)
	o.restore(codeDone, "--source-is-gone", "--namespace", stockNS)
	o.restored(t, before, nil, stockNS)
	o.later("Stock", func(t *testing.T) { o.world.restored(t, before, nil, stockNS) })
}

// testWhole restores one namespace of a mixed fleet, then the whole snapshot, and then the whole
// snapshot again.
func testWhole(t *testing.T) {
	o := operate(t)
	namespaces := o.namespacesWith("mixed-")
	before := o.before.In(namespaces...)
	// The snapshot was taken before the moves, which have left everything equal.
	o.restoreTwice(before, "mixed-team-a", "--source-is-gone", "--snapshot", o.mixed, "--signing-key",
		o.keys("signing.key"))
	o.restored(t, before, nil, namespaces...)
	o.later("Whole", func(t *testing.T) { o.world.restored(t, before, nil, namespaces...) })

	t.Run("Again", func(t *testing.T) {
		o := &operator{world: o.world, t: t, state: t.TempDir()}
		is, err := observe.Settled(t.Context(), o.target.Kubeconfig(), namespaces...)
		if err != nil {
			t.Fatal(err)
		}
		p := o.plan(codeDone, "--source-is-gone", "--snapshot", o.mixed)
		if p.Summary.Create != 0 || p.Summary.Adopt == 0 {
			t.Errorf("the plan creates %d and adopts %d objects, want to adopt all", p.Summary.Create,
				p.Summary.Adopt)
		}
		o.restore(codeDone, "--source-is-gone", "--snapshot", o.mixed)
		o.unchanged(is, namespaces...)
	})
}

// restoreTwice restores one namespace, and then everything that flags select: the second restore
// adopts what the first has released (docs/outage.md, step 5). With a signing key among flags, the
// first has claimed the ownership of its workload clusters for the target.
func (o *operator) restoreTwice(before observe.Objects, namespace string, flags ...string) {
	o.t.Helper()
	o.restore(codeDone, slices.Concat(flags, []string{"--namespace", namespace})...)
	first, err := observe.Settled(o.t.Context(), o.target.Kubeconfig(), namespace)
	if err != nil {
		o.t.Fatal(err)
	}
	same(o.t, "Clusters of the first restore", names(first), names(before.In(namespace)))
	out := o.restore(codeDone, flags...)
	if printed := out.stdout + out.stderr; strings.Contains(printed, "no-fence") {
		o.t.Errorf("the second restore has claimed no ownership:\n%s", out.text())
	}
	o.unchanged(first, namespace)
}

// names are the workload clusters of objects.
func names(objects observe.Objects) []string {
	var names []string
	for _, cluster := range objects.Of("cluster.x-k8s.io", "Cluster") {
		names = append(names, cluster.GetNamespace()+"/"+cluster.GetName())
	}
	return names
}

// testSelection restores one workload cluster by its name and one by its label;
// a third of their namespace stays away.
func testSelection(t *testing.T) {
	o := operate(t)
	check := func(came, stayed []string) {
		t.Helper()
		none(t, "came without need", belonging(o.inventory(selectionNS, classesNS), stayed))
		o.restored(t, o.selected(t, came...), nil, selectionNS, classesNS)
	}
	o.restore(codeDone, "--source-is-gone", "--workload", selectionNS+"/by-name")
	check([]string{"by-name"}, []string{"by-label", "left"})
	// What the ClusterClass of another namespace consists of has come along.
	after := o.inventory(classesNS)
	for _, ref := range o.before.In(classesNS).Refs() {
		isTemplate := strings.HasSuffix(ref.Kind, "Template")
		if (ref.Kind == "ClusterClass" || ref.Kind == "Namespace" || isTemplate) && after[ref] == nil {
			t.Errorf("%s did not come along", ref)
		}
	}
	o.restore(codeDone, "--source-is-gone", "--selector", "stage=chosen")
	check([]string{"by-name", "by-label"}, []string{"left"})
	o.later("Selection", func(t *testing.T) {
		o.world.restored(t, o.selected(t, "by-name", "by-label"), nil, selectionNS, classesNS)
	})
}

// selected are the objects of the source that belong to workload clusters, and
// those that have come along: all of them must be there, and equal.
func (w *world) selected(t *testing.T, clusters ...string) observe.Objects {
	t.Helper()
	after, err := observe.Inventory(t.Context(), w.target.Kubeconfig(), selectionNS, classesNS)
	if err != nil {
		t.Fatalf("look at the target: %v", err)
	}
	selected := observe.Objects{}
	for ref, object := range w.before.In(selectionNS, classesNS) {
		if slices.Contains(clusters, clusterOf(object)) || after[ref] != nil {
			selected[ref] = object
		}
	}
	return selected
}

// clusterOf is the workload cluster that an object belongs to. The binding has its name and no
// label.
func clusterOf(o *unstructured.Unstructured) string {
	if kind := o.GetKind(); kind == "Cluster" || kind == "ClusterResourceSetBinding" {
		return o.GetName()
	}
	return o.GetLabels()["cluster.x-k8s.io/cluster-name"]
}

// belonging are the objects that belong to workload clusters.
func belonging(objects observe.Objects, clusters []string) []string {
	var refs []string
	for _, ref := range objects.Refs() {
		if slices.Contains(clusters, clusterOf(objects[ref])) {
			refs = append(refs, ref.String())
		}
	}
	return refs
}

// testKilledAndResumed kills mgmtctl with kill -9 at three places of a restore,
// and goes on each time.
func testKilledAndResumed(t *testing.T) {
	o := operate(t)
	resume := slices.Concat([]string{"operation", "resume", "latest"}, o.flags())
	o.killed(moment{o.target, "Cluster", resumeNS, created},
		slices.Concat([]string{"restore", "run", "--yes", "--source-is-gone", "--namespace", resumeNS},
			o.flags())...)
	o.readable("stopped", codeLeft)
	o.killed(moment{o.target, "Machine", resumeNS, created}, resume...)
	o.killed(moment{o.target, "Cluster", resumeNS, released}, resume...)
	o.run(codeDone, resume...)
	o.restored(t, o.before.In(resumeNS), nil, resumeNS)
	o.readable("succeeded", codeDone)

	is, err := observe.Settled(t.Context(), o.target.Kubeconfig(), resumeNS)
	if err != nil {
		t.Fatal(err)
	}
	o.run(codeDone, resume...) // a succeeded operation is left as it is
	o.unchanged(is, resumeNS)
	o.later("Resumed", func(t *testing.T) {
		o.world.restored(t, o.before.In(resumeNS), nil,
			resumeNS)
	})
}

// readable looks at what operation list, show and watch tell of the one operation.
func (o *operator) readable(state string, code int) {
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

// testNoRelease leaves everything paused, and releases it later.
func testNoRelease(t *testing.T) {
	o := operate(t)
	before := o.before.In(pausedNS)
	// It needs no word on the source: nothing on the target works.
	o.restore(codeDone, "--no-release", "--namespace", pausedNS)
	after := o.inventory(pausedNS)
	var differences []string
	for _, d := range observe.Compare(before, after, observe.Options{}) {
		differences = append(differences, d.String())
	}
	same(t, "differences", differences, []string{
		"Cluster.cluster.x-k8s.io/no-release/web differs in spec.paused",
		// it had none
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
	// Some while later, with the controllers of the target at work all the time.
	time.Sleep(5 * time.Second)
	o.restore(codeDone, "--source-is-gone", "--namespace", pausedNS)
	o.restored(t, before, nil, pausedNS)
	o.later("Released", func(t *testing.T) { o.world.restored(t, before, nil, pausedNS) })
}

// testBadInput makes one mistake after the other, on a real target: nothing
// changes until the last one is mended.
func testBadInput(t *testing.T) {
	o := operate(t)
	selection := []string{"--namespace", badNS}
	gone := append([]string{"--source-is-gone"}, selection...)
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
		o.unchanged(is, badNS)
	}
	refused("source-not-gone", selection...)

	t.Run("ProviderMissing", func(t *testing.T) {
		o := &operator{world: o.world, t: t, state: t.TempDir()}
		flags := slices.Concat([]string{"restore", "run", "--yes"}, o.flags(), gone,
			[]string{"--target-kubeconfig", o.bare.Kubeconfig()})
		if out := o.run(codeFindings, flags...); !strings.Contains(out.stdout+out.stderr,
			"provider-missing") {
			t.Errorf("the refusal does not say provider-missing:\n%s", out.text())
		}
		objects, err := observe.Inventory(t.Context(), o.bare.Kubeconfig())
		if err != nil || len(objects) > 0 {
			t.Errorf("the target without providers holds %d objects: %v", len(objects), err)
		}
	})

	// A stranger's object has the name of one that is restored.
	namespace := o.before[observe.Ref{Kind: "Namespace", Name: badNS}]
	o.create(namespace)
	equal := o.secret(badNS, "registry-credentials")
	stranger := equal.DeepCopy()
	stranger.Object["data"] = map[string]any{"config.json": "c29tZWJvZHkgZWxzZSdz"}
	o.create(stranger)
	refused("exists-different", append([]string{"--drop-owner", outsider.String()}, gone...)...)

	// It is the same now, and adopted. What is left is an owner that no snapshot holds.
	o.create(equal)
	adopted := o.inventory(badNS)
	refused("owner-missing", gone...)
	o.restore(codeDone, append([]string{"--drop-owner", outsider.String()}, gone...)...)
	mended := func(t *testing.T) {
		o.world.restored(t, o.before.In(badNS), []string{owned.String() +
			" differs in metadata.ownerReferences"}, badNS)
	}
	mended(t)
	o.later("Mended", mended)
	after := o.inventory(badNS)
	for ref, was := range adopted {
		if is := after[ref]; is == nil || is.GetUID() != was.GetUID() ||
			is.GetResourceVersion() != was.GetResourceVersion() {
			t.Errorf("%s was there and was not just adopted", ref)
		}
	}
}
