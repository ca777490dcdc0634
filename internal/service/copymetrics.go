package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mgmtd/mgmtd/internal/replicate"
)

// copyMetrics are about the copies of a store, by the names of both locations.
type copyMetrics struct {
	failures, wrote     *prometheus.CounterVec
	lastSuccess, behind *prometheus.GaugeVec
}

func newCopyMetrics(r registry) copyMetrics {
	const to = "copy"
	return copyMetrics{
		failures: r.counter("copy_failure_total", "Copies of a store that failed, were stopped, left "+
			"out snapshots or could not begin.", locationLabel, to),
		wrote: r.counter("copy_written_bytes_total", "Bytes that copies of a store wrote.",
			locationLabel, to),
		lastSuccess: r.gauge("copy_last_successful_timestamp", "When the last copy of a store that "+
			"succeeded was begun, as Unix time in seconds.", locationLabel, to),
		behind: r.gauge("copy_snapshots_behind", "Snapshots that should be in the copy of a store and "+
			"are not.", locationLabel, to),
	}
}

// copyKnown makes the series of a copy.
func (m *metrics) copyKnown(location, to string, lastSuccess time.Time) {
	m.copies.failures.WithLabelValues(location, to)
	m.copies.wrote.WithLabelValues(location, to)
	g := m.copies.lastSuccess.WithLabelValues(location, to)
	if !lastSuccess.IsZero() {
		g.Set(float64(lastSuccess.Unix()))
	}
}

// copied counts a copy that began at a time; r is nil when it could not begin.
func (m *metrics) copied(location, to string, began time.Time, r *replicate.Result, err error) {
	m.copyKnown(location, to, time.Time{})
	if r != nil {
		m.copies.wrote.WithLabelValues(location, to).Add(float64(r.Bytes))
		if r.Behind >= 0 {
			m.copies.behind.WithLabelValues(location, to).Set(float64(r.Behind))
		}
	}
	if err != nil {
		m.copies.failures.WithLabelValues(location, to).Inc()
		return
	}
	m.copies.lastSuccess.WithLabelValues(location, to).Set(float64(began.Unix()))
}

// changed reports to the copier that a location has something new. snapshots is how many of them
// are snapshots: these are behind in its copy.
func (s *Server) changed(location string, snapshots int) {
	if s.copier == nil {
		return
	}
	if l, err := s.location(location); err == nil && l.CopyTo != "" && snapshots > 0 {
		s.metrics.copies.behind.WithLabelValues(l.Name, l.CopyTo).Add(float64(snapshots))
	}
	s.copier.Changed(location)
}
