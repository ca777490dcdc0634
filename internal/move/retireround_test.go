package move

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

func leavingUnits(names ...string) *leaving {
	l := &leaving{done: make(chan struct{})}
	for _, name := range names {
		l.healthy = append(l.healthy, restore.Unit{Name: name})
	}
	return l
}

// TestBatchesAreRetiredTogetherAfterAWhile: the longer the lists of a round took, the later the
// next one begins, as long as further batches are to come. The canary does not wait, and neither do
// as many units as a round may have.
func TestBatchesAreRetiredTogetherAfterAWhile(t *testing.T) {
	tuning := restore.Tuning{Canary: "canary", Concurrency: 8}
	var many []string
	for i := range 2 * tuning.Concurrency {
		many = append(many, fmt.Sprint("team/", i))
	}
	for name, tt := range map[string]struct {
		gathers bool
		took    time.Duration
		failed  bool
		batches [][]string
		then    func(r *rounds) // after a second
		after   time.Duration
	}{
		"no batch is to come": {took: time.Minute, batches: [][]string{{"a"}}},
		"the first round":     {gathers: true, batches: [][]string{{"a"}}},
		"a short list": {gathers: true, took: time.Second, batches: [][]string{{"a"}, {"b"}},
			after: listShare * time.Second},
		"a long list": {gathers: true, took: time.Minute, batches: [][]string{{"a"}},
			after: longestGather},
		"after a failure": {gathers: true, took: time.Minute, failed: true, batches: [][]string{{"a"}}},
		"the canary":      {gathers: true, took: time.Minute, batches: [][]string{{"a"}, {"canary"}}},
		"many units":      {gathers: true, took: time.Minute, batches: [][]string{many}},
		"no further batch is to come": {gathers: true, took: time.Minute, batches: [][]string{{"a"}},
			then: func(r *rounds) { r.gather(false) }, after: time.Second},
		"the canary comes": {gathers: true, took: time.Minute, batches: [][]string{{"a"}},
			then: func(r *rounds) { r.add(leavingUnits("canary")) }, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRounds(tuning)
				r.gather(tt.gathers)
				if tt.took > 0 {
					r.ended(tt.took, tt.failed)
				}
				for _, units := range tt.batches {
					r.add(leavingUnits(units...))
				}
				if tt.then != nil {
					time.AfterFunc(time.Second, func() { tt.then(r) })
				}
				began := time.Now()
				if !r.await(t.Context()) {
					t.Error("there is a round")
				}
				if took := time.Since(began); took != tt.after {
					t.Errorf("it begins after %v, want %v", took, tt.after)
				}
			})
		})
	}
}

// TestRoundHasWhatCameFirst, and not much more than it may have.
func TestRoundHasWhatCameFirst(t *testing.T) {
	const most = 16
	r := newRounds(restore.Tuning{Concurrency: most / 2})
	sizes := []int{1, most - 2, 2, most + 1, 1}
	for i, size := range sizes {
		l := leavingUnits()
		for range size {
			l.healthy = append(l.healthy, restore.Unit{Name: fmt.Sprint("batch-", i)})
		}
		r.add(l)
	}
	var rounds []int
	for r.await(t.Context()) {
		rounds = append(rounds, len(r.take()))
	}
	if want := []int{2, 1, 1, 1}; !slices.Equal(rounds, want) {
		t.Errorf("rounds of %v batches, want %v", rounds, want)
	}
}

// TestRunThatEndsRetiresNothing: a batch that waits for its round is left to the next run.
func TestRunThatEndsRetiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &run{rounds: newRounds(restore.Tuning{Concurrency: 8})}
		m.rounds.gather(true)
		m.rounds.ended(time.Hour, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		var g sync.WaitGroup
		for range 2 {
			g.Go(func() { m.retire(ctx, &batch{}, []restore.Unit{{Name: "team/a"}}) })
		}
		m.retire(ctx, &batch{}, []restore.Unit{{Name: "team/b"}})
		g.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if len(m.rounds.take()) != 3 {
			t.Error("a batch was taken")
		}
	})
}

// TestWhatLeavesIsDecidedByTheBatchOfItsOwner: nothing is taken along because another batch of the
// round copies it, and nothing stays because another one leaves it out.
func TestWhatLeavesIsDecidedByTheBatchOfItsOwner(t *testing.T) {
	ref := func(name string) object.Ref {
		return object.Ref{Kind: "Secret", Namespace: "team", Name: name}
	}
	part := func(name string, action restore.Action) *leaving {
		l := leavingUnits("team/" + name)
		kept := restore.Object{Ref: ref("kept"), Action: restore.Skip} // since others use it
		l.healthy[0].Objects = []restore.Object{{Ref: ref(name), Action: restore.Create}, kept,
			{Ref: ref("left-out"), Action: restore.Skip}}
		l.batch = &batch{Source: map[string]objectState{ref(name).String(): {UID: name},
			kept.Ref.String(): {UID: "kept"}},
			Copy: restore.Plan{Shared: restore.Unit{
				Objects: []restore.Object{{Ref: ref("shared"), Action: action}}}}}
		return l
	}
	m := &run{}
	round := []*leaving{part("copies", restore.Create), part("adopts", restore.Adopt),
		part("leaves-out", restore.Skip)}
	toDelete, planned, unitOf := m.leavingIn(round)
	for owner, want := range map[string]bool{"copies": true, "adopts": true, "leaves-out": false} {
		if planned(ref("shared"), ref(owner)) != want {
			t.Errorf("the batch that %s it takes it along: %v", owner, !want)
		}
		if toDelete[owner] != ref(owner) || unitOf[ref(owner)] != "team/"+owner {
			t.Errorf("%v is deleted, of unit %q", toDelete[owner], unitOf[ref(owner)])
		}
	}
	if _, deleted := toDelete["kept"]; deleted || !planned(ref("kept"), ref("copies")) ||
		planned(ref("left-out"), ref("copies")) {
		t.Errorf("%v are deleted; what is kept has to lose its owner, and what is left out stays", toDelete)
	}
	if planned(ref("adopts"), ref("copies")) {
		t.Error("an object of a unit of another batch leaves with its owner, although that may stay")
	}
	for _, l := range round {
		if !l.owned[ref("shared")] {
			t.Errorf("%s does not know what it owns", l.healthy[0].Name)
		}
	}
}

// TestAnAPIThatDoesNotAnswerIsToldOnce: a round that cannot see what the garbage collector would
// delete there says so, and later rounds of the run do not repeat it.
func TestAnAPIThatDoesNotAnswerIsToldOnce(t *testing.T) {
	c, journal := newJournal(t, catalog.Options{})
	r := newRounds(restore.Tuning{})
	for _, group := range []string{"one.test", "one.test", "two.test"} {
		r.tell(t.Context(), journal, object.Finding{Severity: object.Warning, Code: object.CodeAPIDead,
			Message: group})
	}
	var told []string
	for _, f := range findingsOf(t, c, journal) {
		told = append(told, f.Message)
	}
	if want := []string{"one.test", "two.test"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}
