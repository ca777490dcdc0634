package service

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// TestScheduledVerifyVerifiesTheNewestSnapshotOfEachScope: a damaged snapshot of a team is found
// although the newest whole one is good, and its source does not count as good.
func TestScheduledVerifyVerifiesTheNewestSnapshotOfEachScope(t *testing.T) {
	root := t.TempDir()
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root), Plain: true,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	putScoped(t, st, 1, "team-a")
	team, other := putScoped(t, st, 2, "team-a"), putScoped(t, st, 3, "team-b")
	whole := putScoped(t, st, 4)
	s := verifyServer(t, root)
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	verify := func() store.VerifyOutcome {
		t.Helper()
		run, err := (&scheduledRuns{s: s, catalog: c}).BeginVerify(t.Context(),
			schedule.VerifyRequest{Location: "disk", Source: verifySource, Level: store.LevelStructure})
		if err != nil {
			t.Fatal(err)
		}
		outcome, err := run.Wait()
		if (outcome == store.OutcomeOK) != (err == nil) {
			t.Error(outcome, err)
		}
		return outcome
	}
	series := s.metrics.verifies
	if got := verify(); got != store.OutcomeOK {
		t.Errorf("outcome %q of good snapshots", got)
	}
	ops, err := c.Operations(t.Context(), catalog.OperationFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var verified []string
	for _, op := range ops {
		if op.SnapshotID != "" { // a pass over all snapshots has none
			verified = append(verified, op.SnapshotID)
		}
	}
	want := []string{string(whole.ID), string(team.ID), string(other.ID)}
	slices.Sort(want)
	if slices.Sort(verified); !slices.Equal(verified, want) {
		t.Errorf("verified %v, want %v", verified, want)
	}
	success := series.lastSuccess.WithLabelValues("disk", "prod", "structure")
	if got := testutil.ToFloat64(success); got < 1.7e9 {
		t.Errorf("last success %v", got)
	}
	success.Set(0)
	tree, err := st.GetTree(t.Context(), team.Tree)
	if err == nil {
		err = os.Remove(root + "/" + tree.Packs[0].String())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := verify(); got != store.OutcomeDamaged {
		t.Errorf("outcome %q, want damaged", got)
	}
	if findings := testutil.ToFloat64(series.findings.WithLabelValues("disk", "prod",
		"structure")); findings != 1 || testutil.ToFloat64(success) != 0 {
		t.Errorf("%v findings, last success %v", findings, testutil.ToFloat64(success))
	}
}

// verifyMetricsOf are the findings and the time of the last success of the source of a test at a
// level.
func verifyMetricsOf(s *Server, level store.VerifyLevel) (findings float64, success time.Time) {
	series := s.metrics.verifies
	at := testutil.ToFloat64(series.lastSuccess.WithLabelValues("disk", "prod", string(level)))
	return testutil.ToFloat64(series.findings.WithLabelValues("disk", "prod", string(level))),
		time.Unix(int64(at), 0)
}

// TestAVerifyOfOneSnapshotSaysNothingOfOtherScopes: neither that they are good, when the schedule
// found one damaged or has found nothing yet, nor that they are damaged.
func TestAVerifyOfOneSnapshotSaysNothingOfOtherScopes(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry(), "test").verifies
	s := &Server{metrics: &metrics{verifies: m}}
	at := func(n int64) time.Time { return time.Unix(1e9+n, 0) }
	structure := verifySeries{"disk", "prod", store.LevelStructure}
	full := verifySeries{"disk", "prod", store.LevelFull}
	result := func(n, findings int64) store.Verification {
		v := store.Verification{Time: at(n), Outcome: store.OutcomeOK, Findings: findings}
		if findings > 0 {
			v.Outcome = store.OutcomeDamaged
		}
		return v
	}
	type scopes = map[string]store.Verification
	for _, step := range []struct {
		what     string
		do       func()
		level    store.VerifyLevel
		findings float64
		success  time.Time
	}{
		{"the schedule knows the source", func() { m.known(structure, at(1)) }, "structure", 0, at(1)},
		{"one is verified before the schedule did", func() { m.one(structure, "whole", result(2, 3)) },
			"structure", 0, at(1)},
		{"and is good", func() { m.one(structure, "whole", result(3, 0)) }, "structure", 0, at(1)},
		{"the schedule finds a team damaged", func() {
			m.all(structure, scopes{"whole": result(4, 0), "team": result(5, 2)})
		}, "structure", 2, at(1)},
		{"the whole one is good", func() { m.one(structure, "whole", result(6, 0)) }, "structure", 2, at(1)},
		{"or damaged", func() { m.one(structure, "whole", result(7, 1)) }, "structure", 3, at(1)},
		{"and good again", func() { m.one(structure, "whole", result(8, 0)) }, "structure", 2, at(1)},
		{"the team is good", func() { m.one(structure, "team", result(9, 0)) }, "structure", 0, at(8)},
		{"the schedule finds a scope gone", func() { m.all(structure, scopes{"whole": result(10, 0)}) },
			"structure", 0, at(10)},
		{"nobody schedules full", func() { m.one(full, "whole", result(11, 0)) }, "full", 0, at(11)},
		{"which counts for the structure", func() {}, "structure", 0, at(11)},
		{"a full one finds damage", func() { m.one(full, "whole", result(12, 4)) }, "full", 4, at(11)},
		{"which says nothing of the structure", func() {
			m.lastSuccess.WithLabelValues("disk", "prod", "structure").Set(0)
			m.one(structure, "new", result(12, 0))
		}, "structure", 0, at(11)},
		{"a full pass", func() { m.all(full, scopes{"whole": result(13, 0), "edge": result(14, 1)}) },
			"full", 1, at(11)},
		{"of which only a part is known to the structure", func() {}, "structure", 0, at(11)},
		{"a good full pass", func() { m.all(full, scopes{"whole": result(15, 0), "edge": result(16, 0)}) },
			"full", 0, at(15)},
		{"for the structure, too", func() {}, "structure", 0, at(15)},
	} {
		step.do()
		findings, success := verifyMetricsOf(s, step.level)
		if findings != step.findings || !success.Equal(step.success) {
			t.Errorf("%s: %v findings, success at %d; want %v, %d", step.what, findings,
				success.Unix()-1e9, step.findings, step.success.Unix()-1e9)
		}
	}
}

// TestARequestedVerifyLeavesTheSeriesOfItsSource: only that of the newest snapshot of a scope
// counts for it.
func TestARequestedVerifyLeavesTheSeriesOfItsSource(t *testing.T) {
	root := t.TempDir()
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root), Plain: true,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	older := putScoped(t, st, 1)
	team := putScoped(t, st, 2, "team-a")
	putScoped(t, st, 3)
	s := verifyServer(t, root)
	for _, e := range []store.Signed{older, team} {
		tree, err := st.GetTree(t.Context(), e.Tree)
		if err == nil {
			err = os.Remove(root + "/" + tree.Packs[0].String())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		ref, scope string
		findings   float64
	}{{string(older.ID), "", 0}, {latest, "", 0}, {"", team.ScopeID(), 1}, {latest, "", 1},
		{string(older.ID), "", 1}} {
		run, err := s.beginVerify(t.Context(), verifyRequest{location: "disk",
			of: snapshotRef{source: verifySource, ref: tt.ref, scope: tt.scope}, level: store.LevelStructure})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = run.Wait()
		if findings, _ := verifyMetricsOf(s, store.LevelStructure); findings != tt.findings {
			t.Errorf("%+v: %v findings", tt, findings)
		}
	}
}
