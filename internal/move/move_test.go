package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

func TestLockOfAnotherOperationIsClaimedOnlyWhenForced(t *testing.T) {
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
		plan := &Plan{Locks: map[string]string{"ns/w": "ba9876543210/1"}}
		if tt.force {
			plan.Spec.Force = object.Forced{object.CodeLocked: ""}
		}
		m := &run{Operation: "0123456789ab", Attempt: 2, Plan: plan}
		u := &unstructured.Unstructured{Object: map[string]any{}}
		if tt.held != "" {
			capi.Annotate(u.Object, capi.AnnotationOperation, tt.held)
		}
		if tt.paused {
			capi.Annotate(u.Object, capi.AnnotationWasPaused, capi.WasAbsent)
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

// TestI2CompareFindsEveryChange: what is gone, created again, written to or new on the source
// prevents the hand-over of a unit.
func TestI2CompareFindsEveryChange(t *testing.T) {
	was := &batch{Source: map[string]objectState{}}
	for _, n := range []*graph.Node{node("Machine", "m1", "u1", "10"), node("Machine", "m2", "u2",
		"11")} {
		was.Source[n.Ref.String()] = objectState{Unit: "ns/w", UID: n.UID,
			ResourceVersion: n.ResourceVersion}
	}
	was.Source["Secret/ns/other"] = objectState{Unit: "ns/other", UID: "u9"}
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
		"created again": {[]*graph.Node{node("Machine", "m1", "u1", "10"), node("Machine", "m2", "u3",
			"11")}, false},
		"written to": {[]*graph.Node{node("Machine", "m1", "u1", "12"), node("Machine", "m2", "u2",
			"11")}, false},
		"new": {[]*graph.Node{node("Machine", "m1", "u1", "10"), node("Machine", "m2", "u2",
			"11"), node("Machine", "m3", "u3", "12")}, false},
	} {
		v := &sourceCapture{graph: graph.New(append(tt.nodes, cluster), nil)}
		err := was.compare(v, "ns/w")
		var changed *ChangedError
		if (err == nil) != tt.ok || err != nil && !errors.As(err, &changed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBatchesOfALargeFleetAreLarger: its snapshots take longer, so that fewer of them are taken.
// Groups grow in any fleet.
func TestBatchesOfALargeFleetAreLarger(t *testing.T) {
	for _, tt := range []struct {
		units, concurrency, together int

		groups []int // the first ones
		batch  int
	}{
		{units: 6, concurrency: 8, groups: []int{1, 2, 3}, batch: 1},
		{units: 100, concurrency: 8, groups: []int{1, 2, 4, 8, 8}, batch: 4},
		{units: 1000, concurrency: 8, groups: []int{1, 2, 4, 8, 8}, batch: 8},
		{units: 1000, concurrency: 3, groups: []int{1, 2, 3, 3}, batch: 3},
		{units: 6, concurrency: 1, groups: []int{1, 1}, batch: 1},
		{units: 6, concurrency: 8, together: 2, groups: []int{1, 2, 3}, batch: 2},
		{units: 6, concurrency: 1, together: 2, groups: []int{1, 1}, batch: 1},
	} {
		m := &run{Plan: &Plan{}, Tuning: restore.Tuning{Concurrency: tt.concurrency,
			Together: tt.together}}
		for i := range tt.units {
			m.Plan.Copy.Units = append(m.Plan.Copy.Units, restore.Unit{Name: fmt.Sprint("n/", i)})
		}
		var groups []int
		for _, group := range m.unplanned() {
			groups = append(groups, len(group))
		}
		if got := groups[:len(tt.groups)]; !slices.Equal(got, tt.groups) || m.batchSize() != tt.batch {
			t.Errorf("%+v: groups of %v, batches of %d", tt, got, m.batchSize())
		}
	}
}

func TestGroupsStartWithTheCanary(t *testing.T) {
	unit := func(name string, blocked bool) restore.Unit {
		return restore.Unit{Name: name,
			Blocked: blocked}
	}
	m := &run{
		Plan: &Plan{Copy: restore.Plan{Units: []restore.Unit{unit("n/a", false), unit("n/b", true),
			unit("n/c", false), unit("n/d", false), unit("n/e", false), unit("n/f", false),
			unit("n/g", false), unit("n/h", false), unit("n/i", false)}}},
		Tuning:  restore.Tuning{Concurrency: 2, Canary: "n/d"},
		Units:   map[string]catalog.UnitState{"n/c": catalog.UnitRolledBack},
		batches: []*batch{{Copy: restore.Plan{Units: []restore.Unit{unit("n/a", false)}}}},
		results: results{failed: map[string]bool{}, retired: map[string]bool{}},
	}
	want := [][]string{{"n/d"}, {"n/e", "n/f"}, {"n/g", "n/h"}, {"n/i"}}
	if got := m.unplanned(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("groups %v, want %v", got, want)
	}
	if n := m.blocked(); n != 1 {
		t.Errorf("%d blocked", n)
	}
	m.refused = map[string]bool{"n/e": true}
	want = [][]string{{"n/d"}, {"n/f", "n/g"}, {"n/h", "n/i"}}
	if got := m.unplanned(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("groups without the refused unit %v, want %v", got, want)
	}
	if n := m.blocked(); n != 2 || m.left() != 6 {
		t.Errorf("%d blocked and %d left, with a refused unit", n, m.left())
	}
}

// TestBindingWithoutAClusterKeepsNoClusterResourceSet checks which objects count as orphaned: only
// the Binding of a Cluster that is gone. The Binding of a Cluster that stays needs its
// ClusterResourceSet.
func TestBindingWithoutAClusterKeepsNoClusterResourceSet(t *testing.T) {
	t.Parallel()
	binding := func(name string) object.Ref {
		return object.Ref{Group: capi.ClusterResourceSetBinding.Group,
			Kind: capi.ClusterResourceSetBinding.Kind, Namespace: "ns", Name: name}
	}
	cluster := object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: "ns", Name: "stays"}
	g := graph.New([]*graph.Node{{Ref: cluster}}, nil)
	for ref, want := range map[object.Ref]bool{binding("stays"): false, binding("gone"): true,
		cluster: false, {Kind: "Secret", Namespace: "ns", Name: "gone"}: false} {
		if got := orphaned(g, ref); got != want {
			t.Errorf("%s: %v", ref, got)
		}
	}
}

// TestCaptureThatBeganLateEnoughIsShared checks that a capture serves all who ask for one that
// began after an earlier moment, and that a failed capture is repeated.
func TestCaptureThatBeganLateEnoughIsShared(t *testing.T) {
	count := 0
	l := &captureCache{capture: func(context.Context, []string) (*snapshot.Snapshot,
		*snapshot.Contents, error) {
		count++
		if count == 1 {
			return nil, nil, errors.New("away")
		}
		return &snapshot.Snapshot{Graph: graph.New(nil, nil)}, nil, nil
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
		t.Errorf("%d captures, want 2: a failed one is repeated, a good one is shared", count)
	}
	if _, err := l.after(t.Context(), time.Now()); err != nil || count != 3 {
		t.Errorf("%d captures, %v", count, err)
	}
}

// TestOneCaptureRunsAtATime: those for which the one under way began too early share the next one.
// One whose caller gives up is no answer for the others.
func TestOneCaptureRunsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count, running := 0, 0
		l := &captureCache{capture: func(ctx context.Context, namespaces []string) (*snapshot.Snapshot,
			*snapshot.Contents, error) {
			count++
			running++
			defer func() { running-- }()
			if running > 1 {
				t.Error("two captures run at once")
			}
			select {
			case <-time.After(time.Minute):
				return &snapshot.Snapshot{Graph: graph.New(nil, nil)}, nil, nil
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
		}}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var g sync.WaitGroup
		ask := func(ctx context.Context, cut bool) {
			since := time.Now()
			g.Go(func() {
				v, err := l.after(ctx, since)
				if (err != nil) != cut || err == nil && v.began.Before(since) {
					t.Errorf("%v, %v", v, err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		ask(short, true)
		for range 8 {
			ask(t.Context(), false)
		}
		g.Wait()
		if count != 2 { // the one that was cut off, and one for all others
			t.Errorf("%d captures", count)
		}
	})
}

// TestCaptureListsWhatThoseWhoWaitNeed: one that lists all namespaces serves everybody.
func TestCaptureListsWhatThoseWhoWaitNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listed [][]string
		l := &captureCache{capture: func(_ context.Context, namespaces []string) (*snapshot.Snapshot,
			*snapshot.Contents, error) {
			listed = append(listed, namespaces)
			time.Sleep(time.Minute)
			return &snapshot.Snapshot{Graph: graph.New(nil, nil)}, nil, nil
		}}
		var g sync.WaitGroup
		ask := func(namespaces ...string) {
			g.Go(func() {
				if v, err := l.of(t.Context(), time.Time{}, namespaces); err != nil ||
					!v.has(time.Time{}, namespaces) {
					t.Errorf("%v: %v, %v", namespaces, v, err)
				}
			})
			synctest.Wait()
		}
		ask("a")
		ask("b", "c") // waits for the first, and shares the second with the next two
		ask("a")
		ask("c", "d")
		g.Wait()
		ask("b")
		ask("a", "b")
		ask()
		ask("e")
		g.Wait()
		ask("f")
		g.Wait()
		want := [][]string{{"a"}, {"b", "c", "d"}, {"a", "b"}, nil}
		if !slices.EqualFunc(listed, want, slices.Equal) {
			t.Errorf("listed %v, want %v", listed, want)
		}
	})
}

// TestContentsOfACaptureMayBeDropped: its graph serves on. Who needs contents gets another capture,
// and who has them keeps them.
func TestContentsOfACaptureMayBeDropped(t *testing.T) {
	count := 0
	l := &captureCache{capture: func(context.Context, []string) (*snapshot.Snapshot,
		*snapshot.Contents, error) {
		count++
		return &snapshot.Snapshot{Graph: graph.New(nil, nil)}, &snapshot.Contents{}, nil
	}}
	l.dropContents(nil)
	had, err := l.of(t.Context(), time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.dropContents(&sourceCapture{}) // an older one
	l.dropContents(had)
	got, err := l.graphOf(t.Context(), time.Time{}, nil)
	if err != nil || count != 1 || had.contents == nil || got.contents != nil || got.graph != had.graph {
		t.Errorf("%d captures, %v; contents that somebody has: %v, dropped ones: %v", count, err,
			had.contents, got.contents)
	}
	if got, err = l.of(t.Context(), time.Time{}, nil); err != nil || count != 2 || got.contents == nil {
		t.Errorf("%d captures, contents %v, %v", count, got.contents, err)
	}
}

// TestCaptureOfThePlanServesItsRun, but for what is captured by relation alone, until its contents
// are dropped or somebody needs a newer one.
func TestCaptureOfThePlanServesItsRun(t *testing.T) {
	captured, prepared := 0, 0
	l := &captureCache{capture: func(context.Context, []string) (*snapshot.Snapshot,
		*snapshot.Contents, error) {
		captured++
		return &snapshot.Snapshot{Graph: graph.New(nil, nil)}, &snapshot.Contents{}, nil
	}, prepare: func(g *graph.Graph) (*graph.Graph, bool) {
		prepared++
		return g, true
	}}
	related := node("HelmRelease", "a", "1", "1")
	related.Related = true
	secret := node("Secret", "a", "2", "1")
	began := time.Now()
	l.add(finishedCapture(began, &snapshot.Snapshot{Graph: graph.New([]*graph.Node{related, secret},
		nil)}, &snapshot.Contents{}))
	v, err := l.of(t.Context(), began, []string{"any"})
	if err != nil || captured != 0 || prepared != 1 {
		t.Fatalf("%d captures, %d prepared, %v", captured, prepared, err)
	}
	if len(v.graph.Nodes) != 1 || v.graph.Node(secret.Ref) == nil || v.source.Graph != v.graph {
		t.Errorf("its graph has %v", v.graph.Nodes)
	}
	l.dropLatest()
	if v, err = l.graphOf(t.Context(), began, nil); err != nil || captured != 0 || v.contents != nil {
		t.Errorf("%d captures, contents %v, %v", captured, v.contents, err)
	}
	if _, err = l.of(t.Context(), began, nil); err != nil || captured != 1 {
		t.Errorf("%d captures for one who needs contents, %v", captured, err)
	}
	l.add(finishedCapture(began, &snapshot.Snapshot{Graph: graph.New(nil, nil)}, nil))
	if _, err = l.of(t.Context(), time.Now(), nil); err != nil || captured != 2 {
		t.Errorf("%d captures for one who needs a newer one, %v", captured, err)
	}
}

// TestCaptureThatIsNotEnoughIsFollowedByAWideOne, which serves those who ask later, too.
func TestCaptureThatIsNotEnoughIsFollowedByAWideOne(t *testing.T) {
	cache := func(count *int) *captureCache {
		return &captureCache{capture: func(context.Context, []string) (*snapshot.Snapshot,
			*snapshot.Contents, error) {
			*count++
			return &snapshot.Snapshot{Graph: graph.New(nil, nil)}, &snapshot.Contents{}, nil
		}}
	}
	var narrow, wide int
	enough := true
	l := cache(&narrow)
	l.wide = cache(&wide)
	l.prepare = func(g *graph.Graph) (*graph.Graph, bool) { return g, enough }
	ask := func(wantNarrow, wantWide int) {
		t.Helper()
		since := time.Now()
		for range 2 {
			if v, err := l.of(t.Context(), since, nil); err != nil || !v.enough {
				t.Errorf("%v, %v", v, err)
			}
		}
		if narrow != wantNarrow || wide != wantWide {
			t.Errorf("%d narrow captures and %d wide ones, want %d and %d", narrow, wide, wantNarrow,
				wantWide)
		}
	}
	ask(1, 0)
	enough = false
	ask(2, 1)
}

// TestUnitIsGivenBackWithAllOfItsSwitches, also when an earlier run has paused it, and this one
// only what came since.
func TestUnitIsGivenBackWithAllOfItsSwitches(t *testing.T) {
	node := func(name string) *graph.Node {
		return &graph.Node{Ref: object.Ref{Kind: "Metal3DataTemplate", Namespace: "ns", Name: name},
			UID: name}
	}
	old, came := node("old"), node("came")
	m := &run{switched: map[string]map[string]*graph.Node{}}
	if got := m.newcomersIn("ns/w", []*graph.Node{old}, []*graph.Node{old}); len(got) > 0 ||
		len(m.switched) > 0 {
		t.Errorf("%v came, %v are noted", got, m.switched)
	}
	if got := m.newcomersIn("ns/w", []*graph.Node{old, came}, []*graph.Node{old}); len(got) != 1 ||
		got[0] != came {
		t.Errorf("%v came", got)
	}
	ref, nodes, err := m.switchedOf(t.Context(), "ns/w")
	if err != nil || ref.Name != "w" || !slices.Equal(nodes, []*graph.Node{came, old}) {
		t.Errorf("%s is given back with %v, %v", ref, nodes, err)
	}
}

// TestControllersThatPublishNothingAreNoted: an object of theirs makes a pause wait for a while.
func TestControllersThatPublishNothingAreNoted(t *testing.T) {
	paused := func(conditions ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"status": map[string]any{"conditions": conditions}}}
	}
	acknowledged := map[string]any{"type": "Paused", "status": "True"}
	for name, tt := range map[string]struct {
		u      *unstructured.Unstructured
		silent bool
	}{
		"one that acknowledges": {paused(acknowledged), false},
		"another condition":     {paused(map[string]any{"type": "Ready", "status": "True"}), true},
		"none":                  {paused(), true},
	} {
		var silent atomic.Bool
		why := noteSilent(&silent, func(*graph.Node, *unstructured.Unstructured) string { return "it" })
		if got := why(nil, tt.u); got != "it" || silent.Load() != tt.silent {
			t.Errorf("%s: %q, silent %v", name, got, silent.Load())
		}
	}
}
