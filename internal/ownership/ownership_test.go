package ownership

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

func newStore(t *testing.T) *store.Store {
	t.Helper()
	dir := t.TempDir()
	if _, err := store.Keygen(dir+"/keys", time.Now()); err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{IdentityFiles: []string{dir + "/keys/identity.txt"},
		SigningKeyFile: dir + "/keys/signing.key"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Options{Bucket: directory.New(dir + "/store"), Keys: keys,
		Create: true, Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	sideA = object.Side{Name: "a", UID: "uid-a"}
	sideB = object.Side{Name: "b", UID: "uid-b"}
	sideC = object.Side{Name: "c", UID: "uid-c"}
)

// TestI1ClaimHandsOverOnce: a claim follows the owner that the record names, may be repeated, and
// never takes from somebody else unless it is forced to.
func TestI1ClaimHandsOverOnce(t *testing.T) {
	s := newStore(t)
	claim := func(from, to object.Side, operation string, planned int64, force bool) error {
		return Claim(t.Context(), s, Request{WorkloadID: "w-1", Workload: "ns/w", From: from, To: to,
			Operation: operation, Epoch: planned, Force: force})
	}
	owner := func() (string, int64) {
		o, err := s.GetOwner(t.Context(), "w-1")
		if err != nil {
			t.Fatal(err)
		}
		return o.Owner.Owner.UID, o.Epoch
	}
	const one, two, three = "000000000001", "000000000002", "000000000003"
	for _, step := range []struct {
		name     string
		from, to object.Side
		by       string
		planned  int64 // epoch at planning
		force    bool
		refused  bool
		owner    string
		epoch    int64
	}{
		{"the first has no record before it", sideA, sideB, one, 0, false, false, "uid-b", 1},
		{"again changes nothing", sideA, sideB, one, 0, false, false, "uid-b", 1},
		{"another one from the same source is too late", sideA, sideB, two, 0, false, true, "uid-b", 1},
		{"from somebody who does not own it", sideA, sideC, two, 1, false, true, "uid-b", 1},
		{"by force, but it was not so at planning", sideA, sideC, two, 0, true, true, "uid-b", 1},
		{"by force", sideA, sideC, two, 1, true, false, "uid-c", 2},
		{"again into its owner, as another operation", sideA, sideC, three, 2, false, false, "uid-c", 3},
		{"into its owner, but another wrote since planning", sideA, sideC, one, 2, false, true, "uid-c",
			3},
		{"and back", sideC, sideA, one, 3, false, false, "uid-a", 4},
		{"from its owner, but another wrote since planning", sideA, sideB, two, 2, false, true, "uid-a",
			4},
	} {
		err := claim(step.from, step.to, step.by, step.planned, step.force)
		var owned *OwnedError
		if refused := errors.As(err, &owned); refused != step.refused || err != nil && !refused {
			t.Errorf("%s: %v", step.name, err)
		}
		if uid, epoch := owner(); uid != step.owner || epoch != step.epoch {
			t.Errorf("%s: owned by %s at epoch %d, want %s at %d", step.name, uid, epoch, step.owner,
				step.epoch)
		}
	}
	owners, err := Owners(t.Context(), s)
	if err != nil || owners["w-1"].By.UID != "uid-a" || !owners["w-1"].Trusted {
		t.Errorf("owners %v, %v", owners, err)
	}
	some, err := Of(t.Context(), s, []string{"w-2", "w-1"})
	if err != nil || !reflect.DeepEqual(some, owners) {
		t.Errorf("of some %v, %v, want %v", some, err, owners)
	}
	for _, tt := range []struct {
		by      string
		to      object.Side
		planned int64
		claimed string // operation
		owns    bool
	}{
		{one, sideA, 3, one, true},
		{two, sideA, 3, one, false},
		{one, sideA, 4, "", false}, // the record is that of planning
		{one, sideB, 3, "", false},
	} {
		q := Request{WorkloadID: "w-1", Workload: "ns/w", To: tt.to, Operation: tt.by, Epoch: tt.planned}
		if by, err := Claimed(t.Context(), s, q); err != nil || by != tt.claimed {
			t.Errorf("%v: claimed by %q, %v", q, by, err)
		}
		var owned *OwnedError
		if err := Check(t.Context(), s, q); (err == nil) != tt.owns || err != nil &&
			!errors.As(err, &owned) {
			t.Errorf("%v: check: %v", q, err)
		}
	}
}

// TestClaimBackAcceptsAnyRecordOfTheSource: a rollback needs a record after the one of planning
// that names the source, and does not get stuck on one that another operation wrote.
func TestClaimBackAcceptsAnyRecordOfTheSource(t *testing.T) {
	for _, tt := range []struct {
		name    string
		written []object.Side // one after the other, from epoch 1
		planned int64
		epoch   int64 // after it
		refused bool
	}{
		{"none", nil, 0, 1, false},
		{"that of planning", []object.Side{sideA}, 1, 2, false},
		{"a later one of the source", []object.Side{sideA, sideC, sideA}, 1, 3, false},
		{"that of planning names the target", []object.Side{sideA, sideB}, 2, 3, false},
		{"a later one of another", []object.Side{sideA, sideC}, 1, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			for i, by := range tt.written {
				if err := Claim(t.Context(), s, Request{WorkloadID: "w-1", Workload: "ns/w", To: by,
					Operation: "00000000000" + strconv.Itoa(i), Epoch: int64(i), Force: true}); err != nil {
					t.Fatal(err)
				}
			}
			epoch, err := ClaimBack(t.Context(), s, Request{WorkloadID: "w-1", Workload: "ns/w", From: sideA,
				To:        sideB,
				Operation: "0123456789ab", Epoch: tt.planned})
			o, getErr := s.GetOwner(t.Context(), "w-1")
			if err == nil && epoch != o.Epoch {
				t.Errorf("it says epoch %d", epoch)
			}
			if (err != nil) != tt.refused || getErr != nil || o.Epoch != tt.epoch ||
				o.Owner.Owner.UID != "uid-a" && !tt.refused {
				t.Errorf("%v, the record names %s at epoch %d, want epoch %d", err, o.Owner.Owner.UID, o.Epoch,
					tt.epoch)
			}
		})
	}
}

// TestCheckBeforeARelease: an operation that claims releases only what its own record says, and one
// that cannot claim only what nobody else has claimed since planning.
func TestCheckBeforeARelease(t *testing.T) {
	const ours, theirs = "000000000001", "000000000002"
	for _, tt := range []struct {
		name           string
		to             object.Side // of the record of planning, at epoch 1; zero for none
		by             string      // the operation that claims then, "" for none
		next           object.Side // its target
		force          bool
		owns, mayClaim bool
	}{
		{"no record", object.Side{}, "", sideA, false, false, true},
		{"that of planning names the source", sideA, "", sideA, false, false, true},
		{"that of planning names another", sideC, "", sideA, false, false, false},
		{"that of planning names another, forced", sideC, "", sideA, true, false, true},
		{"ours", sideA, ours, sideB, false, true, true},
		{"ours into another", sideA, ours, sideC, false, false, false},
		{"another operation into our target", sideA, theirs, sideB, false, false, false},
		{"another operation into another", sideA, theirs, sideC, false, false, false},
		{"another operation into another, forced", sideA, theirs, sideC, true, false, false},
	} {
		s := newStore(t)
		q := Request{WorkloadID: "w-1", Workload: "ns/w", From: sideA, To: sideB, Operation: ours,
			Force: tt.force}
		write := func(to object.Side, by string, epoch int64) {
			if err := Claim(t.Context(), s, Request{WorkloadID: "w-1", Workload: "ns/w", To: to,
				Operation: by, Epoch: epoch, Force: true}); err != nil {
				t.Fatal(err)
			}
		}
		if tt.to != (object.Side{}) {
			write(tt.to, "000000000000", 0)
			q.Epoch = 1
		}
		if tt.by != "" {
			write(tt.next, tt.by, q.Epoch)
		}
		var owned *OwnedError
		if err := Check(t.Context(), s, q); (err == nil) != tt.owns || err != nil &&
			!errors.As(err, &owned) {
			t.Errorf("%s: check: %v", tt.name, err)
		}
		if err := CheckUnclaimed(t.Context(), s, q); (err == nil) != tt.mayClaim || err != nil &&
			!errors.As(err, &owned) {
			t.Errorf("%s: check unclaimed: %v", tt.name, err)
		}
	}
}

// TestMissingRecordIsNamed: without a record there is no owner to name.
func TestMissingRecordIsNamed(t *testing.T) {
	err := Check(t.Context(), newStore(t), Request{WorkloadID: "w-1", Workload: "ns/w", To: sideB,
		Operation: "000000000001"})
	if owned, ok := errors.AsType[*OwnedError](err); !ok ||
		!strings.HasSuffix(owned.Error(), "workload cluster ns/w is gone, or replaced by one that no "+
			"trusted key signed") || !strings.HasPrefix(owned.Hint(), "find out who removed it") {
		t.Errorf("%v", err)
	}
}
