package store

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/tree"
)

func key(kind Kind, encrypted bool, seed string) Key {
	return layout.KeyOf(kind, encrypted, []byte(seed))
}

func TestTreeIsReadAsItWasWritten(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, _ string) {
		e := s.Encrypted()
		shards := []Key{key(KindShard, e, "1"), key(KindShard, e, "2"), key(KindShard, e, "3")}
		packs := []Key{key(KindPack, e, "1"), key(KindPack, e, "2")}
		first, err := s.PutTree(t.Context(), Tree{Shards: shards, Packs: packs})
		if err != nil {
			t.Fatal(err)
		}
		second, err := s.PutTree(t.Context(), Tree{Shards: []Key{shards[2], shards[0], shards[1],
			shards[0]}, Packs: []Key{packs[1], packs[0], packs[1]}})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []Key{first, second} {
			got, err := s.GetTree(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Tree{Shards: tree.Sorted(shards), Packs: tree.Sorted(packs)},
				got); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		}
		empty, err := s.PutTree(t.Context(), Tree{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.GetTree(t.Context(), empty); err != nil || len(got.Packs)+len(got.Shards) != 0 {
			t.Errorf("empty tree: %v, %v", got, err)
		}
		for _, bad := range []Tree{{Shards: packs}, {Packs: shards}, {Packs: []Key{"packs/../x"}},
			{Packs: []Key{key(KindPack, !e, "1")}}} {
			if _, err := s.PutTree(t.Context(), bad); err == nil {
				t.Errorf("stored %v", bad)
			}
		}
	})
}

// TestPutOfPresentContentFindsDamage: a snapshot must not name a key that went bad, though it has
// the name of the bytes that are put.
func TestPutOfPresentContentFindsDamage(t *testing.T) {
	for name, change := range damages {
		t.Run(name, func(t *testing.T) {
			s, root := newTestStore(t, true)
			data := []byte("content that is as long as content may well be")
			of := layout.KeyOf(KindTree, false, data)
			for range 2 {
				if err := s.putContent(t.Context(), of, data); err != nil {
					t.Fatal(err)
				}
			}
			rewrite(t, root, string(of), change)
			wantCorrupt(t, s.putContent(t.Context(), of, data))
		})
	}
}

func TestTreeIsSortedKeysAndNothingElse(t *testing.T) {
	a, b, pack := string(key(KindShard, true, "1")), string(key(KindShard, true, "2")),
		string(key(KindPack, true, "1"))
	if b < a {
		a, b = b, a
	}
	quote := func(keys ...string) string { return `["` + strings.Join(keys, `","`) + `"]` }
	good := `{"shards":` + quote(a, b) + `,"packs":` + quote(pack) + "}\n"
	if _, err := tree.Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"not sorted":       `{"shards":` + quote(b, a) + `,"packs":[]}` + "\n",
		"twice":            `{"shards":` + quote(a, a) + `,"packs":[]}` + "\n",
		"unknown field":    strings.Replace(good, "}", `,"more":1}`, 1),
		"field twice":      strings.Replace(good, "}", `,"packs":[]}`, 1),
		"other case":       strings.Replace(good, "shards", "Shards", 1),
		"many short keys":  `{"shards":[` + strings.Repeat(`"",`, 1000) + `""],"packs":[]}` + "\n",
		"null":             `{"shards":null,"packs":[]}` + "\n",
		"missing field":    `{"shards":[]}` + "\n",
		"pack as shard":    `{"shards":` + quote(pack) + `,"packs":[]}` + "\n",
		"shard as pack":    `{"shards":[],"packs":` + quote(a) + "}\n",
		"path":             `{"shards":["shards/../../etc/passwd"],"packs":[]}` + "\n",
		"upper-case hash":  `{"shards":` + quote(strings.ToUpper(a)) + `,"packs":[]}` + "\n",
		"wrong first two":  `{"shards":` + quote("shards/zz"+a[9:]) + `,"packs":[]}` + "\n",
		"no newline":       strings.TrimSuffix(good, "\n"),
		"white space":      strings.Replace(good, ":", ": ", 1),
		"text after":       good + good,
		"escaped":          strings.Replace(good, "shards/", `shards\/`, 1),
		"not an object":    "[]\n",
		"not JSON":         "hello",
		"empty":            "",
		"keys are numbers": `{"shards":[1],"packs":[]}` + "\n",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if tree, err := tree.Decode([]byte(text)); err == nil {
				t.Errorf("decoded as %v", tree)
			}
		})
	}
}
