package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	soakWorkers = 4
	soakRound   = 52 // operations at one fault level
	soakChecks  = 10 // rounds between two checks of everything that is new
)

// soak is one store with several concurrent users, and what the test knows to be in it.
type soak struct {
	t        *testing.T
	s        *Server
	c        *catalog.Catalog
	at       *Location
	clock    *faultbucket.Clocked // of the storage, and of all who use it
	bucket   *faultbucket.Bucket
	noFaults bool // of this round
	direct   *store.Store
	id       []byte // identity
	dir      string

	sources []*snapshottest.Source

	pruning sync.RWMutex // read-locked by each prune; locked to let hours pass
	alone   sync.RWMutex // read-locked by each operation; locked to check the store
	last    storeState   // guarded by alone

	mu      sync.Mutex
	taken   []taken
	epochs  map[string]int64 // that were written, by workload id
	records int64
	errs    map[Reason]int
	ran     map[string]int
	pruned  pruned
}

// taken is a snapshot of which it was reported that it is good.
type taken struct {
	store.Signed
	source   *snapshottest.Source
	objects  map[object.Ref][]byte // of the source at its resourceVersion
	compared bool                  // with these, by check
}

// soakOperations is what the workers do, and how often.
var soakOperations = []struct {
	name   string
	weight int
	run    func(k *soak, r *rand.Rand) error
}{
	{"snapshot", 30, func(k *soak, r *rand.Rand) error { return k.take(r, false, nil) }},
	{"full snapshot", 2, func(k *soak, r *rand.Rand) error { return k.take(r, true, nil) }},
	{"partial snapshot", 3, func(k *soak, r *rand.Rand) error {
		return k.take(r, false,
			[]string{"team-0"})
	}},
	{"verify structure", 6, func(k *soak, r *rand.Rand) error {
		return k.verify(r,
			store.LevelStructure)
	}},
	{"verify sample", 6, func(k *soak, r *rand.Rand) error { return k.verify(r, store.LevelSample) }},
	{"verify full", 6, func(k *soak, r *rand.Rand) error { return k.verify(r, store.LevelFull) }},
	{"list", 10, (*soak).list},
	{"diff", 6, (*soak).diff},
	{"read", 12, (*soak).read},
	{"own", 10, (*soak).own},
	{"record", 6, (*soak).record},
	{"rebuild", 3, (*soak).rebuild},
	{"prune", 5, (*soak).prune},
	{"delete", 3, (*soak).remove},
	{"pin", 3, (*soak).pin},
	{"unpin", 3, (*soak).unpin},
	{"pass", 2, (*soak).pass},
}

// TestSoakStore runs random operations on one store from several goroutines, at several fault
// levels, and checks the store against the reported results. MGMTD_TEST_OPERATIONS is the number
// of operations. MGMTD_TEST_SEED determines what each worker does, but not how they interleave.
func TestSoakStore(t *testing.T) {
	seed, operations := uint64(time.Now().UnixNano()), 150
	for name, set := range map[string]func(n uint64){"MGMTD_TEST_SEED": func(n uint64) { seed = n },
		"MGMTD_TEST_OPERATIONS": func(n uint64) { operations = int(n) }} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 63)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			set(n)
		}
	}
	t.Logf("seed %d", seed)
	k := newSoak(t, seed)
	rounds := rand.New(rand.NewPCG(seed, 5))
	workers := make([]*rand.Rand, soakWorkers)
	for i := range workers {
		workers[i] = rand.New(rand.NewPCG(seed, uint64(10+i)))
	}
	for round := 0; round*soakRound < operations; round++ {
		k.bucket.Heal()
		k.passHours(rounds)
		share := []float64{0, 0.01, 0.05}[(round+rounds.IntN(2))%3]
		k.noFaults = share == 0
		k.bucket.Set(share, faultbucket.All...)
		var g task.Group
		for _, r := range workers {
			g.Go(func() error { return k.work(r, soakRound/soakWorkers) })
		}
		if err := g.Wait(); err != nil {
			t.Fatalf("seed %d: round %d: %v", seed, round, err)
		}
		if (round+1)%soakChecks == 0 || (round+1)*soakRound >= operations {
			k.check(rounds)
		}
		if t.Failed() {
			t.Fatalf("seed %d failed in round %d", seed, round)
		}
	}
	t.Logf("%d snapshots; did %v; errors %v; faults %v; removed %d snapshots "+
		"and %d keys with %d bytes", len(k.taken), k.ran, k.errs, k.bucket.Hits(), k.pruned.snapshots,
		k.pruned.freed.Keys, k.pruned.freed.Bytes)
	if operations >= 1000 && (k.pruned.snapshots < operations/20 || k.pruned.freed.Keys == 0) {
		t.Errorf("only %d snapshots and %d keys were removed", k.pruned.snapshots, k.pruned.freed.Keys)
	}
	for _, f := range faultbucket.All {
		if operations >= 1000 && k.bucket.Hits()[f] == 0 {
			t.Errorf("%s was never met", f)
		}
	}
}

func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	dir := t.TempDir()
	k := &soak{t: t, dir: dir, epochs: map[string]int64{}, errs: map[Reason]int{},
		ran: map[string]int{}, last: newStoreState(), pruned: newPruned()}
	made, err := store.Keygen(dir+"/keys", time.Now())
	if err == nil {
		k.id, err = os.ReadFile(filepath.Join(dir, "keys", store.IdentityFile))
	}
	if err != nil {
		t.Fatal(err)
	}
	k.s = New(Config{Locations: []Location{{Store: StoreOptions{
		URL: dir + "/store", Recipients: []string{made.Recipient}, SigningKeyFile: filepath.Join(dir,
			"keys", store.SigningFile), TrustedKeyFiles: []string{filepath.Join(dir, "keys",
			store.SigningPubFile)},
	}}}})
	k.at = &k.s.cfg.Locations[0]
	k.clock = faultbucket.NewClocked(directory.New(dir + "/store"))
	k.s.buckets[k.at.Name] = k.clock
	if k.direct, err = k.s.openLocation(t.Context(), k.at, k.id, true); err != nil {
		t.Fatal(err)
	}
	k.bucket = faultbucket.New(k.clock, seed)
	k.s.buckets[k.at.Name] = k.bucket
	if k.c, err = catalog.Open(t.Context(), dir+"/catalog.db", catalog.Options{}); err != nil {
		t.Fatal(err)
	}
	k.s.catalog = k.c
	t.Cleanup(func() {
		catalog.PostTestCheck(t, k.c)
		if err := k.s.Close(); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(dir + "/catalog.db")
		if err != nil || bytes.Contains(text, []byte(snapshottest.SecretText)) {
			t.Errorf("the catalog holds a Secret (I6), or %v", err)
		}
	})
	for i := range uint64(2) {
		k.sources = append(k.sources, snapshottest.New(fmt.Sprint("source-", i), seed*2+i, 6))
	}
	return k
}

// work runs n operations. It ends with the first error that the injected faults do not explain.
func (k *soak) work(r *rand.Rand, n int) error {
	total := 0
	for _, o := range soakOperations {
		total += o.weight
	}
	for i := range n {
		if i%5 == 0 {
			k.bucket.Find()
		}
		at, first := r.IntN(total), ""
		if i == 0 {
			first = []string{"prune", "delete"}[r.IntN(2)]
		}
		for _, o := range soakOperations {
			if at -= o.weight; at >= 0 && first == "" || first != "" && o.name != first {
				continue
			}
			k.clock.Pass(time.Duration(r.IntN(120)) * time.Second)
			k.alone.RLock()
			err := k.assertExpected(o.run(k, r))
			k.alone.RUnlock()
			k.mu.Lock()
			k.ran[o.name]++
			k.mu.Unlock()
			if err != nil {
				return fmt.Errorf("%s: %w", o.name, err)
			}
			if o.name == "prune" || o.name == "delete" {
				k.assertStore()
			}
			break
		}
	}
	return nil
}

// faultReasons are the reasons of errors that injected faults explain. A flipped bit explains
// many: it can be in a format, a signature or an id.
var faultReasons = []Reason{
	ReasonStoreUnreachable, ReasonStoreMissing, ReasonNoSpace, ReasonDamaged, ReasonFindings,
	ReasonSignature, ReasonUnsupported, ReasonIdentity, ReasonNotFound,
	ReasonIncomplete, // a prune that cannot read what a snapshot needs leaves all content
}

// assertExpected returns nil for an error that a fault or another worker explains, else the error.
func (k *soak) assertExpected(err error) error {
	if err == nil || errors.Is(err, kube.ErrExpired) || errors.Is(err, store.ErrConflict) ||
		errors.Is(err, snapshot.ErrTooLong) {
		return nil
	}
	e := classify(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs[e.Reason]++
	if k.noFaults || !slices.Contains(faultReasons, e.Reason) || e.Hint == "" {
		return fmt.Errorf("%s (%s): %w", e.Reason, e.Hint, err)
	}
	return nil
}

func (k *soak) open() (*store.Store, error) {
	return k.s.openLocation(k.t.Context(), k.at, k.id, false)
}

// operation runs an operation as the service does, to its end.
func (k *soak) operation(op catalog.Operation, run func(ctx context.Context,
	j *catalog.Journal) error) error {
	op, err := k.c.CreateOperation(k.t.Context(), op)
	if err != nil {
		return err
	}
	r, err := k.s.start(k.t.Context(), k.c, op.ID, run)
	if err != nil {
		return err
	}
	return r.Wait()
}
