//go:build api

package snapshot_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/task"
)

// unrelatedObjects is how many custom resources a management cluster has, in the benchmark, with
// which Cluster API has nothing to do: reports of a policy engine, for example.
const unrelatedObjects = 10_000

// BenchmarkSnapshotBesideUnrelatedObjects measures the first snapshot of a source and an unchanged
// one, without and with custom resources of kinds of which nothing is known.
func BenchmarkSnapshotBesideUnrelatedObjects(b *testing.B) {
	servers.Fleet(b, crowded, "--namespace-prefix", "beside-", "--workloads", "3", "--machines", "4",
		"--fast")
	measure := func(b *testing.B, limit int) {
		f := newChainFixtureOn(b, crowded)
		f.exactLimit = limit
		w := &workload{t: b, ctx: b.Context(), m: f.m}
		create := func(b *testing.B, full bool) {
			for b.Loop() {
				if err := w.renew(); err != nil { // as components do all the time
					b.Fatal(err)
				}
				o := f.options()
				o.Cache, o.Full = &f.cache, full
				if _, err := snapshot.Create(b.Context(), o); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run("first", func(b *testing.B) { create(b, true) })
		b.Run("unchanged", func(b *testing.B) { create(b, false) })
	}
	ways := map[string]int{"small": exactLists, "large": watches}
	for way, limit := range ways {
		b.Run(way+"/alone", func(b *testing.B) { measure(b, limit) })
	}
	fillUnrelated(b)
	for way, limit := range ways {
		b.Run(way+"/beside", func(b *testing.B) { measure(b, limit) })
	}
}

// fillUnrelated makes the unrelated objects, each of about two kilobytes.
func fillUnrelated(b *testing.B) {
	f := &relatedFixture{t: b, m: servers.Connect(b, crowded), namespace: "default"}
	report := f.makeKind("Report", "reports", "Namespaced")
	results := make([]any, 10)
	for i := range results {
		results[i] = map[string]any{"policy": fmt.Sprintf("policy-%d", i), "result": "pass",
			"message": "validation rule passed: the resource has what the rule asks for, and more",
			"scored":  true, "source": "engine", "timestamp": "2024-01-01T00:00:00Z"}
	}
	var g task.Group
	g.SetLimit(16)
	for i := range unrelatedObjects {
		g.Go(func() error {
			u := newObject(report, f.namespace, fmt.Sprintf("report-%05d", i))
			u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "engine"})
			u.SetOwnerReferences(nil)
			_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"apiVersion": "apps/v1",
				"kind": "ReplicaSet", "name": "web", "uid": fmt.Sprintf("%036d", i)}}, "metadata",
				"ownerReferences")
			u.Object["results"] = results
			_, err := f.m.Writer().Create(b.Context(), report, u)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}
