package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/move"
)

// pausedUnits reports how long moves have left workload clusters without a controller. It reads the
// catalog when it is asked, so that a move that stopped, or that an earlier daemon ran, is in it.
type pausedUnits struct {
	s    *Server
	desc *prometheus.Desc
}

var _ prometheus.Collector = pausedUnits{}

func newPausedUnits(s *Server) pausedUnits {
	return pausedUnits{s: s, desc: prometheus.NewDesc(metricPrefix+"_unit_paused_seconds",
		"How long a move has paused a workload cluster that it has neither released on the target nor "+
			"given back to the source.", []string{operationLabel, "workload"}, nil)}
}

// Describe implements prometheus.Collector.
func (p pausedUnits) Describe(to chan<- *prometheus.Desc) { to <- p.desc }

// Collect implements prometheus.Collector. Without a catalog, or with one that cannot be read,
// there is nothing to report.
func (p pausedUnits) Collect(to chan<- prometheus.Metric) {
	p.s.mu.Lock()
	c := p.s.catalog
	p.s.mu.Unlock()
	if c == nil {
		return
	}
	now := time.Now()
	ops, err := c.Operations(p.s.ctx, catalog.OperationFilter{Kinds: []catalog.Kind{catalog.KindMove},
		States: []catalog.State{catalog.Running, catalog.Stopped, catalog.Failed}})
	if err != nil {
		return
	}
	for _, op := range ops {
		if op.StopCause == catalog.StopElsewhere { // that host reports it
			continue
		}
		for unit, since := range pausedSince(p.s.ctx, c, op) {
			to <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue,
				max(now.Sub(since), 0).Seconds(), string(op.ID), unit)
		}
	}
}

// pausedSince returns since when the units of a move are paused; none of one that was given up, or
// that another host has taken over from this one: its journal ends where that one began.
func pausedSince(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
) map[string]time.Time {
	if op.Kind != catalog.KindMove || op.Settled() {
		return nil
	}
	if op.StopCause == catalog.StopElsewhere {
		imported, err := c.Journal(op.ID, catalog.JournalOptions{}).Imported(ctx)
		if err != nil || !imported {
			return nil
		}
	}
	since, err := move.PausedSince(ctx, c, op.ID)
	if err != nil {
		return nil
	}
	return since
}
