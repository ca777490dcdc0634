package mirror

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestOperationIsTheSameOnAnotherHost: plans, steps, values, units and history are in the mirror,
// also a plan that needs many records.
func TestOperationIsTheSameOnAnotherHost(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	plan := make([]byte, 9<<20) // random: it is not compressed
	_, _ = rand.Read(plan)
	_, err := a.c.PutPlan(t.Context(), j.Operation(), bytes.NewReader(plan))
	must(t, err)
	must(t, j.SetUnit(t.Context(), "team-a/web", catalog.UnitPending, ""))
	for _, phase := range []string{"create", "own", "release"} {
		must(t, a.do(j, phase))
	}
	must(t, a.undo(j, "release"))
	_, err = a.c.PutBatchPlan(t.Context(), j.Operation(), "batch-001", strings.NewReader("batch"))
	must(t, err)
	must(t, j.SetUnit(t.Context(), "team-a/web", catalog.UnitCopied, ""))
	a.end(j, catalog.Failed)

	if a.bucket.puts < 5 {
		t.Errorf("only %d records for a plan of 9 MiB", a.bucket.puts)
	}
	op, err := Import(t.Context(), b.c, b.st, "", j.Operation())
	must(t, err)
	if diff := cmp.Diff(a.record(op.ID), b.record(op.ID), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-first +other):\n%.2000s", diff)
	}
	if text, err := b.c.BatchPlan(t.Context(), op.ID, "batch-001"); string(text) != "batch" {
		t.Errorf("batch %q, %v", text, err)
	}
	found, err := List(t.Context(), b.st)
	must(t, err)
	if len(found) != 1 || found[0].Head.Host != "a" || found[0].Head.State != "failed" ||
		found[0].Head.Final || found[0].Head.Source != "prod" || found[0].Head.Target != "next" {
		t.Errorf("listed %+v", found)
	}
}

// TestRecordsThatAreMissingAreDamage: a host that finds fewer records than it wrote cannot fence
// out another one, and a reader would get a mixture.
func TestRecordsThatAreMissingAreDamage(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	for _, phase := range []string{"create", "own", "release"} {
		must(t, a.do(j, phase))
	}
	a.end(j, catalog.Stopped)
	must(t, a.bucket.Delete(t.Context(), fmt.Sprintf("operations/%s/00000002.json.zst.age",
		j.Operation())))
	if _, err := Import(t.Context(), b.c, b.st, "", j.Operation()); !isCorrupt(err) {
		t.Errorf("read with a record missing: %v", err)
	}
	keys, err := a.st.OperationRecords(t.Context(), string(j.Operation()))
	must(t, err)
	must(t, a.bucket.Delete(t.Context(), keys[len(keys)-1].String()))
	if _, err := a.tryBegin(j.Operation()); err == nil {
		t.Error("went on although its newest record is gone")
	}
}

func isCorrupt(err error) bool {
	_, ok := errors.AsType[*store.CorruptError](err)
	return ok
}

// TestHostLostInTheMiddleOfRecordsLeavesTheStateBefore: a plan that takes several records counts
// only once all of them are there.
func TestHostLostInTheMiddleOfRecordsLeavesTheStateBefore(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	plan := make([]byte, 9<<20)
	_, _ = rand.Read(plan)
	_, err := a.c.PutBatchPlan(t.Context(), j.Operation(), "batch-001", bytes.NewReader(plan))
	must(t, err)
	must(t, a.do(j, "own"))
	keys, err := a.st.OperationRecords(t.Context(), string(j.Operation()))
	must(t, err)
	must(t, a.bucket.Delete(t.Context(), keys[len(keys)-1].String()))
	_, err = Import(t.Context(), b.c, b.st, "", j.Operation())
	must(t, err)
	if _, err := b.c.BatchPlan(t.Context(), j.Operation(), "batch-001"); !errors.Is(err,
		catalog.ErrNotFound) {
		t.Errorf("half a plan: %v", err)
	}
	steps, err := b.c.Steps(t.Context(), j.Operation())
	if err != nil || len(steps) != 1 {
		t.Errorf("steps %v, %v", steps, err)
	}
}

// TestWholeRecordOfALargeOperationIsDivided: each piece fits in a record, however many steps and
// workload clusters the operation has by the time of a resume.
func TestWholeRecordOfALargeOperationIsDivided(t *testing.T) {
	const steps, units = 30_000, 12_000
	all := catalog.Change{Operation: &catalog.Operation{ID: "0123456789ab"},
		Units: map[string]catalog.UnitState{}}
	for i := range steps {
		all.Steps = append(all.Steps, catalog.StepRecord{Step: catalog.Step{Wave: i,
			Unit: "team-a/web", Phase: "create"}, State: catalog.StepFailed,
			Error: strings.Repeat("x", 200)})
	}
	for i := range units {
		all.Units[fmt.Sprintf("team-a/web-%d", i)] = catalog.UnitReleased
	}
	pieces, err := divide(all, true)
	must(t, err)
	haveSteps, haveUnits := map[int]bool{}, map[string]bool{}
	for i, p := range pieces {
		if len(p.text) > mostText {
			t.Errorf("piece %d has %d bytes", i, len(p.text))
		}
		if p.whole != (i == 0) {
			t.Errorf("piece %d is whole: %v", i, p.whole)
		}
		changes, _, err := parseText([]byte(`{"changes":[` + string(p.text) + `]}`))
		must(t, err)
		for _, s := range changes[0].Steps {
			haveSteps[s.Step.Wave] = true
		}
		for unit := range changes[0].Units {
			haveUnits[unit] = true
		}
	}
	if len(haveSteps) != steps || len(haveUnits) != units {
		t.Errorf("%d steps, %d units", len(haveSteps), len(haveUnits))
	}
}

// TestRecordsOfTwoHostsAreNotMixed: of two hosts that wrote one number, the storage shows the
// record of the one that it had refused. Both are signed.
func TestRecordsOfTwoHostsAreNotMixed(t *testing.T) {
	f := newFixture(t)
	a, b, c := f.host("a"), f.host("b"), f.host("c")
	j := a.begin("")
	must(t, a.do(j, "create"))
	id := j.Operation()
	other := b.takeOver(id)
	must(t, b.do(other, "pause"))
	if err := a.do(j, "release"); !errorIsFenced(err) {
		t.Fatal(err)
	}
	must(t, b.do(other, "own"))
	number := a.m.sealed.Key.String()
	must(t, a.bucket.Delete(t.Context(), number))
	must(t, a.bucket.Bucket.Put(t.Context(), number, a.bucket.lost))
	if _, err := Import(t.Context(), c.c, c.st, "", id); !isCorrupt(err) {
		t.Errorf("imported a mixture of both hosts: %v", err)
	}
}
