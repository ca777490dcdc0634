package service

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestOnlyAReleasedUnitIsAccepted: and only while the operation is not running and has not ended
// for good. The journal then names the unit, and the history has one finding.
func TestOnlyAReleasedUnitIsAccepted(t *testing.T) {
	cfg := Config{CatalogFile: t.TempDir() + "/c.db"}
	s := New(cfg)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	setState := func(state catalog.State) {
		t.Helper()
		if _, err := c.SetState(t.Context(), op.ID, state, catalog.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	setState(catalog.Running)
	j := c.Journal(op.ID, catalog.JournalOptions{})
	for unit, phases := range map[string][]string{"n/copied": {"owners"}, "n/failed": {"release"},
		"n/passed": {"release", "post-flight"}} {
		for _, phase := range phases {
			if err := j.Do(t.Context(), catalog.Step{Unit: unit, Phase: phase},
				func(_ context.Context, h *catalog.StepHandle) error {
					return h.SetUnit(catalog.UnitReleased)
				}); err != nil {
				t.Fatal(err)
			}
		}
	}
	accept := func(unit string) error {
		_, err := (&operationService{s: s}).AcceptUnit(t.Context(),
			&mgmtv1.AcceptUnitRequest{Id: string(op.ID), Unit: unit})
		return err
	}
	if err := accept("n/failed"); classify(err).Reason != ReasonLocked {
		t.Errorf("while it runs: %v", err)
	}
	setState(catalog.Failed)
	for _, unit := range []string{"n/copied", "n/unknown"} {
		if err := accept(unit); classify(err).Reason != ReasonUsage {
			t.Errorf("%s: %v", unit, err)
		}
	}
	for _, unit := range []string{"n/failed", "n/failed", "n/passed"} { // observing may fail later
		if err := accept(unit); err != nil {
			t.Fatal(err)
		}
	}
	accepted, err := j.Accepted(t.Context())
	if err != nil || !slices.Equal(accepted, []string{"n/failed", "n/passed"}) {
		t.Errorf("accepted are %v, %v", accepted, err)
	}
	findings := 0
	for e, err := range c.Watch(t.Context(), op.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == catalog.EventFinding && e.Unit == "n/failed" {
			findings++
		}
	}
	if findings != 1 {
		t.Errorf("%d findings, want 1", findings)
	}
	setState(catalog.Running)
	setState(catalog.Succeeded)
	if err := accept("n/failed"); classify(err).Reason != ReasonUsage {
		t.Errorf("after its end: %v", err)
	}
}

// TestAcceptIsRefusedWhereAnotherHostHasGoneOn: the next resume here would take the journal of that
// host, and lose what was accepted.
func TestAcceptIsRefusedWhereAnotherHostHasGoneOn(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, _ := m.host()
	id := m.mirrored(a, c, func(ctx context.Context, j *catalog.Journal) error {
		return errors.Join(j.SetUnit(ctx, "team-a/web", catalog.UnitReleased, ""),
			doStep(ctx, j, "release"), errors.New("it is not well"))
	})
	accept := func(s *Server) error {
		_, err := (&operationService{s: s}).AcceptUnit(t.Context(),
			&mgmtv1.AcceptUnitRequest{Id: string(id), Unit: "team-a/web"})
		return err
	}
	if err := accept(a); err != nil {
		t.Fatal(err)
	}
	b, _ := m.takeOver(id)
	if err := accept(b); err != nil {
		t.Error(err)
	}
	if err := accept(a); !as[*mirror.FencedError](err) {
		t.Errorf("the first host: %v", err)
	}
}
