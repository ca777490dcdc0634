package move

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
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
	sideA = restore.Side{Name: "a", UID: "uid-a"}
	sideB = restore.Side{Name: "b", UID: "uid-b"}
	sideC = restore.Side{Name: "c", UID: "uid-c"}
)

// TestI1TakeHandsOverOnce: a claim follows the owner that the record names, may be repeated, and
// never takes from somebody else unless it is forced to.
func TestI1TakeHandsOverOnce(t *testing.T) {
	s := newStore(t)
	claim := func(from, to restore.Side, operation string, planned int64, force bool) error {
		return Take(t.Context(), s, Claim{WorkloadID: "w-1", Workload: "ns/w", From: from, To: to,
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
		from, to restore.Side
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
		{"into its owner, but another wrote since planning", sideA, sideC, one, 2, false, true, "uid-c", 3},
		{"and back", sideC, sideA, one, 3, false, false, "uid-a", 4},
		{"from its owner, but another wrote since planning", sideA, sideB, two, 2, false, true, "uid-a", 4},
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
}

// TestTakeBackAcceptsAnyRecordOfTheSource: a rollback needs a record after the one of planning that
// names the source, and does not get stuck on one that another operation wrote.
func TestTakeBackAcceptsAnyRecordOfTheSource(t *testing.T) {
	for _, tt := range []struct {
		name    string
		written []restore.Side // one after the other, from epoch 1
		planned int64
		epoch   int64 // after it
		refused bool
	}{
		{"none", nil, 0, 1, false},
		{"that of planning", []restore.Side{sideA}, 1, 2, false},
		{"a later one of the source", []restore.Side{sideA, sideC, sideA}, 1, 3, false},
		{"a later one of another", []restore.Side{sideA, sideC}, 1, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			for i, by := range tt.written {
				if err := Take(t.Context(), s, Claim{WorkloadID: "w-1", Workload: "ns/w", To: by,
					Operation: "00000000000" + strconv.Itoa(i), Epoch: int64(i), Force: true}); err != nil {
					t.Fatal(err)
				}
			}
			err := takeBack(t.Context(), s, Claim{WorkloadID: "w-1", Workload: "ns/w", From: sideA, To: sideB,
				Operation: "0123456789ab", Epoch: tt.planned})
			o, getErr := s.GetOwner(t.Context(), "w-1")
			if (err != nil) != tt.refused || getErr != nil || o.Epoch != tt.epoch ||
				o.Owner.Owner.UID != "uid-a" && !tt.refused {
				t.Errorf("%v, the record names %s at epoch %d, want epoch %d", err, o.Owner.Owner.UID, o.Epoch,
					tt.epoch)
			}
		})
	}
}

func TestLock(t *testing.T) {
	for _, tt := range []struct {
		name, held       string
		paused, force    bool
		mayLock, mayRest bool
	}{
		{"free", "", false, false, true, false},
		{"free, but a copy that is not at its end", "", true, false, false, false},
		{"ours", "0123456789ab/2", true, false, true, true},
		{"of an earlier run", "0123456789ab/1", true, false, true, true},
		{"of a later run", "0123456789ab/3", true, false, false, false},
		{"of a later run, forced", "0123456789ab/3", true, true, false, false},
		{"of another operation", "ba9876543210/1", true, false, false, false},
		{"of another operation, forced", "ba9876543210/1", true, true, true, false},
		{"of one that came after planning, forced", "ffffffffffff/1", true, true, false, false},
	} {
		plan := &Plan{Spec: Spec{Force: tt.force}, Locks: map[string]string{"ns/w": "ba9876543210/1"}}
		m := &run{Options: Options{Operation: "0123456789ab", Attempt: 2, Plan: plan}}
		u := &unstructured.Unstructured{Object: map[string]any{}}
		if tt.held != "" {
			restore.Annotate(u, capi.AnnotationOperation, tt.held)
		}
		if tt.paused {
			restore.Annotate(u, capi.AnnotationWasPaused, capi.WasAbsent)
		}
		for what, err := range map[string]error{"lock": m.mayLock("ns/w", u), "go on": m.mayWrite("ns/w",
			u)} {
			var locked *LockedError
			if want := what == "lock" && tt.mayLock || what == "go on" && tt.mayRest; (err == nil) != want ||
				err != nil && (!errors.As(err, &locked) || locked.Holder != tt.held) {
				t.Errorf("%s: %s: %v", tt.name, what, err)
			}
		}
	}
}

func node(kind, name, uid, version string) *graph.Node {
	n := &graph.Node{Ref: object.Ref{Group: "cluster.x-k8s.io", Kind: kind, Namespace: "ns",
		Name: name}, UID: uid, ResourceVersion: version, Cluster: "w"}
	if kind == "Cluster" {
		n.Cluster = ""
	}
	return n
}

// TestI2CompareFindsEveryChange: what is gone, made anew, written to or new on the source keeps a
// unit from being handed over.
func TestI2CompareFindsEveryChange(t *testing.T) {
	was := &part{Source: map[string]version{}}
	for _, n := range []*graph.Node{node("Machine", "m1", "u1", "10"), node("Machine", "m2", "u2",
		"11")} {
		was.Source[n.Ref.String()] = version{Unit: "ns/w", UID: n.UID, ResourceVersion: n.ResourceVersion}
	}
	was.Source["Secret/ns/other"] = version{Unit: "ns/other", UID: "u9"}
	was.Copy.Units = []restore.Unit{{Name: "ns/w",
		Objects: []restore.Object{{Ref: node("Machine", "left-out", "", "").Ref, Action: restore.Skip}}}}
	cluster := node("Cluster", "w", "u0", "1")
	skipCluster := []restore.Object{{Ref: cluster.Ref, Action: restore.Skip}}
	was.Copy.Units[0].Objects = append(was.Copy.Units[0].Objects, skipCluster...)
	for name, tt := range map[string]struct {
		nodes []*graph.Node
		ok    bool
	}{
		"unchanged": {[]*graph.Node{node("Machine", "m1", "u1", "10"), node("Machine", "m2", "u2",
			"11")}, true},
		"left out stays": {[]*graph.Node{node("Machine", "m1", "u1", "10"), node("Machine", "m2", "u2",
			"11"), node("Machine", "left-out", "u7", "3")}, true},
		"gone": {[]*graph.Node{node("Machine", "m1", "u1", "10")}, false},
		"made anew": {[]*graph.Node{node("Machine", "m1", "u1", "10"), node("Machine", "m2", "u3",
			"11")}, false},
		"written to": {[]*graph.Node{node("Machine", "m1", "u1", "12"), node("Machine", "m2", "u2",
			"11")}, false},
		"new": {[]*graph.Node{node("Machine", "m1", "u1", "10"), node("Machine", "m2", "u2",
			"11"), node("Machine", "m3", "u3", "12")}, false},
	} {
		v := &view{graph: graph.New(append(tt.nodes, cluster))}
		err := was.compare(v, "ns/w")
		var changed *ChangedError
		if (err == nil) != tt.ok || err != nil && !errors.As(err, &changed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBatches(t *testing.T) {
	unit := func(name string, blocked bool) restore.Unit {
		return restore.Unit{Name: name,
			Blocked: blocked}
	}
	m := &run{
		Options: Options{
			Plan: &Plan{Copy: restore.Plan{Units: []restore.Unit{unit("n/a", false), unit("n/b", true),
				unit("n/c", false), unit("n/d", false), unit("n/e", false), unit("n/f", false)}}},
			Tuning: restore.Tuning{Concurrency: 2, Canary: "n/d"},
			Units:  map[string]catalog.UnitState{"n/c": catalog.UnitRolledBack},
		},
		parts:   []*part{{Copy: restore.Plan{Units: []restore.Unit{unit("n/a", false)}}}},
		results: results{failed: map[string]bool{}, retired: map[string]bool{}},
	}
	want := [][]string{{"n/d"}, {"n/e", "n/f"}}
	if got := m.batches(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("batches %v, want %v", got, want)
	}
	if m.results.blocked != 1 {
		t.Errorf("%d blocked", m.results.blocked)
	}
}

// TestLooksAreShared: everybody who asks for a look that began after a moment gets one, and those
// who ask together share it. TestOrphanedBindings: they keep no ClusterResourceSet on the source,
// while those of Clusters that stay do.
func TestOrphanedBindings(t *testing.T) {
	t.Parallel()
	binding := func(name string) object.Ref {
		return object.Ref{Group: capi.ClusterResourceSetBinding.Group,
			Kind: capi.ClusterResourceSetBinding.Kind, Namespace: "ns", Name: name}
	}
	cluster := object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: "ns", Name: "stays"}
	g := graph.New([]*graph.Node{{Ref: cluster}})
	for ref, want := range map[object.Ref]bool{binding("stays"): false, binding("gone"): true,
		cluster: false, {Kind: "Secret", Namespace: "ns", Name: "gone"}: false} {
		if got := orphaned(g, ref); got != want {
			t.Errorf("%s: %v", ref, got)
		}
	}
}

func TestLooksAreShared(t *testing.T) {
	count := 0
	l := &looks{look: func(context.Context) (*snapshot.Snapshot, *snapshot.Contents, error) {
		count++
		if count == 1 {
			return nil, nil, errors.New("away")
		}
		return &snapshot.Snapshot{Graph: graph.New(nil)}, nil, nil
	}}
	if _, err := l.after(t.Context(), time.Time{}); err == nil {
		t.Error("no error")
	}
	for range 2 {
		if _, err := l.after(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if count != 2 {
		t.Errorf("%d looks, want 2: one that failed is not kept, one that worked is", count)
	}
	if _, err := l.after(t.Context(), time.Now()); err != nil || count != 3 {
		t.Errorf("%d looks, %v", count, err)
	}
}

func TestByWave(t *testing.T) {
	waves := byWave([]restore.Object{{Wave: 1}, {Wave: 1}, {Wave: 2}, {Wave: 5}})
	if len(waves) != 3 || len(waves[0]) != 2 || waves[2][0].Wave != 5 {
		t.Errorf("waves %v", waves)
	}
}
