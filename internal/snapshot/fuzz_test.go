package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
)

// FuzzShard: shards that are taken can be linked, whatever their edges are, and say the same when
// they are written again.
func FuzzShard(f *testing.F) {
	hash := fmt.Sprintf("%064x", 1)
	pack := "packs/00/" + hash + ".tar.zst.age"
	f.Add([]byte(`{"unit":"team-a/web","objects":[{"group":"cluster.x-k8s.io","kind":"Machine","namespace":"team-a","name":"web-x","version":"v1beta2","uid":"u","resourceVersion":"1",` +
		`"owners":[{"group":"cluster.x-k8s.io","kind":"Cluster","namespace":"team-a","name":"web","uid":"v"}],` +
		`"needs":[{"kind":"Secret","namespace":"team-a","name":"web-x","field":"spec.bootstrap.dataSecretName","owner":true}],"cluster":"web","sha256":"` + hash + `","size":3,"pack":"` + pack + `"},` +
		`{"group":"cluster.x-k8s.io","kind":"Cluster","namespace":"team-a","name":"web","version":"v1beta2","uid":"v","labels":["a=b"],"workloadId":"v","sha256":"` + hash + `","pack":"` + pack + `"}]}`))
	f.Add([]byte(`{"about":{"kubernetesVersion":"v1.36.1","kinds":[],"providers":[]},"objects":null}`))
	f.Add([]byte(`{"objects":[null]}`))
	f.Add([]byte(`{"objects":[{"kind":"A","name":"a","version":"v1","sha256":"x","pack":"y","owners":[{"kind":"A","name":"a"}],"needs":[{"kind":"A","name":"a"}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := shard.Decode(text, shard.NewBudget(1<<40))
		if err != nil {
			return
		}
		first, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		tree := store.Tree{}
		for _, n := range s.Objects {
			tree.Packs = append(tree.Packs, store.Key(n.Pack))
		}
		opened, err := link(nil, store.Envelope{Counts: store.Counts{Objects: int64(len(s.Objects))}},
			tree, []shard.Shard{s}, nil)
		if err == nil {
			for _, n := range opened.Graph.Nodes {
				if opened.Graph.Node(n.Ref) != n {
					t.Errorf("%s is not found", n.Ref)
				}
			}
		}
		again, err := shard.Decode(first, shard.NewBudget(1<<40))
		if err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s became %s, %v", first, second, err)
		}
	})
}

// FuzzObject: what is read of an object's bytes to check it is what is read of them to create it
// (invariant I8).
func FuzzObject(f *testing.F) {
	var kinds []kube.Kind
	var rows *capi.Table
	for _, gk := range rows.Kinds() {
		kinds = append(kinds, kube.Kind{GroupKind: gk, Version: "v1", Namespaced: true})
	}
	read := capture.NewNodeReader(kinds, nil)
	for _, seed := range []string{
		`{"kind":"Cluster","apiVersion":"cluster.x-k8s.io/v1","metadata":{"name":"web","namespace":"team-a","uid":"u","labels":{"b":"2","a":"1"},"annotations":{"mgmtd.dev/was-paused":"false"}},` +
			`"spec":{"paused":true,"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"DevCluster","name":"web"},"topology":{"classRef":{"name":"c"},"variables":[1,"a",null]}}}`,
		`{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":"web","uid":"v"}],"deletionTimestamp":null}}`,
		`{"metadata":{"name":"a","name":"b"}}`, `{"meta\u0064ata":{"name":"a"}}`,
		`{"metadata":[{"name":"a"}]}`, `{"metadata":{"name":1e2}}`, `[]`, `{`, `"x"`,
	} {
		f.Add([]byte(seed), 0)
		f.Add([]byte(seed), 5)
	}
	f.Fuzz(func(t *testing.T, raw []byte, kind int) {
		k := kinds[(kind%len(kinds)+len(kinds))%len(kinds)]
		sent := slices.Clone(raw)
		n := read.Node(k, sent)
		before := fmt.Sprintf("%+v", *n)
		clear(sent) // as the next object overwrites it
		if after := fmt.Sprintf("%+v", *n); after != before {
			t.Errorf("the node is a part of its object: %s became %s", before, after)
		}
		u := &unstructured.Unstructured{}
		if !jsontext.Value(raw).IsValid() || u.UnmarshalJSON(raw) != nil {
			return // refused before anything is created
		}
		created := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: u.GetNamespace(),
			Name: u.GetName()}
		if _, _, err := unstructured.NestedString(u.Object, "metadata", "name"); err == nil &&
			n.Ref != created {
			t.Errorf("checked as %s, created as %s: %q", n.Ref, created, raw)
		}
	})
}
