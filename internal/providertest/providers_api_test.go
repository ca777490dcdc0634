//go:build api

package providertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// tier is a run of all graphs.
type tier struct {
	t      *testing.T
	began  time.Time
	graphs []*graph
	passed map[string]map[string]bool // the stages in which a graph has no error, by its name
	site   *site
	source *side
	target *side
}

// TestAPIProviders takes the objects of all providers through a snapshot, a restore without a
// release, the release, and a move back. The CRDs have the labels with which their installers leave
// them; a snapshot and a plan are made with the labels of clusterctl on all of them, too. In the
// end each workload cluster of the table has a verdict.
func TestAPIProviders(t *testing.T) {
	r := newTier(t)
	r.labelled()
	snap := r.site.take(t, r.source)
	r.each("captured", func(t *testing.T, g *graph) { g.checkCaptured(t, snap) })
	r.restore(snap)
	servers.ClearServer(t, 0)
	r.source.install(t)
	r.move()
	r.checkTable()
}

// labelled plans a restore of a snapshot while all CRDs have the label of clusterctl, which users
// put by hand on those of providers that it does not install. Nothing may depend on that.
func (r *tier) labelled() {
	r.t.Helper()
	undo := servers.LabelProviders(r.t)
	r.source, r.target = connect(r.t, 0), connect(r.t, 1)
	snap := r.site.take(r.t, r.source)
	r.each("labelled, captured", func(t *testing.T, g *graph) { g.checkCaptured(t, snap) })
	plan := snap.plan(r.t, r.target, restore.Spec{SourceIsGone: true})
	r.each("labelled, planned", func(t *testing.T, g *graph) { g.checkPlanned(t, plan) })
	undo()
	r.source, r.target = connect(r.t, 0), connect(r.t, 1)
}

func newTier(t *testing.T) *tier {
	t.Helper()
	r := &tier{t: t, began: time.Now(), graphs: readGraphs(t), passed: map[string]map[string]bool{}}
	servers.InstallProviders(t, kinds(r.graphs))
	r.lap("CRDs are installed")
	r.source, r.target = connect(t, 0), connect(t, 1)
	r.source.install(t)
	r.target.install(t)
	r.source.load(t, r.graphs)
	r.lap("objects are there")
	servers.Acknowledge(t, 0)
	servers.Acknowledge(t, 1)
	r.site = newSite(t)
	return r
}

func (r *tier) lap(what string) {
	r.t.Helper()
	r.t.Logf("%5.1f s: %s", time.Since(r.began).Seconds(), what)
}

// each runs a stage for each graph.
func (r *tier) each(stage string, check func(t *testing.T, g *graph)) {
	r.t.Helper()
	for _, g := range r.graphs {
		if r.passed[g.name] == nil {
			r.passed[g.name] = map[string]bool{}
		}
		r.passed[g.name][stage] = r.t.Run(g.name+"/"+stage, func(t *testing.T) { check(t, g) })
	}
	r.lap(stage)
}

func (g *graph) checkCaptured(t *testing.T, snap *taken) {
	for _, r := range g.refs() {
		if has := snap.Graph.Node(r) != nil; has != g.captured(r) {
			t.Errorf("%s: captured is %v", r, has)
		}
	}
}

// checkPlanned checks the plan of a restore.
func (g *graph) checkPlanned(t *testing.T, plan *restore.Plan) {
	if diff := cmp.Diff(g.Findings, g.findings(plan.Findings), cmpopts.EquateEmpty(),
		cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("findings of the plan of a restore (-want +got):\n%s", diff)
	}
	for _, row := range g.Rows {
		if got := row.blocks(plan.Findings); got != row.Blocked {
			t.Errorf("%s: a restore is blocked by %q, want %q", row.Name, got, row.Blocked)
		}
	}
}

// restore restores a snapshot into the target without a release, and then releases it.
func (r *tier) restore(snap *taken) {
	t := r.t
	spec := restore.Spec{SourceIsGone: true}
	plan := snap.plan(t, r.target, spec)
	r.each("planned", func(t *testing.T, g *graph) { g.checkPlanned(t, plan) })
	spec.NoRelease = true
	plan = snap.plan(t, r.target, spec)
	rec := newRecorder(r.target)
	r.site.restore(t, snap, r.target, plan, rec)
	r.lap("restored")
	r.each("paused", func(t *testing.T, g *graph) {
		g.checkWrites(t, rec)
		g.checkThere(t, r.target, false)
	})
	spec.NoRelease = false
	plan = snap.plan(t, r.target, spec)
	rec = newRecorder(r.target)
	r.site.restore(t, snap, r.target, plan, rec)
	r.each("released", func(t *testing.T, g *graph) { g.checkThere(t, r.target, true) })
}

// checkThere checks the objects of a graph on the target, before or after the release.
func (g *graph) checkThere(t *testing.T, s *side, released bool) {
	if g.blocked(false) {
		g.checkIdle(t, s)
		return
	}
	for _, u := range g.objects {
		ref := refOf(u)
		if ref.Kind == "Namespace" && ref.Group == "" {
			continue
		}
		compare(t, s, u, want{paused: !released,
			absent: !g.restored(ref) || !released && g.isLate(t, ref)})
	}
}

// checkIdle checks that no controller works on the workload clusters: they are not there, or
// paused.
func (g *graph) checkIdle(t *testing.T, s *side) {
	t.Helper()
	for _, row := range g.Rows {
		u := s.get(t, row.cluster())
		if u != nil && notPaused(u, "field spec.paused", nil) != "" {
			t.Errorf("%s is at work", row.cluster())
		}
	}
}

// move moves everything from the target of the restore to its source.
func (r *tier) move() {
	t := r.t
	from, to := r.target, r.source
	for _, g := range r.graphs {
		from.apply(t, g)
	}
	ends := r.site.ends(t, from, to)
	plan, err := move.NewPlan(t.Context(), ends, move.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	r.each("move planned", func(t *testing.T, g *graph) {
		if g.blocked(false) {
			return
		}
		if diff := cmp.Diff(g.MoveFindings, g.findings(plan.Copy.Findings), cmpopts.EquateEmpty(),
			cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("findings of the plan of a move (-want +got):\n%s", diff)
		}
		for _, row := range g.Rows {
			want := strings.TrimSpace(row.MoveBlocked + " " + row.Forced)
			if got := row.blocks(plan.Copy.Findings); got != want {
				t.Errorf("%s: a move is blocked by %q, want %q", row.Name, got, want)
			}
		}
	})
	force := object.Forced{}
	for _, g := range r.graphs {
		for _, row := range g.Rows {
			for _, code := range strings.Fields(row.Forced) {
				force[object.Code(code)] = ""
			}
		}
	}
	defer r.unblockPaused(from)()
	stop := watchDeletions(t, from)
	rec := newRecorder(to)
	ends.Target.Writer = rec
	r.site.move(t, ends, move.Spec{Force: force})
	r.lap("moved")
	seen := stop()
	r.each("moved", func(t *testing.T, g *graph) {
		g.checkOrder(t, rec)
		g.checkMoved(t, from, to)
		g.checkDeletions(t, seen)
	})
	r.checkNothingHangs(from)
}

// checkMoved checks that objects are on the side to which they moved, and on no other one unless
// they stay for others.
func (g *graph) checkMoved(t *testing.T, from, to *side) {
	if g.blocked(true) {
		g.checkIdle(t, to)
		return
	}
	for _, u := range g.objects {
		ref := refOf(u)
		if ref.Kind == "Namespace" && ref.Group == "" || !g.restored(ref) {
			continue
		}
		compare(t, to, u, want{})
		if there := from.get(t, ref) != nil; there != slices.Contains(g.Stays, ref.String()) {
			t.Errorf("%s: on the source after the move is %v", ref, there)
		}
	}
}

// checkNothingHangs checks that nothing that is left on a side waits for a finalizer or for the
// garbage collector.
func (r *tier) checkNothingHangs(s *side) {
	t := r.t
	uids, owned := map[string]bool{}, map[string][]string{}
	for _, k := range s.kinds {
		_, err := s.Reader().List(context.WithoutCancel(t.Context()), k, kube.ListOptions{},
			func(raw []byte) error {
				u := decode(raw)
				name := fmt.Sprintf("%s %s/%s", k.GroupKind, u.GetNamespace(), u.GetName())
				uids[string(u.GetUID())] = true
				if u.GetDeletionTimestamp() != nil {
					t.Errorf("%s waits for %v", name, u.GetFinalizers())
				}
				for _, o := range u.GetOwnerReferences() {
					owned[string(o.UID)] = append(owned[string(o.UID)], name+" is owned by "+o.Kind+" "+o.Name)
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	for uid, names := range owned {
		if !uids[uid] {
			t.Errorf("the garbage collector would delete what has no owner any more: %v", names)
		}
	}
}
