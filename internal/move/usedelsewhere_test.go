package move

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// TestWhatAnotherWorkloadClusterHasComeToUseStaysOnTheSource: a Secret of another namespace was one
// workload cluster's alone when the move was planned. The source is looked at once more only where
// a unit has such an object.
func TestWhatAnotherWorkloadClusterHasComeToUseStaysOnTheSource(t *testing.T) {
	cluster := func(namespace string) object.Ref {
		return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: namespace,
			Name: "one"}
	}
	secret := func(namespace, name string) object.Ref {
		return object.Ref{Kind: capi.Secret.Kind, Namespace: namespace, Name: name}
	}
	own, others, taken := secret("team-a", "own"), secret("keys", "alone"), secret("keys", "both")
	uses := func(r object.Ref, named ...object.Ref) *graph.Node {
		n := &graph.Node{Ref: r}
		for _, ref := range named {
			n.Needs = append(n.Needs, graph.Need{Ref: ref, Field: "spec"})
		}
		return n
	}
	captures, interrupted := 0, false
	m := &run{captures: &captureCache{capture: func(context.Context, []string) (*snapshot.Snapshot,
		*snapshot.Contents, error) {
		captures++
		nodes := []*graph.Node{uses(cluster("team-b"), taken), uses(own), uses(others), uses(taken)}
		if !interrupted {
			nodes = append(nodes, uses(cluster("team-a"), own, others, taken))
		}
		return &snapshot.Snapshot{Graph: graph.New(nodes, nil)}, nil, nil
	}}}
	_, m.Journal = newJournal(t, catalog.Options{})
	unit := func(refs ...object.Ref) restore.Unit {
		u := restore.Unit{Name: "team-a/one"}
		for _, r := range refs {
			u.Objects = append(u.Objects, restore.Object{Ref: r, Action: restore.Create})
		}
		return u
	}
	for _, tt := range []struct {
		name        string
		unit        restore.Unit
		interrupted bool // and what uses them here is gone
		kept        []object.Ref
		captures    int
	}{
		{"one that has all in its namespace", unit(cluster("team-a"), own), false, nil, 0},
		{"one with Secrets elsewhere", unit(cluster("team-a"), own, others, taken), false,
			[]object.Ref{taken}, 1},
		{"one that is half removed", unit(cluster("team-a"), own, others, taken), true,
			[]object.Ref{taken}, 1},
	} {
		captures, interrupted = 0, tt.interrupted
		got, err := m.keepUsedElsewhere(t.Context(), []restore.Unit{tt.unit})
		if err != nil {
			t.Fatal(err)
		}
		kept := map[object.Ref]bool{}
		for _, o := range got[0].Objects {
			if o.Action == restore.Skip {
				kept[o.Ref] = true
			}
		}
		for _, ref := range tt.kept {
			if !kept[ref] {
				t.Errorf("%s: %s goes", tt.name, ref)
			}
			delete(kept, ref)
		}
		if len(kept) > 0 || captures != tt.captures {
			t.Errorf("%s: %v stays, too; %d captures, want %d", tt.name, kept, captures, tt.captures)
		}
		if tt.unit.Objects[len(tt.unit.Objects)-1].Action == restore.Skip {
			t.Errorf("%s: the stored plan has changed", tt.name)
		}
	}
}

// TestWhatStaysIsKnownToALaterAttempt: an attempt to remove a unit leaves a Secret that others use,
// and dies. The next one leaves it as well, whatever the source shows by then.
func TestWhatStaysIsKnownToALaterAttempt(t *testing.T) {
	objectOf := func(name string, action restore.Action) restore.Object {
		return restore.Object{Ref: object.Ref{Kind: capi.Secret.Kind, Namespace: "team-a", Name: name},
			Action: action}
	}
	actions := func(u restore.Unit) (all []restore.Action) {
		for _, o := range u.Objects {
			all = append(all, o.Action)
		}
		return all
	}
	planned := restore.Unit{Name: "team-a/one", Objects: []restore.Object{
		objectOf("own", restore.Create), objectOf("left-out", restore.Skip),
		objectOf("used", restore.Create)}}
	b := &batch{Copy: restore.Plan{Units: []restore.Unit{planned}}}
	m := &run{}
	_, m.Journal = newJournal(t, catalog.Options{})
	for attempt, keep := range []map[object.Ref]bool{nil, {planned.Objects[2].Ref: true}, nil} {
		units, err := m.leaveKept(t.Context(), []restore.Unit{planned})
		if err != nil {
			t.Fatal(err)
		}
		units = leavingOut(units, keep)
		want := []restore.Action{restore.Create, restore.Skip, restore.Create}
		if attempt > 0 {
			want[2] = restore.Skip
		}
		if got := actions(units[0]); !slices.Equal(got, want) {
			t.Errorf("an attempt removes %v, want %v", got, want)
		}
		errDies := errors.New("it dies")
		err = m.Journal.Do(t.Context(), retireStep(planned.Name), func(ctx context.Context,
			h *catalog.StepHandle) error {
			return cmp.Or(recordKept(ctx, h, b, units[0]), errDies)
		})
		if !errors.Is(err, errDies) {
			t.Fatal(err)
		}
	}
}
