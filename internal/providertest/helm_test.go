package providertest_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestTheStorageOfAHelmReleaseTravelsWithWhatItMade: the Secrets in which Helm stores a release
// come with the workload cluster whose objects the release made. Its name and namespace, and the
// namespace of the HelmRelease of Flux that has them, do not matter. Other releases stay. The
// storage is shared, since the release may have made other objects as well. What is in the
// namespace of a provider is not restored, and blocks nothing.
func TestTheStorageOfAHelmReleaseTravelsWithWhatItMade(t *testing.T) {
	var g *graph
	for _, read := range readGraphs(t) {
		if read.name == "packet" {
			g = read
		}
	}
	i := slices.IndexFunc(g.objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "PacketCluster"
	})
	made := g.objects[i]
	made.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "tenant-a",
		"meta.helm.sh/release-namespace": "releases"})
	labels := made.GetLabels()
	labels["helm.toolkit.fluxcd.io/namespace"] = "flux-releases"
	made.SetLabels(labels)
	for _, ns := range []string{"releases", "flux-releases"} {
		g.objects = append(g.objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}}})
	}
	storage := func(namespace, release, version string) string {
		name := "sh.helm.release.v1." + release + "." + version
		g.objects = append(g.objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
			"metadata": map[string]any{"name": name, "namespace": namespace,
				"labels": map[string]any{"owner": "helm", "name": release}},
			"data": map[string]any{"release": "bm90LWEtcmVhbC1vbmU="}}})
		return "Secret/" + namespace + "/" + name
	}
	want := []string{storage("releases", "tenant-a", "v1"), storage("releases", "tenant-a", "v12"),
		storage("flux-releases", "tenant-a", "v3")}
	for _, other := range []string{storage("releases", "tenant-a.v2", "v1"),
		storage("releases", "tenant", "v1"), storage("p-packet", "tenant-a", "v1"),
		storage("releases", "tenant-a", "backup")} {
		want = append(want, "not "+other)
	}
	p := plan(t, newMemory(t, []*graph{g}))
	for _, text := range want {
		name, not := strings.CutPrefix(text, "not ")
		ref, err := object.ParseRef(name)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(p.Shared.Objects, func(o restore.Object) bool {
			return o.Ref == ref && o.Action == restore.Create
		})
		if i >= 0 == not {
			t.Errorf("%s: it comes: %v", name, i >= 0)
		}
		if i >= 0 && !slices.Equal(p.Shared.Objects[i].Users, []string{"p-packet/pk1"}) {
			t.Errorf("%s: used by %v", name, p.Shared.Objects[i].Users)
		}
	}
	if p.Units[0].Name != "p-packet/pk1" || p.Units[0].Blocked {
		t.Errorf("unit %s is blocked: %v", p.Units[0].Name, p.Findings)
	}

	made.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "provider",
		"meta.helm.sh/release-namespace": "capi-system"})
	of, err := object.ParseRef(storage("capi-system", "provider", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	p = plan(t, newMemory(t, []*graph{g}))
	if p.Units[0].Blocked || !slices.ContainsFunc(p.Findings, func(f object.Finding) bool {
		return f.Ref == of && f.Code == object.CodeRefused && f.Severity == object.Warning
	}) {
		t.Errorf("a release in the namespace of a provider: %v", p.Findings)
	}
}
