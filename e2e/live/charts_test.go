package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

const (
	chartsNS  = "charts"
	chartsAPI = "addons.cluster.x-k8s.io/v1alpha1"
)

// TestLongHelmCharts moves two workload clusters for which the Helm add-on provider has made
// HelmReleaseProxies, loses the management cluster that has them then, and restores them into a
// third. The provider works on all of them. It must never make a second HelmReleaseProxy for a
// chart and a workload cluster, nor uninstall a chart.
func TestLongHelmCharts(t *testing.T) {
	shape := func(name string) fleet.Shape {
		return fleet.Shape{Name: name, Namespace: chartsNS, ControlPlanes: 1}
	}
	f := startWith(t, []string{lab.HelmAddon}, shape("one"), shape("two"))
	o := &operator{fixture: f, t: t, state: t.TempDir()}
	wrong := &problems{}
	for _, m := range []*lab.Mgmt{f.source, f.target} {
		f.follow(t, m, chartsAPI, "HelmReleaseProxy", onlyOne(wrong))
	}
	f.create(t, f.source, chart("both"), chart("single"))
	f.selectCharts(t, "one", "both", "single")
	f.selectCharts(t, "two", "both")
	releases := f.awaitReleases(t, f.source, 3)
	before, err := observe.StableInventory(t.Context(), f.source.Kubeconfig(), chartsNS)
	if err != nil {
		t.Fatal(err)
	}

	o.moveStandalone(f.source, f.target, chartsNS)
	o.assertMoved(t, f.source, f.target, before, chartsNS)
	f.assertReleases(t, f.target, releases)
	wrong.none(t, "HelmReleaseProxies")
	if err := f.source.KillAll(); err != nil {
		t.Fatal(err)
	}

	f.addThird(t, lab.HelmAddon)
	f.follow(t, f.target, chartsAPI, "HelmReleaseProxy", onlyOne(wrong))
	if err := f.captureAndKill(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.restore(codeDone, "--source", f.source.Name(), "--source-is-gone", "--force",
		"source-seen-recently", "--signing-key", o.keys("signing.key"))
	o.assertRestored(t, f.before.In(chartsNS), nil, chartsNS)
	// The provider selects the new workload cluster, so it works again.
	f.selectCharts(t, "two", "both", "single")
	f.awaitReleases(t, f.target, 4)
	f.assertReleases(t, f.target, releases)
	wrong.none(t, "HelmReleaseProxies")
	f.assertNoUninstall(t, "mgmt-1", "mgmt-2", "mgmt-3")
}

// chart is a HelmChartProxy of a chart that is nowhere: what matters is what is made of it.
func chart(name string) *unstructured.Unstructured {
	o := object(chartsAPI, "HelmChartProxy", chartsNS, name)
	o.Object["spec"] = map[string]any{
		"clusterSelector": map[string]any{"matchLabels": map[string]any{"chart-" + name: "on"}},
		"repoURL":         "http://127.0.0.1:1/charts", "chartName": name, "releaseName": name,
		"namespace": "default"}
	return o
}

// selectCharts labels a Cluster, on the management cluster that has it, so that charts select it.
func (f *fixture) selectCharts(t *testing.T, cluster string, charts ...string) {
	t.Helper()
	m := f.source
	c := object("cluster.x-k8s.io/v1beta2", "Cluster", chartsNS, cluster)
	key := keyOf(c)
	if f.clients[m].Get(t.Context(), key, c) != nil {
		m = f.target
	}
	await(t, "labels of "+cluster, func(ctx context.Context) error {
		if err := f.clients[m].Get(ctx, key, c); err != nil {
			return err
		}
		labels := c.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		for _, name := range charts {
			labels["chart-"+name] = "on"
		}
		c.SetLabels(labels)
		return f.clients[m].Update(ctx, c)
	})
}

// releaseOf says for which chart and workload cluster a HelmReleaseProxy is.
func releaseOf(o *unstructured.Unstructured) string {
	cluster, _, _ := unstructured.NestedString(o.Object, "spec", "clusterRef", "name")
	chart, _, _ := unstructured.NestedString(o.Object, "spec", "chartName")
	return chart + " of " + cluster
}

// onlyOne notes every second HelmReleaseProxy of a chart and a workload cluster. Their names are
// random, and a move and a restore keep them.
func onlyOne(wrong *problems) func(*lab.Mgmt, watch.EventType, *unstructured.Unstructured) {
	names := map[string]string{}
	return func(m *lab.Mgmt, _ watch.EventType, o *unstructured.Unstructured) {
		release := releaseOf(o)
		if was := names[release]; was != "" && was != o.GetName() {
			wrong.add("%s has %s for %s, and had %s", m.Name(), o.GetName(), release, was)
		}
		names[release] = o.GetName()
	}
}

// awaitReleases waits until a management cluster has HelmReleaseProxies that the provider has tried
// to install, and returns their names.
func (f *fixture) awaitReleases(t *testing.T, m *lab.Mgmt, want int) map[string]string {
	t.Helper()
	names := map[string]string{}
	await(t, "HelmReleaseProxies of "+m.Name(), func(ctx context.Context) error {
		releases, err := f.list(ctx, m, chartsAPI, "HelmReleaseProxy", chartsNS)
		clear(names)
		for _, release := range releases {
			names[releaseOf(&release)] = release.GetName()
			if len(release.GetFinalizers()) == 0 {
				return fmt.Errorf("%s: %w", release.GetName(), errNotYet)
			}
		}
		if err == nil && len(releases) != want {
			err = fmt.Errorf("%d of %d: %w", len(releases), want, errNotYet)
		}
		return err
	})
	return names
}

// assertReleases asserts that a management cluster has the HelmReleaseProxies of before, by name.
func (f *fixture) assertReleases(t *testing.T, m *lab.Mgmt, before map[string]string) {
	t.Helper()
	releases, err := f.list(t.Context(), m, chartsAPI, "HelmReleaseProxy", chartsNS)
	if err != nil {
		t.Fatal(err)
	}
	for release, name := range before {
		if !slices.ContainsFunc(releases, func(o unstructured.Unstructured) bool {
			return o.GetName() == name && releaseOf(&o) == release && o.GetDeletionTimestamp() == nil
		}) {
			t.Errorf("%s has no %s for %s", m.Name(), name, release)
		}
	}
}

// assertNoUninstall asserts that no provider has begun to uninstall a chart, by its log.
func (f *fixture) assertNoUninstall(t *testing.T, mgmts ...string) {
	t.Helper()
	for _, m := range mgmts {
		log, err := os.ReadFile(filepath.Join(f.dir, "lab", m, lab.HelmAddon+".log"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "Deleting HelmReleaseProxy on cluster") {
				t.Errorf("%s: %s", m, line)
			}
		}
	}
}
