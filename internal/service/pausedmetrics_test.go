package service

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/catalog"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestAPausedUnitIsAMetricUntilItsOperationIsGivenUp: also when the move has stopped. So long it is
// shown with the operation, too.
func TestAPausedUnitIsAMetricUntilItsOperationIsGivenUp(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := New(Config{CatalogFile: filepath.Join(t.TempDir(), "catalog.db"), Metrics: registry})
	t.Cleanup(func() { _ = s.Close() })
	series := func() (workloads []string) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "mgmtd_unit_paused_seconds" {
				continue
			}
			for _, m := range f.GetMetric() {
				workloads = append(workloads, m.GetLabel()[1].GetValue())
			}
		}
		return workloads
	}
	if got := series(); len(got) > 0 {
		t.Errorf("without a catalog: %v", got)
	}
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindMove})
	if err == nil {
		_, err = c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{})
	}
	if err == nil {
		err = c.Journal(op.ID, catalog.JournalOptions{}).Do(t.Context(),
			catalog.Step{Unit: "team-a/web", Phase: "pause"},
			func(context.Context, *catalog.StepHandle) error { return nil })
	}
	if err == nil {
		_, err = c.SetState(t.Context(), op.ID, catalog.Stopped,
			catalog.Outcome{Cause: catalog.StopRequested})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := series(); len(got) != 1 || got[0] != "team-a/web" {
		t.Errorf("paused: %v", got)
	}
	shown := func() map[string]*timestamppb.Timestamp {
		t.Helper()
		resp, err := (&operationService{s: s}).GetOperation(t.Context(),
			&mgmtv1.GetOperationRequest{Id: string(op.ID)})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetOperation().GetPausedSince()
	}
	if got := shown(); len(got) != 1 || got["team-a/web"].AsTime().IsZero() {
		t.Errorf("shown as paused: %v", got)
	}
	stop, err := (&operationService{s: s}).StopOperation(t.Context(),
		&mgmtv1.StopOperationRequest{Id: string(op.ID)})
	if got := stop.GetOperation().GetPausedSince(); err != nil || len(got) != 1 {
		t.Errorf("the answer to a stop shows as paused: %v, %v", got, err)
	}
	if _, err := c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetState(t.Context(), op.ID, catalog.Stopped,
		catalog.Outcome{Cause: catalog.StopElsewhere}); err != nil {
		t.Fatal(err)
	}
	if got := series(); len(got) > 0 {
		t.Errorf("another host has it: %v", got)
	}
	if got := shown(); len(got) > 0 {
		t.Errorf("another host has taken it over, and shown as paused are: %v", got)
	}
	state, err := c.Mirror(t.Context(), op.ID)
	if err == nil {
		state.Imported = time.Now()
		err = c.SetMirror(t.Context(), op.ID, state)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(); len(got) != 1 { // that host may be lost
		t.Errorf("it was imported from another host, and shown as paused are: %v", got)
	}
	if _, err := c.GiveUp(t.Context(), op.ID, "given up"); err != nil {
		t.Fatal(err)
	}
	if got := series(); len(got) > 0 {
		t.Errorf("given up: %v", got)
	}
	if got := shown(); len(got) > 0 {
		t.Errorf("given up, and shown as paused: %v", got)
	}
}
