package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

const testUID = "6f1b2c3d-0000-4000-8000-000000000001"

// entry is an object of a snapshot that a test makes by hand, so that a shard can say what is not
// so.
type entry struct {
	kind kube.Kind
	body string
	in   string                 // what the pack holds in its place; "" for body, "-" for nothing
	lie  func(node *graph.Node) // changes what its shard says
}

var (
	testCluster = kube.Kind{GroupKind: capi.Cluster, Version: "v1beta2", Resource: "clusters",
		Namespaced: true}
	testMachine = kube.Kind{GroupKind: capi.Machine, Version: "v1beta2", Resource: "machines",
		Namespaced: true}
)

func clusterBody(name, uid string) string {
	return fmt.Sprintf(`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"name":%q,"namespace":"ns","uid":%q,"resourceVersion":"7"},"spec":{}}`, name, uid)
}

func machineBody(name string) string {
	return fmt.Sprintf(`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"name":%q,"namespace":"ns","uid":"u-%s","resourceVersion":"8",
		"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":"a","uid":"u-a"}]},"spec":{"clusterName":"a",
		"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"DevMachine","name":"infra"}}}`, name, name)
}

// putObjects makes a snapshot of objects, each in a pack of its own.
func putObjects(t *testing.T, st *store.Store, objects []entry) store.Signed {
	t.Helper()
	ctx := t.Context()
	kinds := []kube.Kind{testCluster, testMachine}
	read := capture.NewNodeReader(kinds, nil)
	var tree store.Tree
	s := shard.Shard{About: &About{Kinds: kinds}}
	for _, o := range objects {
		n := read.Node(o.kind, []byte(o.body))
		name, err := store.EntryName(store.Entry{Group: n.Group, Kind: n.Kind, Namespace: n.Namespace,
			Name: n.Name})
		if err != nil {
			t.Fatal(err)
		}
		body := o.in
		switch body {
		case "":
			body = o.body
		case "-":
			name, body = "core/Secret/ns/other.json", "{}"
		}
		w, err := st.NewPackWriter(ctx, time.Unix(1e9, 0))
		if err != nil {
			t.Fatal(err)
		}
		place, err := w.Add(name, []byte(body))
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		n.Pack = string(place.Key())
		if o.lie != nil {
			o.lie(n)
		}
		tree.Packs = append(tree.Packs, place.Key())
		s.Objects = append(s.Objects, n)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := st.PutShard(ctx, text)
	if err != nil {
		t.Fatal(err)
	}
	tree.Shards = []store.Key{stored.Key}
	key, err := st.PutTree(ctx, tree)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := st.PutEnvelope(ctx, store.Envelope{
		ID: store.NewSnapshotID(), Sequence: 1, Time: time.Unix(1e9, 0),
		Source: store.Source{UID: testUID}, Tree: key, Counts: store.Counts{Objects: int64(len(objects))},
	})
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func testStore(t *testing.T) (*store.Store, string) {
	t.Helper()
	root := t.TempDir()
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root), Plain: true,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return st, root
}

func verify(t *testing.T, st *store.Store, e store.Signed, percent int) Verification {
	t.Helper()
	s, err := Open(t.Context(), st, e.Envelope, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Verify(t.Context(), percent, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestVerifyFindsWhatAShardSaysWrong: the structure of each of these snapshots is whole.
func TestVerifyFindsWhatAShardSaysWrong(t *testing.T) {
	t.Parallel()
	cluster := entry{kind: testCluster, body: clusterBody("a", "u-a")}
	for name, tt := range map[string]struct {
		machine entry
		code    object.Code
		message string
	}{
		"all right":   {entry{}, "", ""},
		"other bytes": {entry{in: machineBody("m") + " "}, object.CodeDamaged, "do not fit the hash"},
		"not there":   {entry{in: "-"}, object.CodeDamaged, "it is not in packs/"},
		"another UID": {entry{lie: func(n *graph.Node) { n.UID = "other" }}, object.CodeDamaged,
			"another UID"},
		"no owners": {entry{lie: func(n *graph.Node) { n.Owners = nil }}, object.CodeDamaged,
			"or other owners"},
		"paused": {entry{lie: func(n *graph.Node) { n.Paused = true }}, object.CodeDamaged,
			"another state"},
		"another version": {entry{lie: func(n *graph.Node) { n.Version = "v1beta1" }}, object.CodeDamaged,
			"another kind or version"},
		"an edge more": {entry{lie: func(n *graph.Node) {
			n.Needs = append(n.Needs, graph.Need{Ref: object.Ref{Kind: "Secret", Namespace: "ns", Name: "s"},
				Field: "spec"})
		}}, object.CodeEdges, "other edges"},
		"an edge less": {entry{lie: func(n *graph.Node) { n.Needs = nil }}, object.CodeEdges,
			"other edges"},
		"another cluster": {entry{lie: func(n *graph.Node) { n.Cluster = "b" }}, object.CodeEdges,
			"other edges"},
		"name occurs twice": {entry{body: strings.Replace(machineBody("m"), `"spec":`,
			`"spec":{},"spec":`, 1)}, object.CodeDamaged, "a name occurs twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, _ := testStore(t)
			tt.machine.kind = testMachine
			if tt.machine.body == "" {
				tt.machine.body = machineBody("m")
			}
			e := putObjects(t, st, []entry{cluster, tt.machine})
			report, err := st.VerifyStructure(t.Context(), e.Envelope, nil)
			if err != nil || len(report.Findings) > 0 {
				t.Fatalf("structure: %v, %v", report.Findings, err)
			}
			r := verify(t, st, e, 100)
			if r.Objects != 2 || r.Packs != 2 {
				t.Errorf("verified %d objects in %d packs", r.Objects, r.Packs)
			}
			if tt.code == "" {
				if len(r.Findings) > 0 {
					t.Errorf("found %v", r.Findings)
				}
				return
			}
			if len(r.Findings) != 1 || r.Findings[0].Code != tt.code ||
				!strings.Contains(r.Findings[0].Message, tt.message) || r.Findings[0].Ref.Name != "m" {
				t.Errorf("found %v", r.Findings)
			}
		})
	}
}

// TestVerifyFindsDamagedPacks and those that are gone, and goes on with the others.
func TestVerifyFindsDamagedPacks(t *testing.T) {
	t.Parallel()
	st, root := testStore(t)
	var objects []entry
	for i := range 5 {
		objects = append(objects, entry{kind: testMachine, body: machineBody(fmt.Sprint("m", i))})
	}
	e := putObjects(t, st, objects)
	packs, err := filepath.Glob(root + "/packs/*/*")
	if err != nil || len(packs) != 5 {
		t.Fatal(packs, err)
	}
	if err := os.Truncate(packs[1], 40); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(packs[3]); err != nil {
		t.Fatal(err)
	}
	r := verify(t, st, e, 100)
	if len(r.Findings) != 2 || r.Findings[0].Code != object.CodeDamaged ||
		!strings.Contains(r.Findings[0].Message, "do not fit the hash") ||
		!strings.Contains(r.Findings[1].Message, "it is not in the store") {
		t.Errorf("found %v", r.Findings)
	}
}

// TestVerifyOfASampleReadsATenthOfThePacks, rounded up, another one each time.
func TestVerifyOfASampleReadsATenthOfThePacks(t *testing.T) {
	t.Parallel()
	st, root := testStore(t)
	var objects []entry
	for i := range 21 {
		objects = append(objects, entry{kind: testMachine, body: machineBody(fmt.Sprint("m", i))})
	}
	e := putObjects(t, st, objects)
	if r := verify(t, st, e, DefaultSample); r.Packs != 3 || r.Objects != 3 || len(r.Findings) > 0 {
		t.Errorf("verified %d objects in %d packs: %v", r.Objects, r.Packs, r.Findings)
	}
	if r := verify(t, st, e, 50); r.Packs != 11 || len(r.Findings) > 0 {
		t.Errorf("verified %d objects in %d packs: %v", r.Objects, r.Packs, r.Findings)
	}
	packs, err := filepath.Glob(root + "/packs/*/*")
	if err != nil || len(packs) != 21 {
		t.Fatal(packs, err)
	}
	if err := os.Remove(packs[0]); err != nil {
		t.Fatal(err)
	}
	for try := 0; len(verify(t, st, e, DefaultSample).Findings) == 0; try++ {
		if try == 200 { // one in 5 million million runs
			t.Fatal("a sample never finds the pack that is gone")
		}
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	st, _ := testStore(t)
	e := putObjects(t, st, []entry{{kind: testCluster, body: clusterBody("a", "u-a")}})
	s, err := Open(t.Context(), st, e.Envelope, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Verify(ctx, 100, nil); err == nil {
		t.Error("verified after its end")
	}
}
