package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// epochStore is an encrypted store whose epochs are remembered in a catalog.
type epochStore struct {
	*store.Store
	dir     string
	catalog *catalog.Catalog
}

func newEpochStore(t *testing.T) *epochStore {
	t.Helper()
	s := &epochStore{dir: t.TempDir()}
	if _, err := store.Keygen(s.path("keys"), time.Now()); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.catalog, err = catalog.Open(t.Context(), s.path("catalog.db"),
		catalog.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.catalog.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Store = s.open(t, "keys")
	return s
}

func (s *epochStore) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func (s *epochStore) record() string { return s.path("store", "owners", "w-1.json") }

// open opens the store with the keys of a folder.
func (s *epochStore) open(t *testing.T, keys string) *store.Store {
	t.Helper()
	recipient, err := os.ReadFile(s.path(keys, store.RecipientFile))
	if err != nil {
		t.Fatal(err)
	}
	k, err := store.LoadKeys(store.KeyOptions{SigningKeyFile: s.path(keys, store.SigningFile),
		Recipients: []string{string(recipient[:len(recipient)-1])}})
	if err != nil {
		t.Fatal(err)
	}
	o := store.Options{Bucket: directory.New(s.path("store")), Keys: k, Create: true}
	if keys == "keys" {
		o.Epochs = s.catalog
	}
	st, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func (s *epochStore) claim(t *testing.T, q Request) error {
	t.Helper()
	q.WorkloadID, q.Workload = "w-1", "ns/w"
	return Claim(t.Context(), s, q)
}

// replay writes bytes of an ownership record, as anybody can who may write to the bucket.
func (s *epochStore) replay(t *testing.T, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.record()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.record(), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *epochStore) read(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(s.record())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestEpochOfAnUntrustedRecordDoesNotCount: write access to the bucket is enough for any number. A
// claim that is given back may have failed on its way.
func TestEpochOfAnUntrustedRecordDoesNotCount(t *testing.T) {
	for name, epoch := range map[string]int64{"small": 7, "the highest": store.MaxEpoch,
		"without room for another": math.MaxInt64} {
		for way, write := range map[string]func(context.Context, Store, Request) error{
			"claimed": Claim, "given back": GiveBack} {
			t.Run(name+", "+way, func(t *testing.T) {
				s := newEpochStore(t)
				s.replay(t, s.unsigned(t, epoch))
				owners, err := Owners(t.Context(), s)
				if r := owners["w-1"]; err != nil || r.Trusted || r.Highest() != 0 || r.WentBack() {
					t.Errorf("record %+v, %v", r, err)
				}
				if err := write(t.Context(), s, Request{WorkloadID: "w-1", Workload: "ns/w", From: sideA,
					To: sideB, Operation: "000000000001"}); err != nil {
					t.Fatal(err)
				}
				o, err := s.GetOwner(t.Context(), "w-1")
				if err != nil || o.Epoch != 1 || !s.Vouches(o) {
					t.Errorf("after that: %+v, %v", o, err)
				}
			})
		}
	}
}

// unsigned is an ownership record that anybody can write.
func (s *epochStore) unsigned(t *testing.T, epoch int64) []byte {
	t.Helper()
	payload, err := json.Marshal(store.Owner{Format: store.Format, StoreID: s.ID(),
		WorkloadID: "w-1", Workload: "ns/w", Owner: store.Source{UID: "uid-c", Name: "c"},
		Epoch: epoch, Operation: "000000000009", Time: time.Unix(1, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]string{"payload": string(payload), "signature": ""})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestI1RecordThatWentBackBlocksTheClaim: somebody puts the signed record of an earlier owner back,
// or removes the newest one. The next process has the catalog of the one that saw it.
func TestI1RecordThatWentBackBlocksTheClaim(t *testing.T) {
	const one, two, three = "000000000001", "000000000002", "000000000003"
	for name, hide := range map[string]func(t *testing.T, s *epochStore, first []byte){
		"an old record": func(t *testing.T, s *epochStore, first []byte) { s.replay(t, first) },
		"no record": func(t *testing.T, s *epochStore, _ []byte) {
			if err := os.Remove(s.record()); err != nil {
				t.Fatal(err)
			}
		},
		"one of an unknown signer": func(t *testing.T, s *epochStore, _ []byte) {
			if err := os.Remove(s.record()); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Keygen(s.path("theirs"), time.Now()); err != nil {
				t.Fatal(err)
			}
			if err := Claim(t.Context(), s.open(t, "theirs"), Request{WorkloadID: "w-1",
				Workload: "ns/w", To: sideB, Operation: one, Epoch: 41}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEpochStore(t)
			if err := s.claim(t, Request{From: sideA, To: sideB, Operation: one}); err != nil {
				t.Fatal(err)
			}
			first := s.read(t)
			if err := s.claim(t, Request{From: sideB, To: sideC, Operation: two, Epoch: 1}); err != nil {
				t.Fatal(err)
			}
			hide(t, s, first)
			owners, err := Owners(t.Context(), s)
			if r := owners["w-1"]; err != nil || !r.WentBack() || r.Highest() != 2 {
				t.Errorf("record %+v, %v", r, err)
			}
			q := Request{From: sideB, To: sideA, Operation: three, Epoch: owners["w-1"].Highest()}
			if _, ok := errors.AsType[*WentBackError](s.claim(t, q)); !ok {
				t.Error("the claim follows a record that went back")
			}
			late := q
			late.Epoch, late.ForceWentBack = 1, true
			if _, ok := errors.AsType[*WentBackError](s.claim(t, late)); !ok {
				t.Error("forced by a plan that did not know of epoch 2")
			}
			// the operation of epoch 1 is resumed: the record is its own
			mine := Request{WorkloadID: "w-1", Workload: "ns/w", From: sideA, To: sideB, Operation: one}
			if _, ok := errors.AsType[*WentBackError](Check(t.Context(), s, mine)); !ok {
				t.Error("the operation that lost the workload cluster releases it again")
			}
			q.ForceWentBack = true
			if err := s.claim(t, q); err != nil {
				t.Fatal(err)
			}
			if o, err := s.GetOwner(t.Context(), "w-1"); err != nil || o.Epoch != 3 ||
				o.Owner.Owner.UID != sideA.UID {
				t.Errorf("after the forced claim: %+v, %v", o, err)
			}
		})
	}
}

// TestDamagedRecordIsReplacedByForce: without force a damaged record stops a claim, since any
// management cluster may be its owner.
func TestDamagedRecordIsReplacedByForce(t *testing.T) {
	s := newEpochStore(t)
	if err := s.claim(t, Request{From: sideA, To: sideB, Operation: "000000000001"}); err != nil {
		t.Fatal(err)
	}
	s.replay(t, []byte("{}"))
	q := Request{From: sideB, To: sideC, Operation: "000000000002", Epoch: 1}
	if err := s.claim(t, q); !store.IsUnusable(err) {
		t.Errorf("without force: %v", err)
	}
	q.ForceDamaged = true
	if err := s.claim(t, q); err != nil {
		t.Fatal(err)
	}
	if o, err := s.GetOwner(t.Context(), "w-1"); err != nil || o.Epoch != 2 || !s.Vouches(o) {
		t.Errorf("after the forced claim: %+v, %v", o, err)
	}
}

// TestMarkedEpochIsOfOneStore: epochs of two stores cannot be compared.
func TestMarkedEpochIsOfOneStore(t *testing.T) {
	for mark, want := range map[string]int64{EpochMark("s1", 7): 7, EpochMark("s2", 7): 0, "": 0,
		"7": 0, "s1/": 0, "s1/0": 0, "s1/9007199254740992": 0, "s1/9007199254740991": store.MaxEpoch} {
		if got := MarkedEpoch("s1", mark); got != want {
			t.Errorf("%q has epoch %d, want %d", mark, got, want)
		}
	}
}

// TestI1SourceIsGivenBackOnlyWhatNobodyClaimed: a move died before its hand-over, and a restore of
// its snapshot claimed the workload cluster before the move is rolled back.
func TestI1SourceIsGivenBackOnlyWhatNobodyClaimed(t *testing.T) {
	s := newEpochStore(t)
	q := Request{WorkloadID: "w-1", Workload: "ns/w", From: sideA, To: sideB,
		Operation: "000000000001", Epoch: 1}
	back := func() error { return CheckReturn(t.Context(), s, q) }
	claim := func(to object.Side, operation string, planned int64) []byte {
		t.Helper()
		if err := s.claim(t, Request{From: sideA, To: to, Operation: operation, Epoch: planned,
			Force: true}); err != nil {
			t.Fatal(err)
		}
		return s.read(t)
	}
	if err := back(); err != nil {
		t.Errorf("without a record: %v", err)
	}
	planned := claim(sideC, "000000000002", 0)
	if err := back(); err != nil {
		t.Errorf("with the record of planning: %v", err)
	}
	claim(sideA, "000000000003", 1)
	if err := back(); err != nil {
		t.Errorf("claimed by the source since: %v", err)
	}
	claim(sideC, "000000000004", 2)
	if owned := (*OwnedError)(nil); !errors.As(back(), &owned) || owned.By != sideC {
		t.Errorf("claimed by another since: %v", back())
	}
	s.replay(t, planned)
	if went := (*WentBackError)(nil); !errors.As(back(), &went) {
		t.Errorf("with the record of planning put back: %v", back())
	}
	s.replay(t, []byte("no record"))
	if went := (*WentBackError)(nil); !errors.As(back(), &went) {
		t.Errorf("with a damaged record: %v", back())
	}
}

// TestI1AClaimInACopyIsAboveTheEpochsOfItsOrigin: when the origin comes back, its old record does
// not fence what was restored from the copy.
func TestI1AClaimInACopyIsAboveTheEpochsOfItsOrigin(t *testing.T) {
	s := newEpochStore(t)
	q := Request{From: sideA, To: sideB, Operation: "000000000001", OriginEpoch: 5}
	if err := s.claim(t, q); err != nil {
		t.Fatal(err)
	}
	o, err := s.GetOwner(t.Context(), "w-1")
	if err != nil || o.Epoch != 6 || q.Next() != 6 || q.Known() != 5 {
		t.Errorf("%+v, %v", o, err)
	}
	// A claim of another restore into the same target, planned at the same time, comes too late.
	q.WorkloadID, q.Workload, q.Operation = "w-1", "ns/w", "000000000002"
	q.OriginEpoch = 9
	if err := Claim(t.Context(), s, q); !isOwned(err) {
		t.Errorf("a second claim: %v", err)
	}
}

func isOwned(err error) bool {
	_, ok := errors.AsType[*OwnedError](err)
	return ok
}
