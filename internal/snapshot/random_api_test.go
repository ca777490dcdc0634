//go:build api

package snapshot_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
)

// seedAndRounds returns the seed and how many rounds there are: one of each condition, unless it is
// said. MGMTD_TEST_ROUNDS says how many, MGMTD_TEST_SEED does those of one seed again.
func seedAndRounds(t *testing.T) (seed uint64, rounds int) {
	t.Helper()
	seed, rounds = 1, len(conditions)
	number := func(name string) (n uint64, is bool) {
		text := os.Getenv(name)
		if text == "" {
			return 0, false
		}
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n, true
	}
	if n, is := number("MGMTD_TEST_ROUNDS"); is {
		seed, rounds = uint64(time.Now().UnixNano()), int(n)
	}
	if n, is := number("MGMTD_TEST_SEED"); is {
		seed = n
	}
	return seed, rounds
}

// TestAPIRandomIncrementalIsFull: after the first snapshot the fleet's full objects are not read
// again, and the result is what a full capture at the same resourceVersion gives, whatever happened
// to objects and kinds, to watches and versions, and to what is remembered.
func TestAPIRandomIncrementalIsFull(t *testing.T) {
	seed, rounds := seedAndRounds(t)
	t.Logf("seed %d, %d rounds", seed, rounds)
	servers.Fleet(t, 0, "--namespace-prefix", randomPrefix, "--workloads", "3", "--machines", "3",
		"--fast")
	k := newRandomRun(t, seed)
	var deck []int
	for round := range rounds {
		if len(deck) == 0 {
			deck = k.rand.Perm(len(conditions))
		}
		c := conditions[deck[0]]
		deck = deck[1:]
		began := time.Now()
		k.round(c)
		if testing.Verbose() {
			t.Logf("round %d, %s: %v", round, c.name, time.Since(began).Round(time.Millisecond))
		}
		if t.Failed() {
			t.Fatalf("MGMTD_TEST_SEED=%d MGMTD_TEST_ROUNDS=%d failed in round %d: %s", seed, rounds, round,
				c.name)
		}
	}
	if rounds < len(conditions) {
		return
	}
	for _, c := range conditions {
		// an event that was to break a watch may not have come
		for tries := 0; k.met[c.name] == 0 && tries < 3 && !t.Failed(); tries++ {
			k.round(c)
		}
		if k.met[c.name] == 0 {
			t.Errorf("seed %d: %s: it never came to that", seed, c.name)
		}
	}
	for _, o := range operations {
		if k.w.did[o.name] == 0 {
			t.Errorf("seed %d: %s: never done", seed, o.name)
		}
	}
	for _, what := range []string{listedLittle, followedLittle, fromMemory, fromCatalog} {
		// of the two ways; whether the cache is used is a matter of chance
		for tries := 0; k.met[what] == 0 && tries < 20 && !t.Failed(); tries++ {
			k.round(conditions[tries%2])
		}
		if k.met[what] == 0 {
			t.Errorf("seed %d: %s: never", seed, what)
		}
	}
	t.Logf("did %v; met %v", k.w.did, k.met)
}

// What rounds are counted by, besides their conditions.
const (
	listedLittle   = "compared by metadata, no object read again"
	followedLittle = "watched, no object read again"
	fromMemory     = "the cache of the process was used"
	fromCatalog    = "what the catalog has was used"
)

// randomRun is one run of the test.
type randomRun struct {
	t       *testing.T
	r       *chainFixture
	w       *workload
	rand    *rand.Rand
	through *interrupter

	last     opened
	kinds    []kube.Kind // of last
	notInCut []string    // of last
	cached   bool        // the cache holds the result of last
	met      map[string]int

	// Of one round.
	way    int
	all    bool // everything has to be read
	during int  // how many things happened while the snapshot was taken
	// forgotten is a resourceVersion that nothing can be read at any more. An API server whose etcd
	// is compacted may still have it in its caches for a while.
	forgotten string
	oldest    string // resourceVersion that can be read since etcd was compacted

	mu      sync.Mutex
	calls   int
	at      int // the call of the source before which do is called
	do      func()
	whole   map[object.GroupKind]bool // kinds whose objects were all read
	watched bool
	gone    *expiring
}

func newRandomRun(t *testing.T, seed uint64) *randomRun {
	t.Helper()
	k := &randomRun{t: t, r: newChainFixture(t), rand: rand.New(rand.NewPCG(seed, seed)),
		met: map[string]int{}}
	var m *kube.Mgmt
	k.through, m = newInterrupter(t)
	k.gone = &expiring{Source: m.Reader()}
	k.r.source = &hooked{Source: k.gone, onList: k.onList, onWatch: k.onWatch}
	k.w = newWorkload(t, k.r.m, k.rand)
	k.reset()
	first, err := snapshot.Create(t.Context(), k.options())
	if err != nil || first.NotRemembered != nil {
		t.Fatal(err, first)
	}
	k.remember(first, k.r.same(first, k.options()))
	return k
}

// expiring counts the LISTs of which the source says that their resourceVersion is gone.
type expiring struct {
	capture.Source
	lists atomic.Int32
}

func (e *expiring) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func([]byte) error) (kube.ListResult, error) {
	result, err := e.Source.List(ctx, k, o, fn)
	if errors.Is(err, kube.ErrExpired) {
		e.lists.Add(1)
	}
	return result, err
}

func (k *randomRun) expired() bool { return k.gone.lists.Load() > 0 }

func (k *randomRun) reset() {
	k.through.set()
	k.r.refuses, k.forgotten, k.oldest = nil, "", ""
	k.way, k.all, k.during = eitherWay, false, 0
	k.calls, k.at, k.do, k.whole, k.watched = 0, 0, nil, map[object.GroupKind]bool{}, false
	k.gone.lists.Store(0)
}

func (k *randomRun) remember(taken *snapshot.Result, is opened) {
	k.last, k.kinds, k.notInCut, k.w.remade = is, is.kinds, taken.NotInCut, false
}

// kindsNow are the kinds as a connection sees them that knows none.
func (k *randomRun) kindsNow() []kube.Kind {
	k.t.Helper()
	kinds, err := servers.Connect(k.t, 0).Reader().Kinds(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	return kinds
}

// options are those of the daemon, which has a cache, or of one that was restarted.
func (k *randomRun) options() snapshot.Options {
	o := k.r.options()
	o.Cache = []*incremental.RunCache{&k.r.cache, &k.r.cache, &k.r.cache, &k.r.cache, {},
		nil}[k.rand.IntN(6)]
	return o
}

func (k *randomRun) step() {
	k.mu.Lock()
	k.calls++
	do := k.do
	if k.calls != k.at {
		do = nil
	}
	k.mu.Unlock()
	if do != nil {
		do()
	}
}

func (k *randomRun) onList(kind kube.Kind, o kube.ListOptions) error {
	k.step()
	if kind.GroupKind != kube.LeaseKind.GroupKind && !o.Metadata && o.Limit == 0 && o.Name == "" {
		k.mu.Lock()
		k.whole[kind.GroupKind] = true
		k.mu.Unlock()
	}
	if k.forgotten != "" && o.Exact == k.forgotten {
		k.gone.lists.Add(1)
		return kube.ErrExpired
	}
	if o.Exact != "" && k.r.refuses != nil && k.r.refuses(kind) {
		return kube.ErrExactRefused
	}
	return nil
}

func (k *randomRun) onWatch(kube.Kind) error {
	k.step()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched = true
	return nil
}

// meanwhile makes do happen at a random moment of the next run: before its cut, or while it is
// read.
func (k *randomRun) meanwhile(do func()) {
	k.at, k.do = 1+k.rand.IntN(8), do
	if k.rand.IntN(2) == 0 {
		k.at = 9 + k.rand.IntN(20)
	}
}

// round lets things happen, takes a snapshot under a condition, and compares it with a full one.
func (k *randomRun) round(c condition) {
	k.t.Helper()
	k.reset()
	k.way, k.all = c.way, c.all
	if k.way == eitherWay {
		k.way = []int{exactLists, watches}[k.rand.IntN(2)]
	}
	if !c.quiet {
		k.w.some(5+k.rand.IntN(4), c.objects)
	}
	o := k.options()
	met := func() bool { return true }
	if c.begin != nil {
		met = c.begin(k, &o)
	}
	taken := k.run(o)
	if k.t.Failed() {
		return
	}
	if isBefore(taken.ResourceVersion, k.oldest) {
		// that was compacted when all had been read of it: nobody can say any more what it had
		taken = k.run(o)
	}
	is := k.r.same(taken, o)
	k.readLittle(taken, is, o)
	if met() {
		k.met[c.name]++
	}
	k.remember(taken, is)
	k.cached = o.Cache == &k.r.cache
}

func isBefore(version, than string) bool {
	a, err := kube.ParseVersion(version)
	b, err2 := kube.ParseVersion(than)
	return err == nil && err2 == nil && a < b
}

func (k *randomRun) run(o snapshot.Options) *snapshot.Result {
	k.t.Helper()
	o.ExactLimit = k.way
	taken, err := snapshot.Create(k.t.Context(), o)
	if err != nil || taken.NotRemembered != nil {
		k.t.Fatal(err, taken)
	}
	return taken
}

// readLittle: objects are not read again, but for those of kinds of which that has to be.
func (k *randomRun) readLittle(taken *snapshot.Result, is opened, o snapshot.Options) {
	k.t.Helper()
	now, gone := is.kinds, k.through.gone()
	if !slices.Equal(clusterScoped(k.kinds), clusterScoped(now)) {
		k.all = true // what a name means may be another object
	}
	if k.all {
		if taken.Read < taken.Counts.Objects {
			k.t.Errorf("%d of %d objects read where all have to be", taken.Read, taken.Counts.Objects)
		}
		return
	}
	again := func(gk object.GroupKind) bool {
		was, _ := kube.FindKind(k.kinds, gk)
		kind, _ := kube.FindKind(now, gk)
		return !reflect.DeepEqual(was, kind) || gk == gizmoKind && k.w.remade || gone[kind.Path("")] ||
			slices.Contains(k.notInCut, gk.String()) || k.r.refuses != nil && k.r.refuses(kind)
	}
	for gk := range k.whole {
		if !again(gk) {
			k.t.Errorf("%s was read again", gk)
		}
	}
	most := int64(2 * k.during) // listed, and then changed
	for _, n := range is.Graph.Nodes {
		was := k.last.Graph.Node(n.Ref)
		if was == nil || was.UID != n.UID || was.ResourceVersion != n.ResourceVersion ||
			was.Content != n.Content || again(n.GroupKind()) {
			most++
		}
	}
	if taken.Read > most {
		k.t.Errorf("%d objects read, %d changed", taken.Read, most)
	}
	if len(k.whole) > 0 {
		return
	}
	if k.watched {
		k.met[followedLittle]++
	} else {
		k.met[listedLittle]++
	}
	if k.cached && o.Cache == &k.r.cache {
		k.met[fromMemory]++
	} else {
		k.met[fromCatalog]++
	}
}

func clusterScoped(kinds []kube.Kind) (list []object.GroupKind) {
	for _, k := range kinds {
		if !k.Namespaced {
			list = append(list, k.GroupKind)
		}
	}
	return list
}
