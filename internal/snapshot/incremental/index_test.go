package incremental

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

func testIDs(t *testing.T, secret string) *store.ContentIDs {
	t.Helper()
	dir := t.TempDir() + "/keys"
	generated, err := store.Keygen(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: []string{generated.Recipient},
		SigningKeyFile: dir + "/signing.key"})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(t.TempDir() + "/store"),
		Keys: keys, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := st.ContentIDs([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func indexed(name, pack string) *graph.Node {
	return &graph.Node{Ref: object.Ref{Kind: "Secret", Namespace: "ns", Name: name}, Version: "v1",
		UID: "u-" +
			name, ResourceVersion: "7", Content: "00", Size: 1, Pack: pack, ContentID: store.ContentID{1},
		Movable: true}
}

// sealTwo seals an index of two objects: "a" is captured, "b" was captured in the parent only.
func sealTwo(t *testing.T, ids *store.ContentIDs) (*sealed, Head, []Shard) {
	t.Helper()
	head := Head{Reader: "test", Scope: []string{"ns"}}
	shards := []Shard{{Shard: shard.Shard{Namespace: "ns", Objects: []*graph.Node{
		indexed("a", "packs/a")}}, At: store.Stored{Key: "shards/a"}, ID: store.ContentID{2}}}
	notCaptured := indexed("b", "packs/b")
	made, err := sealIndex(ids, nil, head, shards, []*graph.Node{notCaptured})
	if err != nil || len(made.deleted) > 0 || len(made.parts) != 3 {
		t.Fatalf("%+v, %v", made, err)
	}
	if notCaptured.Pack != "packs/b" {
		t.Errorf("sealing changed a node: %+v", notCaptured)
	}
	return made, head, shards
}

func openSealed(t *testing.T, ids *store.ContentIDs, parts map[store.ContentID][]byte) *Index {
	t.Helper()
	x, err := openIndex(ids, parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, nodes := range x.Nodes { // parts are opened in any order
		slices.SortFunc(nodes, func(a, b *graph.Node) int { return object.CompareRefs(a.Ref, b.Ref) })
	}
	return x
}

// TestOpenedIndexIsTheSealedOne: all nodes and keys come back; an object that was not captured has
// no pack, whatever its node said before.
func TestOpenedIndexIsTheSealedOne(t *testing.T) {
	ids := testIDs(t, "secret")
	made, _, _ := sealTwo(t, ids)
	x := openSealed(t, ids, made.parts)
	if !reflect.DeepEqual(x, made.index) {
		t.Errorf("opened %+v, sealed %+v", x, made.index)
	}
	nodes := x.Nodes[object.GroupKind{Kind: "Secret"}]
	if len(nodes) != 2 {
		t.Fatalf("nodes %+v", nodes)
	}
	if a := nodes[0]; a.Pack != "packs/a" || a.ContentID != (store.ContentID{1}) || !a.Movable {
		t.Errorf("captured node %+v", a)
	}
	if b := nodes[1]; b.Pack != "" || b.UID != "u-b" {
		t.Errorf("node that was not captured %+v", b)
	}
	if x.keys[store.ContentID{2}] != "shards/a" || x.keys[store.ContentID{1}] != "packs/a" ||
		x.Head.Reader != "test" {
		t.Errorf("keys %v, head %+v", x.keys, x.Head)
	}
}

// TestPartsOfOneNamespaceAreApart: two shards of a namespace have an entry each in the index.
func TestPartsOfOneNamespaceAreApart(t *testing.T) {
	ids := testIDs(t, "secret")
	shards := []Shard{
		{Shard: shard.Shard{Namespace: "ns", Part: 1, Objects: []*graph.Node{indexed("a", "packs/a")}},
			At: store.Stored{Key: "shards/a"}, ID: store.ContentID{2}},
		{Shard: shard.Shard{Namespace: "ns", Part: 2, Objects: []*graph.Node{indexed("b", "packs/a")}},
			At: store.Stored{Key: "shards/b"}, ID: store.ContentID{3}},
	}
	made, err := sealIndex(ids, nil, Head{}, shards, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := openSealed(t, ids, made.parts)
	if x.objects() != 2 || x.keys[store.ContentID{2}] != "shards/a" ||
		x.keys[store.ContentID{3}] != "shards/b" {
		t.Errorf("%d objects, keys %v", x.objects(), x.keys)
	}
	shards[0].Unchanged, shards[1].Unchanged = true, true
	if again, err := sealIndex(ids, x, Head{}, shards, nil); err != nil || len(again.parts) != 0 {
		t.Errorf("%d parts were sealed again, %v", len(again.parts), err)
	}
}

// TestUnchangedPartsAreNotSealedAgain: only the head is; the part of objects that are gone is
// deleted.
func TestUnchangedPartsAreNotSealedAgain(t *testing.T) {
	ids := testIDs(t, "secret")
	made, head, shards := sealTwo(t, ids)
	x := openSealed(t, ids, made.parts)
	for _, unchanged := range []bool{false, true} {
		t.Run(fmt.Sprintf("shard known to be unchanged %t", unchanged), func(t *testing.T) {
			shards[0].Unchanged = unchanged
			again, err := sealIndex(ids, x, head, shards, nil)
			if err != nil || len(again.parts) != 1 || len(again.deleted) != 1 ||
				len(again.index.sums) != 2 || again.index.objects() != 1 {
				t.Errorf("%+v, %v", again, err)
			}
		})
	}
}

// TestIndexOpensWholeOrNotAtAll: a missing part, or one in the place of another, must not pass for
// a source that has fewer objects.
func TestIndexOpensWholeOrNotAtAll(t *testing.T) {
	ids := testIDs(t, "secret")
	made, _, _ := sealTwo(t, ids)
	for name := range made.parts {
		parts := maps.Clone(made.parts)
		delete(parts, name)
		if _, err := openIndex(ids, parts); err == nil {
			t.Errorf("opened without part %x", name)
		}
		for other, data := range made.parts {
			if other == name {
				continue
			}
			parts[name] = data
			if _, err := openIndex(ids, parts); err == nil {
				t.Errorf("opened with part %x in the place of %x", other, name)
			}
		}
	}
	t.Run("other keys do not open it", func(t *testing.T) {
		if _, err := openIndex(testIDs(t, "secret"), made.parts); err == nil {
			t.Error("opened")
		}
	})
	t.Run("no parts are no index", func(t *testing.T) {
		if _, err := openIndex(ids, nil); err == nil {
			t.Error("opened")
		}
	})
}

// TestHeadIsCompatible if what nodes depend on besides their objects is unchanged.
func TestHeadIsCompatible(t *testing.T) {
	head := func() Head {
		return Head{
			Reader: "1", Scope: []string{"a"}, Providers: []kube.Provider{{Name: "core", Version: "v1"}},
			Kinds: []kube.Kind{kube.NamespaceKind, {GroupKind: object.GroupKind{Group: "g", Kind: "Pool"},
				Namespaced: true}},
		}
	}
	for name, c := range map[string]struct {
		change     func(*Head)
		compatible bool
	}{
		"the same": {func(*Head) {}, true},
		"another kind with namespaces": {func(h *Head) {
			h.Kinds = append(h.Kinds,
				kube.SecretKind)
		}, true},
		"a kind without": {func(h *Head) {
			h.Kinds = append(h.Kinds, kube.Kind{GroupKind: object.GroupKind{Group: "g", Kind: "GlobalPool"}})
		}, false},
		"a kind that lost its namespace": {func(h *Head) { h.Kinds[1].Namespaced = false }, false},
		"another program":                {func(h *Head) { h.Reader = "2" }, false},
		"another scope":                  {func(h *Head) { h.Scope = nil }, false},
		"another provider":               {func(h *Head) { h.Providers[0].Version = "v2" }, false},
	} {
		now := head()
		c.change(&now)
		if is := now.compatible(head()); is != c.compatible {
			t.Errorf("%s: compatible is %t", name, is)
		}
	}
}
