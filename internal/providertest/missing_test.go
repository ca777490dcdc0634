package providertest_test

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// TestNothingIsReleasedWithoutWhatItNeeds takes each Secret and each identity of the graphs away
// from the source, one at a time, and plans a restore into a target that has none of them. What a
// workload cluster cannot be reconciled without blocks it, with the finding that its graph says,
// and blocks no other one. All else blocks nothing. Each graph is planned beside one of another
// provider that lacks nothing.
func TestNothingIsReleasedWithoutWhatItNeeds(t *testing.T) {
	graphs := readGraphs(t)
	bystander := graphs[slices.IndexFunc(graphs, func(g *graph) bool { return g.name == "packet" })]
	plans := 0
	for _, g := range graphs {
		planned := slices.Compact([]*graph{bystander, g})
		t.Run(g.name, func(t *testing.T) { plans += g.takeAway(t, planned) })
	}
	t.Logf("%d plans, each without one object", plans)
}

// takeAway takes away each object of a graph without which a workload cluster may have to be
// blocked. planned are the graphs of the source. It returns how many plans were made.
func (g *graph) takeAway(t *testing.T, planned []*graph) (plans int) {
	t.Helper()
	source := newMemory(t, planned)
	always := map[string]string{}
	for _, p := range planned {
		for _, row := range p.Rows {
			always[row.Name] = row.Blocked
		}
	}
	if diff := cmp.Diff(always, blockedRows(t, planned, plan(t, source))); diff != "" {
		t.Errorf("while nothing is missing (-want +got):\n%s", diff)
	}
	taken := map[string]bool{}
	for _, r := range g.refs() {
		if r.GroupKind() != capi.Secret && !capi.IsIdentity(r.GroupKind()) {
			continue
		}
		taken[r.String()] = true
		want := maps.Clone(always)
		code, rows, _ := strings.Cut(g.needs(r), " ")
		for _, name := range strings.Fields(rows) {
			want[name] = strings.TrimSpace(want[name] + " " + code)
		}
		got := blockedRows(t, planned, plan(t, source.without(r)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what is blocked without %s (-want +got):\n%s", r, diff)
		}
	}
	for name := range g.Needed {
		if !taken[name] {
			t.Errorf("%s.yaml has no Secret and no identity %s", g.name, name)
		}
	}
	return len(taken)
}

// needs returns what of Needed belongs to an object. The control plane provider of kubeadm makes
// new certificates where these are missing.
func (g *graph) needs(r object.Ref) string {
	for _, row := range g.Rows {
		for _, suffix := range []string{"ca", "etcd", "proxy", "sa"} {
			if !row.Managed && row.ControlPlane == "" && r.Kind == "Secret" &&
				r.Namespace == row.Namespace && r.Name == row.Name+"-"+suffix {
				return string(object.CodeCAMissing) + " " + row.Name
			}
		}
	}
	return g.Needed[r.String()]
}

// plan plans a restore of a source into a target where the providers are installed.
func plan(t *testing.T, source *memory) *restore.Plan {
	t.Helper()
	var providers []kube.Provider
	for _, p := range installed {
		_, name, _ := strings.Cut(p.label, "-")
		providers = append(providers, kube.Provider{Namespace: p.namespace, Name: name, Type: p.kind,
			Version: "v1.0.0"})
	}
	snap, contents, err := snapshot.CaptureInMemory(t.Context(), snapshot.Options{Source: source,
		SourceName: "source", SourceUID: "source", Kubernetes: "v1.36.3",
		Providers: func(context.Context, []kube.Kind) ([]kube.Provider, error) { return providers, nil }})
	if err != nil {
		t.Fatal(err)
	}
	target := newMemory(t, nil)
	target.kinds = source.kinds
	made, err := restore.NewPlan(t.Context(), restore.Input{Snapshot: snap, Contents: contents,
		Source: restore.Snapshot{ID: "s", Source: object.Side{UID: "source"}, Time: time.Now()},
		Target: object.Side{Name: "target", UID: "target"}, Reader: target, Prober: target,
		Kinds: target.kinds, Providers: providers, Spec: restore.Spec{SourceIsGone: true}})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// blockedRows returns for each row the codes of the errors that block it.
func blockedRows(t *testing.T, graphs []*graph, p *restore.Plan) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, g := range graphs {
		for _, row := range g.Rows {
			out[row.Name] = row.blocks(p.Findings)
			i := slices.IndexFunc(p.Units, func(u restore.Unit) bool {
				return u.Name == row.Namespace+"/"+row.Name
			})
			if i < 0 || p.Units[i].Blocked != (out[row.Name] != "") {
				t.Errorf("%s: unit %d of the plan does not fit its errors %q", row.Name, i, out[row.Name])
			}
		}
	}
	return out
}

// namespaceOf returns the namespace of a provider.
func namespaceOf(label, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": map[string]any{
			"clusterctl.cluster.x-k8s.io": "", "cluster.x-k8s.io/provider": label}}}}
}

// encodeData moves stringData into data, as an API server does.
func encodeData(u *unstructured.Unstructured) {
	text, _, _ := unstructured.NestedStringMap(u.Object, "stringData")
	if u.GetKind() != "Secret" || len(text) == 0 {
		return
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	if data == nil {
		data = map[string]string{}
	}
	for key, value := range text {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	delete(u.Object, "stringData")
	_ = unstructured.SetNestedStringMap(u.Object, data, "data")
}
