package snapshot

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
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

// TestIndex: an index is all that was sealed or nothing: a part that is lost, old, of another or in
// another's place must not pass for a source that has less.
func TestIndex(t *testing.T) {
	ids := testIDs(t, "secret")
	head := indexHead{Reader: "test", Scope: []string{"ns"}}
	// b was captured in the base, and is not any more
	captured, left := indexed("a", "packs/a"), indexed("b", "packs/b")
	shards := []storedShard{{Shard: Shard{Namespace: "ns", Objects: []*graph.Node{captured}},
		at: store.Stored{Key: "shards/a"}, id: store.ContentID{2}}}
	made, err := sealIndex(ids, nil, head, shards, []*graph.Node{left})
	if err != nil || len(made.gone) > 0 || len(made.parts) != 3 {
		t.Fatalf("%+v, %v", made, err)
	}
	sealed := made.parts
	x, err := openIndex(ids, sealed)
	if err != nil {
		t.Fatal(err)
	}
	for _, nodes := range x.nodes { // parts are opened in any order
		slices.SortFunc(nodes, func(a, b *graph.Node) int { return object.CompareRefs(a.Ref, b.Ref) })
	}
	if !reflect.DeepEqual(x, made.index) {
		t.Errorf("opened %+v, kept %+v", x, made.index)
	}
	got := map[string]*graph.Node{}
	for _, n := range x.nodes[object.GroupKind{Kind: "Secret"}] {
		got[n.Name] = n
	}
	if a, b := got["a"], got["b"]; len(got) != 2 || a.Pack != "packs/a" ||
		a.ContentID != captured.ContentID ||
		!a.Movable || b.Pack != "" || b.UID != "u-b" || left.Pack != "packs/b" {
		t.Errorf("%+v, %+v; %+v", a, b, left)
	}
	if x.places[store.ContentID{2}] != "shards/a" || x.places[store.ContentID{1}] != "packs/a" ||
		x.head.Reader != "test" {
		t.Errorf("places %v, head %+v", x.places, x.head)
	}
	// What did not change is not sealed again; the other part goes.
	for _, kept := range []bool{false, true} {
		shards[0].kept = kept
		again, err := sealIndex(ids, x, head, shards, nil)
		if err != nil || len(again.parts) != 1 || len(again.gone) != 1 || len(again.index.sums) != 2 ||
			again.index.objects() != 1 {
			t.Errorf("kept %t: %+v, %v", kept, again, err)
		}
	}
	for name := range sealed {
		without := map[store.ContentID][]byte{}
		for n, data := range sealed {
			if n != name {
				without[n] = data
			}
		}
		if _, err := openIndex(ids, without); err == nil {
			t.Errorf("opened without part %x", name)
		}
		for other, data := range sealed {
			if other != name {
				without[name] = data
				if _, err := openIndex(ids, without); err == nil {
					t.Errorf("opened with part %x in the place of %x", other, name)
				}
			}
		}
	}
	if _, err := openIndex(testIDs(t, "secret"), sealed); err == nil {
		t.Error("opened with other keys")
	}
	if _, err := openIndex(ids, nil); err == nil {
		t.Error("opened without any part")
	}
}

// TestBaseFits: what nodes depend on besides their objects must be what it was.
func TestBaseFits(t *testing.T) {
	head := func() indexHead {
		return indexHead{
			Reader: "1", Scope: []string{"a"}, Providers: []kube.Provider{{Name: "core", Version: "v1"}},
			Kinds: []kube.Kind{kube.NamespaceKind, {GroupKind: object.GroupKind{Group: "g", Kind: "Pool"},
				Namespaced: true}},
		}
	}
	for name, c := range map[string]struct {
		change func(*indexHead)
		fits   bool
	}{
		"the same": {func(*indexHead) {}, true},
		"another kind with namespaces": {func(h *indexHead) {
			h.Kinds = append(h.Kinds,
				kube.SecretKind)
		}, true},
		"a kind without": {func(h *indexHead) {
			h.Kinds = append(h.Kinds, kube.Kind{GroupKind: object.GroupKind{Group: "g", Kind: "GlobalPool"}})
		}, false},
		"a kind that lost its namespace": {func(h *indexHead) { h.Kinds[1].Namespaced = false }, false},
		"another program":                {func(h *indexHead) { h.Reader = "2" }, false},
		"another scope":                  {func(h *indexHead) { h.Scope = nil }, false},
		"another provider":               {func(h *indexHead) { h.Providers[0].Version = "v2" }, false},
	} {
		now := head()
		c.change(&now)
		if b := (&base{index: &index{head: head()}, head: now}); b.fits() != c.fits {
			t.Errorf("%s: fits is %t", name, b.fits())
		}
	}
}
