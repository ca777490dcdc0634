package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

func TestListsOfSnapshotsPassOverOtherFiles(t *testing.T) {
	s, root := newTestStore(t, true)
	if keys, err := s.Snapshots(t.Context(), ""); err != nil || len(keys) != 0 {
		t.Errorf("of an empty store: %v, %v", keys, err)
	}
	first := mustWriteSnapshot(t, s, 1, nil)
	second := mustWriteSnapshot(t, s, 2, &first)
	e := testEnvelope(first.Tree, 1)
	e.Source.UID = "a-other"
	other, err := s.PutEnvelope(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for _, junk := range []string{"note.json", string(first.ID),
		"20260102T030405.678Z-0123456789ab.json.bak"} {
		if err := os.WriteFile(filepath.Join(root, "snapshots", testSource, junk), nil,
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	for source, want := range map[string][]EnvelopeKey{testSource: {first.Key(), second.Key()},
		"a-other": {other.Key()}, "a": nil, "": {first.Key(), second.Key(), other.Key()}} {
		got, err := s.Snapshots(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("snapshots of %q (-want +got):\n%s", source, diff)
		}
	}
	if got, err := s.Sources(t.Context()); err != nil ||
		!slices.Equal(got, []string{testSource, "a-other"}) {
		t.Errorf("sources %v, %v", got, err)
	}
	if _, err := s.Snapshots(t.Context(), "../packs"); err == nil {
		t.Error("listed a source that is a path")
	}
}

func TestFindSnapshotByReference(t *testing.T) {
	s, _ := newTestStore(t, true)
	tree := mustWriteSnapshot(t, s, 1, nil).Tree
	var keys []EnvelopeKey
	for i, id := range []SnapshotID{"abc000000001", "abc000000002", "0123456789ab"} {
		e := testEnvelope(tree, int64(i+1))
		e.ID, e.Source.UID = id, "uid"
		signed, err := s.PutEnvelope(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, signed.Key())
	}
	at := func(n int, d time.Duration) string { return keys[n].Time.Add(d).Format(time.RFC3339Nano) }
	tests := []struct {
		name, source, ref string
		want              int    // index of the key, -1 for an error
		text              string // in the error
	}{
		{"latest", "uid", "latest", 2, ""},
		{"whole id", "uid", "abc000000002", 1, ""},
		{"beginning of an id", "uid", "0", 2, ""},
		{"ambiguous id", "uid", "abc", -1, "abc000000002 (2026-01-02T03:06:05Z), abc000000001"},
		{"unknown id", "uid", "fff", -1, "there is none, source uid has 0123456789ab"},
		{"at its time", "uid", at(1, 0), 1, ""},
		{"between", "uid", at(1, time.Second), 1, ""},
		{"in another zone", "uid", keys[0].Time.Add(time.Second).In(time.FixedZone("x", 7200)).Format(
			time.RFC3339), 0, ""},
		{"after all", "uid", at(2, time.Hour), 2, ""},
		{"before all", "uid", at(0, -time.Millisecond), -1, "there is no whole one"},
		{"unknown source", "none", "latest", -1, "source none has no snapshots"},
		{"any source", "", "0123", 2, ""},
		{"not an id", "uid", "yesterday", -1, "not a snapshot id"},
		{"empty", "uid", "", -1, "not a snapshot id"},
		{"too long", "uid", "0123456789abc", -1, "not a snapshot id"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Find(t.Context(), tt.source, tt.ref, "")
			if tt.want >= 0 {
				if err != nil || got.Key != keys[tt.want] {
					t.Errorf("%v, %v, want %v", got, err, keys[tt.want])
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v, %v, want an error with %q", got, err, tt.text)
			}
		})
	}
}

func TestVerifyStructureReportsEveryDamagedKey(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, root string) {
		signed := mustWriteSnapshot(t, s, 1, nil)
		keyless := mustOpen(t, Options{Bucket: directory.New(root)})
		tree, err := s.GetTree(t.Context(), signed.Tree)
		if err != nil {
			t.Fatal(err)
		}
		verify := func(t *testing.T) VerifyReport {
			t.Helper()
			var last VerifyProgress
			report, err := keyless.VerifyStructure(t.Context(), signed.Envelope,
				func(p VerifyProgress) { last = p })
			if err != nil {
				t.Fatal(err)
			}
			if report.Keys > 0 && last != (VerifyProgress{Done: 2, Total: 2, Bytes: report.Bytes}) {
				t.Errorf("last progress %+v, report %+v", last, report)
			}
			return report
		}
		report := verify(t)
		if len(report.Findings) != 0 || report.Keys != 2 || report.Bytes == 0 {
			t.Errorf("of a good snapshot: %+v", report)
		}
		for name, damage := range damages {
			t.Run(name, func(t *testing.T) {
				var good [][]byte
				for _, key := range []Key{tree.Packs[0], tree.Shards[0]} {
					rewrite(t, root, string(key), func(b []byte) []byte {
						good = append(good, slices.Clone(b))
						return damage(b)
					})
				}
				got := verify(t).Findings
				if len(got) != 2 || got[0].Key != tree.Packs[0] || got[0].Code != object.CodeDamaged ||
					got[1].Key != tree.Shards[0] || got[1].Code != object.CodeDamaged {
					t.Errorf("findings %v, want both keys damaged", got)
				}
				for i, key := range []Key{tree.Packs[0], tree.Shards[0]} {
					rewrite(t, root, string(key), func([]byte) []byte { return good[i] })
				}
			})
		}
		if err := os.Remove(filepath.Join(root, string(tree.Shards[0]))); err != nil {
			t.Fatal(err)
		}
		if got := verify(t).Findings; len(got) != 1 || got[0].Code != object.CodeMissing ||
			got[0].Key != tree.Shards[0] {
			t.Errorf("findings %v, want the shard missing", got)
		}
		rewrite(t, root, string(signed.Tree), damages["truncated"])
		if got := verify(t).Findings; len(got) != 1 || got[0].Code != object.CodeDamaged ||
			got[0].Key != signed.Tree {
			t.Errorf("findings %v, want the tree damaged", got)
		}
		if err := os.Remove(filepath.Join(root, string(signed.Tree))); err != nil {
			t.Fatal(err)
		}
		if got := verify(t).Findings; len(got) != 1 || got[0].Code != object.CodeMissing {
			t.Errorf("findings %v, want the tree missing", got)
		}
	})
}

func TestVerifyStructureReturnsErrorsThatAreNoDamage(t *testing.T) {
	s, root := newTestStore(t, true)
	signed := mustWriteSnapshot(t, s, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.VerifyStructure(ctx, signed.Envelope, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := os.Rename(root, root+"-gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.VerifyStructure(t.Context(), signed.Envelope, nil); !errors.Is(err,
		ErrStoreMissing) {
		t.Errorf("store gone: %v, want ErrStoreMissing", err)
	}
}

func TestChainReportsGapsForksAndReplacedParents(t *testing.T) {
	var chain []Signed
	for n := range int64(5) {
		e := Signed{Envelope: testEnvelope("", n+1), SHA256: strings.Repeat("0",
			63) + string(rune('a'+n))}
		if n > 0 {
			e.Parent = &Parent{ID: chain[n-1].ID, SHA256: chain[n-1].SHA256}
		}
		chain = append(chain, e)
	}
	without := func(drop ...int) []Signed {
		var left []Signed
		for i, e := range chain {
			if !slices.Contains(drop, i) {
				left = append(left, e)
			}
		}
		return left
	}
	changed := func(i int, change func(*Signed)) []Signed {
		all := slices.Clone(chain)
		change(&all[i])
		return all
	}
	hidden := append(without(4), Signed{Envelope: testEnvelope("", 5)})
	hidden[4].Parent = &Parent{ID: chain[3].ID, SHA256: chain[3].SHA256}
	tests := []struct {
		name string
		in   []Signed
		want []ChainBreak // without Message and Key
	}{
		{"none", nil, nil},
		{"whole", chain, nil},
		{"in another order", []Signed{chain[3], chain[0], chain[4], chain[2], chain[1]}, nil},
		{"newest hidden cannot be seen", without(4), nil},
		{"newest hidden, then another made", append(slices.Clone(hidden), chain[4]),
			[]ChainBreak{{Kind: ChainFork}}},
		{"one hidden", without(2), []ChainBreak{{Kind: ChainGap, From: 3, To: 3}}},
		{"two hidden", without(1, 2), []ChainBreak{{Kind: ChainGap, From: 2, To: 3}}},
		{"oldest deleted", without(0, 1), []ChainBreak{{Kind: ChainGap, From: 1, To: 2}}},
		{"parent changed", changed(1, func(e *Signed) { e.SHA256 = strings.Repeat("f", 64) }),
			[]ChainBreak{{Kind: ChainParent}}},
		{"parent replaced", changed(1, func(e *Signed) { e.ID = NewSnapshotID() }),
			[]ChainBreak{{Kind: ChainParent}}},
		{"no parent named", changed(2, func(e *Signed) { e.Parent = nil }),
			[]ChainBreak{{Kind: ChainParent}}},
		{"number jumps", changed(4, func(e *Signed) { e.Sequence = 9 }),
			[]ChainBreak{{Kind: ChainGap, From: 5, To: 8}, {Kind: ChainParent}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := CheckChain(tt.in, nil)
			for i := range got {
				if got[i].Message == "" || got[i].Key.ID == "" {
					t.Errorf("break without message or key: %+v", got[i])
				}
				got[i].Message, got[i].Key = "", EnvelopeKey{}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("breaks (-want +got):\n%s", diff)
			}
		})
	}
}
