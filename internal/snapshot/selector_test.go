package snapshot_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

func selector(t testing.TB, text string) graph.Selector {
	t.Helper()
	s, err := graph.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asOf is a source as of one resourceVersion, whatever happened since.
type asOf struct {
	capture.Source
	at string
}

func (s asOf) List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func([]byte) error) (
	kube.ListResult, error) {
	o.Exact = s.at
	return s.Source.List(ctx, k, o, fn)
}

// TestASnapshotOfASelectorFollowsTheLabels: each incremental snapshot of a source in which Clusters
// gain and lose the label at random, before and while it is taken, is what a full one is: the units
// of the Clusters that have the label, what these share, and nothing of another workload cluster.
func TestASnapshotOfASelectorFollowsTheLabels(t *testing.T) {
	t.Parallel()
	for name, namespaces := range map[string][]string{"everywhere": nil, "team-0": {"team-0"}} {
		t.Run(name, func(t *testing.T) {
			c := newCrashed(t)
			f := &selectorFixture{t: t, source: &leased{Source: c.source},
				st: c.open(directory.New(c.dir + "/store")), random: rand.New(rand.NewPCG(9, 9)),
				scope: capture.Scope{Namespaces: namespaces, Selector: selector(t, "tier=gold")}}
			var err error
			if f.db, err = catalog.Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"),
				catalog.Options{}); err != nil {
				t.Fatal(err)
			}
			defer f.db.Close()
			f.source.PutShared("team-0", "shared", "w-0", "w-1")
			f.source.PutShared("team-1", "shared", "w-2", "w-3")
			for round := range 40 {
				f.round(round)
				if t.Failed() {
					t.Fatalf("in round %d", round)
				}
			}
			if f.entered == 0 || f.left == 0 || f.incremental < 10 || f.none == 0 {
				t.Errorf("%d entered, %d left, %d incremental, %d empty: the test proves too little",
					f.entered, f.left, f.incremental, f.none)
			}
		})
	}
}

type selectorFixture struct {
	t      *testing.T
	source *leased
	st     *store.Store
	db     *catalog.Catalog
	cache  incremental.RunCache
	random *rand.Rand
	scope  capture.Scope
	units  map[string]bool // of the snapshot before

	entered, left, incremental, none int
}

// relabel gives one Cluster the label, or takes it.
func (f *selectorFixture) relabel() {
	n := f.random.IntN(4)
	labels := map[string]string{"tier": []string{"gold", "bronze"}[f.random.IntN(2)]}
	f.source.Label(fmt.Sprintf("team-%d", n/2), fmt.Sprintf("w-%d", n), labels)
}

func (f *selectorFixture) round(round int) {
	f.t.Helper()
	for range f.random.IntN(3) {
		f.relabel()
		f.source.Change()
	}
	o := f.source.Options(f.st)
	o.Source, o.State, o.Scope = f.source, f.db.SnapshotState(f.st.ID(), f.source.UID), f.scope
	o.ExactLimit = []int{0, -1, -1}[f.random.IntN(3)]
	o.Cache = []*incremental.RunCache{&f.cache, &f.cache, {}, nil}[f.random.IntN(4)]
	o.Full = f.random.IntN(10) == 0
	if f.random.IntN(10) == 0 {
		o.Operation = operationID
	}
	var watches atomic.Int32
	f.source.onWatch = func() {
		if watches.Add(1) == 3 && round%2 == 0 {
			f.relabel()
		}
	}
	taken, err := snapshot.Create(f.t.Context(), o)
	if err != nil || taken.NotRemembered != nil {
		f.t.Fatalf("%v, %v", err, taken)
	}
	if taken.Read < taken.Counts.Objects/2 {
		f.incremental++
	}
	is := f.open(f.st, taken)
	f.sameAsFull(taken, is, o)
	f.holdsTheSelected(taken, is)
}

func (f *selectorFixture) open(st *store.Store, taken *snapshot.Result) *snapshot.Snapshot {
	f.t.Helper()
	s, err := snapshot.Open(f.t.Context(), st, taken.Envelope, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// sameAsFull compares with a full snapshot of the source as of the same resourceVersion.
func (f *selectorFixture) sameAsFull(taken *snapshot.Result, is *snapshot.Snapshot,
	o snapshot.Options) {
	f.t.Helper()
	st, err := store.Open(f.t.Context(), store.Options{Bucket: directory.New(f.t.TempDir()),
		Plain: true, Create: true})
	if err != nil {
		f.t.Fatal(err)
	}
	o.Source, o.Store = asOf{f.source, taken.ResourceVersion}, st
	o.State, o.Cache, o.ExactLimit = nil, nil, math.MaxInt32
	full, err := snapshot.Create(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	want := f.open(st, full)
	for what, pair := range map[string][2]any{
		"nodes": {want.Graph.Nodes, is.Graph.Nodes}, "missing": {full.Missing, taken.Missing},
		"about": {want.About, is.About}, "counts": {full.Counts, taken.Counts},
		"scope": {full.Scope, taken.Scope},
	} {
		if diff := cmp.Diff(pair[0], pair[1], cmpopts.IgnoreFields(graph.Node{}, "Pack"),
			cmpopts.IgnoreUnexported(graph.Node{}), cmpopts.EquateEmpty()); diff != "" {
			f.t.Errorf("%s (-full +taken):\n%.3000s", what, diff)
		}
	}
}

// holdsTheSelected compares with what the source had, by the labels of its objects.
func (f *selectorFixture) holdsTheSelected(taken *snapshot.Result, is *snapshot.Snapshot) {
	f.t.Helper()
	objects, ok := f.source.At(taken.ResourceVersion)
	if !ok {
		f.t.Fatal("the source has forgotten the resourceVersion")
	}
	units := map[string]bool{}
	for ref, raw := range objects {
		if ref.GroupKind() == capi.Cluster && gjson.GetBytes(raw, "metadata.labels.tier").String() == "gold" &&
			(f.scope.Namespaces == nil || slices.Contains(f.scope.Namespaces, ref.Namespace)) {
			units[ref.Namespace+"/"+ref.Name] = true
		}
	}
	want := map[object.Ref]bool{}
	for ref, raw := range objects {
		of := gjson.GetBytes(raw, `metadata.labels.cluster\.x-k8s\.io/cluster-name`).String()
		if units[ref.Namespace+"/"+ref.Name] && ref.GroupKind() == capi.Cluster ||
			units[ref.Namespace+"/"+of] {
			want[ref] = true
			want[object.Ref{Kind: "Namespace", Name: ref.Namespace}] = true
		}
	}
	for ref := range maps.Clone(want) { // what the Machines that name it share
		if ref.Kind == "Machine" && gjson.GetBytes(objects[ref], "spec.infrastructureRef.name").Str == "shared" {
			for _, shared := range []object.Ref{{Kind: "Secret", Namespace: ref.Namespace, Name: "shared"},
				{Group: "infrastructure.cluster.x-k8s.io", Kind: "DevMachine", Namespace: ref.Namespace, Name: "shared"}} {
				if want[shared] = true; objects[shared] != nil && !is.Graph.Node(shared).Shared &&
					len(gjson.GetBytes(objects[shared], "metadata.ownerReferences").Array()) > 1 {
					f.t.Errorf("%s belongs to one unit", shared)
				}
			}
		}
	}
	maps.DeleteFunc(want, func(r object.Ref, _ bool) bool { return objects[r] == nil })
	got := map[object.Ref]bool{}
	for _, n := range is.Graph.Nodes {
		got[n.Ref] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("objects (-want +got):\n%.3000s", diff)
	}
	contents, err := is.Load(f.t.Context(), is.Graph.Nodes, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, n := range is.Graph.Nodes {
		if body, err := contents.Bytes(n.Ref); err != nil || !bytes.Equal(body, objects[n.Ref]) {
			f.t.Errorf("%s is not what the source had: %v", n.Ref, err)
		}
	}
	for unit := range units {
		if f.units != nil && !f.units[unit] {
			f.entered++
		}
	}
	for unit := range f.units {
		if !units[unit] {
			f.left++
		}
	}
	if len(units) == 0 {
		f.none++
	}
	f.units = units
}

// fetching counts the objects that are read one by one. It refuses exact lists of ConfigMaps if it
// is to.
type fetching struct {
	capture.Source
	refuses bool
	fetched atomic.Int32
}

func (s *fetching) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func([]byte) error) (kube.ListResult, error) {
	if k.GroupKind == kube.ConfigMapKind.GroupKind && o.Exact != "" && s.refuses {
		return kube.ListResult{}, kube.ErrExactRefused
	}
	if o.Name != "" {
		s.fetched.Add(1)
	}
	return s.Source.List(ctx, k, o, fn)
}

// TestObjectsThatWereNotHeldAreFetched: a capture holds no more than so many bytes until the
// selector has decided; what it did not hold is read again, also of a kind that is not in the cut.
// None of the large objects, which belong to another workload cluster, is stored.
func TestObjectsThatWereNotHeldAreFetched(t *testing.T) {
	t.Parallel()
	c := newCrashed(t)
	for i := range 7 {
		c.source.PutConfigMap("team-0", fmt.Sprint("large-", i), "w-0", 10<<20)
	}
	for name, limit := range map[string]int{"small": math.MaxInt32, "large": -1,
		"refused": math.MaxInt32} {
		t.Run(name, func(t *testing.T) {
			f := &selectorFixture{t: t, source: &leased{Source: c.source},
				st: c.open(directory.New(t.TempDir()))}
			o := c.source.Options(f.st)
			source := &fetching{Source: c.source, refuses: name == "refused"}
			o.Source, o.ExactLimit = source, limit
			o.Scope.Selector = selector(t, "team=team-1")
			taken, err := snapshot.Create(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if (len(taken.NotInCut) > 0) != (name == "refused") || taken.Bytes > 1<<20 {
				t.Errorf("%d bytes, not in the cut: %v", taken.Bytes, taken.NotInCut)
			}
			is, values := f.open(f.st, taken), 0
			objects, _ := c.source.At(taken.ResourceVersion)
			contents, err := is.Load(t.Context(), is.Graph.Nodes, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range is.Graph.Nodes {
				body, err := contents.Bytes(n.Ref)
				if err != nil || !bytes.Equal(body, objects[n.Ref]) || n.Namespace == "team-0" {
					t.Errorf("%s is not what the source had: %v", n.Ref, err)
				}
				if n.Kind == "ConfigMap" {
					values++
				}
			}
			if source.fetched.Load() == 0 {
				t.Error("everything was held")
			}
			if values != 2 || taken.Counts.Units != 2 {
				t.Errorf("%d ConfigMaps of %d workload clusters", values, taken.Counts.Units)
			}
		})
	}
}
