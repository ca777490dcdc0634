package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

func testOwner(id string, epoch int64) Owner {
	return Owner{WorkloadID: id, Workload: "fleet/alpha", Owner: Source{UID: testSource, Name: "prod"},
		Epoch: epoch, Operation: "0123456789ab", Time: testTime.Add(999)}
}

func TestOwnerIsReadAsItWasWritten(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, _ string) {
		if err := s.CanFence(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.GetOwner(t.Context(), "w1"); !errors.Is(err, ErrNotFound) {
			t.Errorf("get of none: %v, want ErrNotFound", err)
		}
		first, err := s.PutOwner(t.Context(), testOwner("w1", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := testOwner("w1", 1)
		want.Format, want.StoreID, want.Time = Format, s.ID(), testTime
		trust := Trusted
		if !s.Encrypted() {
			trust = Unsigned
		}
		if first.Owner != want || first.Trust != trust {
			t.Errorf("put returns %+v, want %+v, %s", first, want, trust)
		}
		got, err := s.GetOwner(t.Context(), "w1")
		if err != nil || got != first {
			t.Errorf("get: %+v, %v, want %+v", got, err, first)
		}
		second, err := s.PutOwner(t.Context(), testOwner("w1", 7), &got)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.GetOwner(t.Context(), "w1"); err != nil || got != second || got.Epoch != 7 {
			t.Errorf("get after the second: %+v, %v", got, err)
		}
		if (second.RequireTrusted() == nil) != s.Encrypted() {
			t.Errorf("RequireTrusted: %v", second.RequireTrusted())
		}
	})
}

func TestOnlyTheLatestOwnerIsReplaced(t *testing.T) {
	s, _ := newTestStore(t, true)
	first, err := s.PutOwner(t.Context(), testOwner("w1", 5), nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.PutOwner(t.Context(), testOwner("w1", 6), &first)
	if err != nil {
		t.Fatal(err)
	}
	for name, previous := range map[string]*SignedOwner{"none": nil, "the one before": &first} {
		if _, err := s.PutOwner(t.Context(), testOwner("w1", 9), previous); !errors.Is(err, ErrConflict) {
			t.Errorf("put after %s: %v, want ErrConflict", name, err)
		}
	}
	for _, epoch := range []int64{6, 5, 0, -1} {
		if _, err := s.PutOwner(t.Context(), testOwner("w1", epoch), &second); err == nil {
			t.Errorf("epoch %d after 6 was taken", epoch)
		}
	}
	if _, err := s.PutOwner(t.Context(), testOwner("w2", 9), &second); err == nil {
		t.Error("the record of another workload cluster was taken as the one before")
	}
	for name, change := range map[string]func(*Owner){
		"id is a path":          func(o *Owner) { o.WorkloadID = "../mgmtd" },
		"no id":                 func(o *Owner) { o.WorkloadID = "" },
		"epoch 0":               func(o *Owner) { o.Epoch = 0 },
		"no owner":              func(o *Owner) { o.Owner = Source{} },
		"workload without name": func(o *Owner) { o.Workload = "fleet" },
		"name with an escape":   func(o *Owner) { o.Owner.Name = "\x1b[2J" },
	} {
		o := testOwner("w3", 1)
		change(&o)
		if _, err := s.PutOwner(t.Context(), o, nil); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	if got, err := s.GetOwner(t.Context(), "w1"); err != nil || got != second {
		t.Errorf("get after all that: %+v, %v", got, err)
	}
	if _, err := s.GetOwner(t.Context(), "../mgmtd"); err == nil {
		t.Error("read an id that is a path")
	}
}

// TestI1OfManyHandOversOneWins: when hosts hand over one workload cluster at once, exactly one
// succeeds.
func TestI1OfManyHandOversOneWins(t *testing.T) {
	s, _ := newTestStore(t, false)
	var previous *SignedOwner
	for round := range int64(5) {
		var wins atomic.Int32
		var winner atomic.Pointer[SignedOwner]
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				o := testOwner("w1", round+1)
				o.Owner.Name = string(rune('a' + w))
				signed, err := s.PutOwner(t.Context(), o, previous)
				if err == nil {
					wins.Add(1)
					winner.Store(&signed)
				} else if !errors.Is(err, ErrConflict) {
					t.Errorf("put: %v", err)
				}
			})
		}
		wg.Wait()
		if n := wins.Load(); n != 1 {
			t.Fatalf("round %d: %d hosts won, want 1", round, n)
		}
		got, err := s.GetOwner(t.Context(), "w1")
		if err != nil || got != *winner.Load() {
			t.Fatalf("round %d: record %+v, %v, winner %+v", round, got, err, *winner.Load())
		}
		previous = &got
	}
}

func TestOwnerReportsWhoSignedIt(t *testing.T) {
	mine, theirs := testKeys(t), testKeys(t)
	root := t.TempDir()
	s := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, mine), Create: true})
	if _, err := s.PutOwner(t.Context(), testOwner("w1", 1), nil); err != nil {
		t.Fatal(err)
	}
	other := mustOpen(t, Options{Bucket: directory.New(root),
		Keys: mustLoad(t, KeyOptions{TrustedKeyFiles: theirs.TrustedKeyFiles})})
	for want, s := range map[Trust]*Store{Trusted: s, UnknownSigner: other,
		Unchecked: mustOpen(t, Options{Bucket: directory.New(root)})} {
		got, err := s.GetOwner(t.Context(), "w1")
		if err != nil || got.Trust != want {
			t.Errorf("trust %s, %v, want %s", got.Trust, err, want)
		}
		_, untrusted := errors.AsType[*TrustError](got.RequireTrusted())
		if untrusted != (want != Trusted) {
			t.Errorf("RequireTrusted of %s: %v", want, got.RequireTrusted())
		}
	}
	noKey := mustOpen(t, Options{Bucket: directory.New(root),
		Keys: mustLoad(t, KeyOptions{Recipients: mine.Recipients})})
	fence, ok := errors.AsType[*FenceError](noKey.CanFence(t.Context()))
	if !ok || fence.Hint() == "" {
		t.Errorf("CanFence without a signing key: %v", noKey.CanFence(t.Context()))
	}
	if _, err := noKey.PutOwner(t.Context(), testOwner("w2", 1), nil); err == nil {
		t.Error("an unsigned record was written to an encrypted store")
	}
	if _, err := os.Stat(filepath.Join(root, "owners", "w2.json")); err == nil {
		t.Error("the refused record is there")
	}
	// A restore has no recipients: ownership does not need them.
	signOnly := mustOpen(t, Options{Bucket: directory.New(root),
		Keys: mustLoad(t, KeyOptions{SigningKeyFile: mine.SigningKeyFile})})
	if _, err := signOnly.PutOwner(t.Context(), testOwner("w3", 1), nil); err != nil {
		t.Errorf("put with a signing key only: %v", err)
	}
}

func TestDamagedOwnerIsCorrupt(t *testing.T) {
	for name, damage := range damages {
		if name == "truncated" {
			// the last byte is a newline that nobody misses
			damage = func(b []byte) []byte { return b[:len(b)-2] }
		}
		t.Run(name, func(t *testing.T) {
			s, root := newTestStore(t, false)
			if _, err := s.PutOwner(t.Context(), testOwner("w1", 1), nil); err != nil {
				t.Fatal(err)
			}
			rewrite(t, root, "owners/w1.json", damage)
			_, err := s.GetOwner(t.Context(), "w1")
			wantCorrupt(t, err)
		})
	}
	s, root := newTestStore(t, false)
	if _, err := s.PutOwner(t.Context(), testOwner("w1", 1), nil); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "owners/w1.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "owners/w2.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.GetOwner(t.Context(), "w2")
	wantCorrupt(t, err)
	foreign, foreignRoot := newTestStore(t, true)
	if err := os.MkdirAll(filepath.Join(foreignRoot, "owners"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(foreignRoot, "owners/w1.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.GetOwner(t.Context(), "w1"); !errors.Is(err, ErrForeign) {
		t.Errorf("record of another store: %v, want ErrForeign", err)
	}
}

func TestOwnersListsDamagedRecordsToo(t *testing.T) {
	s, root := newTestStore(t, true)
	for _, id := range []string{"w2", "w1", "w3"} {
		if _, err := s.PutOwner(t.Context(), testOwner(id, 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(t, root, "owners/w2.json", func([]byte) []byte { return []byte("{}") })
	if err := os.WriteFile(filepath.Join(root, "owners", "note.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var good, bad []string
	err := s.Owners(t.Context(), func(id string, o SignedOwner, err error) error {
		if err != nil {
			wantCorrupt(t, err)
			bad = append(bad, id)
			return nil
		}
		good = append(good, o.WorkloadID)
		return nil
	})
	if err != nil || !slices.Equal(good, []string{"w1", "w3"}) || !slices.Equal(bad, []string{"w2"}) {
		t.Errorf("owners %v, damaged %v, %v", good, bad, err)
	}
	if err := s.Owners(t.Context(), func(string, SignedOwner, error) error {
		return errStop
	}); err != errStop {
		t.Errorf("error of fn: %v", err)
	}
}

// plainBucket hides what Dir can do besides.
type plainBucket struct{ bucket.Bucket }

// probed is a Dir on a server that has been tried out.
type probed struct {
	*directory.Bucket
	honoured bool
	err      error
}

func (p probed) SupportsConditionalWrites(context.Context) (bool, error) {
	return p.honoured,
		p.err
}

func TestOnlyConditionalBucketsCanFence(t *testing.T) {
	_, root := newTestStore(t, true)
	dir := directory.New(root)
	for name, c := range map[string]struct {
		bucket bucket.Bucket
		fence  bool
		err    error
	}{
		"directory":                      {dir, true, nil},
		"no conditions":                  {plainBucket{dir}, false, nil},
		"server that ignores conditions": {probed{dir, false, nil}, false, nil},
		"server that honours them":       {probed{dir, true, nil}, true, nil},
		"server that does not answer":    {probed{dir, false, ErrUnreachable}, false, ErrUnreachable},
	} {
		s := mustOpen(t, Options{Bucket: c.bucket, Plain: true})
		_, putErr := s.PutOwner(t.Context(), testOwner(string(NewSnapshotID()), 1), nil)
		for _, err := range []error{s.CanFence(t.Context()), putErr} {
			if c.fence {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			fence, ok := errors.AsType[*FenceError](err)
			if c.err == nil && (!ok || fence.Hint() == "") || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// buggy panics when it reads a key, as the code that reads its bytes may.
type buggy struct {
	*directory.Bucket
	key string
}

func (b buggy) GetTagged(ctx context.Context, key string) ([]byte, string, error) {
	if key == b.key {
		panic("a bug")
	}
	return b.Bucket.GetTagged(ctx, key)
}

// TestAnOwnerWhoseReadPanicsIsNoOwner: it has an error, and is not a record that says nothing.
func TestAnOwnerWhoseReadPanicsIsNoOwner(t *testing.T) {
	s, root := newTestStore(t, true)
	for _, id := range []string{"w1", "w2"} {
		if _, err := s.PutOwner(t.Context(), testOwner(id, 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	s.bucket = buggy{directory.New(root), "owners/w2.json"}
	var said []string
	err := s.Owners(t.Context(), func(id string, o SignedOwner, err error) error {
		said = append(said, fmt.Sprint(id, " ", o.WorkloadID, " ", err != nil))
		return nil
	})
	if err != nil || !slices.Equal(said, []string{"w1 w1 false", "w2  true"}) {
		t.Errorf("%q, %v", said, err)
	}
}
