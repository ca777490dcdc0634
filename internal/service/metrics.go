package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// metrics are named after Velero's where they mean the same, so that dashboards and alerts only
// need another prefix. Labels are names of the configuration: never names of objects, nor anything
// that grows with the fleet.
type metrics struct {
	snapshots snapshotMetrics
	restores  runMetrics
	moves     runMetrics
	verifies  *verifyMetrics
	prunes    pruneMetrics
	copies    copyMetrics
	fence     fenceMetrics
	running   *prometheus.GaugeVec
	skipped   *prometheus.CounterVec
	wentBack  *prometheus.CounterVec
	overdue   *prometheus.GaugeVec
	newest    *prometheus.GaugeVec
	missing   *prometheus.GaugeVec
	sequence  *prometheus.GaugeVec
	panics    prometheus.Counter
}

type snapshotMetrics struct {
	attempts, successes, failures, warnings, wrote *prometheus.CounterVec
	lastSuccess, lastStatus, items, bytes          *prometheus.GaugeVec
	duration                                       *prometheus.HistogramVec
}

type pruneMetrics struct {
	failures, removed, freed, retained prometheus.Counter
	lastSuccess                        prometheus.Gauge
}

// fenceMetrics count what was fenced because another management cluster owns it.
type fenceMetrics struct {
	overlap, ignored, unprotected *prometheus.GaugeVec
	paused, failures              *prometheus.CounterVec
}

// fenced counts one search for workload clusters that a management cluster lost.
func (m *metrics) fenced(mgmt string, paused, failures, ignored int) {
	m.fence.paused.WithLabelValues(mgmt).Add(float64(paused))
	m.fence.failures.WithLabelValues(mgmt).Add(float64(failures))
	m.fence.ignored.WithLabelValues(mgmt).Set(float64(ignored))
}

// runMetrics count restores, or moves.
type runMetrics struct {
	attempts, successes, partial, failures prometheus.Counter
	duration                               prometheus.Histogram
}

// ScheduleKnown makes the series of a schedule, so that an alert sees a schedule that never ran. It
// implements schedule.Metrics.
func (m *metrics) ScheduleKnown(schedule string, lastSuccess time.Time) {
	s := m.snapshots
	for _, c := range []*prometheus.CounterVec{s.attempts, s.successes, s.failures, s.warnings,
		s.wrote, m.skipped, m.wentBack} {
		c.WithLabelValues(schedule)
	}
	s.lastSuccess.WithLabelValues(schedule)
	s.duration.WithLabelValues(schedule)
	m.overdue.WithLabelValues(schedule)
	if !lastSuccess.IsZero() {
		s.lastSuccess.WithLabelValues(schedule).Set(float64(lastSuccess.Unix()))
	}
}

// RunSkipped implements schedule.Metrics.
func (m *metrics) RunSkipped(schedule string) { m.skipped.WithLabelValues(schedule).Inc() }

// Overdue implements schedule.Metrics.
func (m *metrics) Overdue(schedule string, by time.Duration) {
	m.overdue.WithLabelValues(schedule).Set(by.Seconds())
}

// NewestStored implements schedule.Metrics.
func (m *metrics) NewestStored(schedule string, taken time.Time) {
	at := 0.0
	if !taken.IsZero() {
		at = float64(taken.Unix())
	}
	m.newest.WithLabelValues(schedule).Set(at)
}

// ClockWentBack implements schedule.Metrics.
func (m *metrics) ClockWentBack(schedule string, lastSuccess time.Time) {
	m.wentBack.WithLabelValues(schedule).Inc()
	if !lastSuccess.IsZero() {
		m.snapshots.lastSuccess.WithLabelValues(schedule).Set(float64(lastSuccess.Unix()))
	}
}

func (m *metrics) snapshotEnded(schedule string, began time.Time, took time.Duration,
	r *snapshot.Result, err error) {
	s := m.snapshots
	s.duration.WithLabelValues(schedule).Observe(took.Seconds())
	if err != nil || r == nil {
		m.snapshotFailed(schedule)
		return
	}
	s.successes.WithLabelValues(schedule).Inc()
	s.lastStatus.WithLabelValues(schedule).Set(1)
	s.lastSuccess.WithLabelValues(schedule).Set(float64(began.Unix()))
	s.items.WithLabelValues(schedule).Set(float64(r.Counts.Objects))
	s.bytes.WithLabelValues(schedule).Set(float64(r.Bytes))
	s.wrote.WithLabelValues(schedule).Add(float64(r.Wrote))
	if r.Counts.Missing > 0 || r.Counts.NotInCut > 0 {
		s.warnings.WithLabelValues(schedule).Inc()
	}
}

// snapshotsMissing counts the snapshots of a source that this host knows and a location lacks.
func (m *metrics) snapshotsMissing(location, source string, n int) {
	m.missing.WithLabelValues(location, source).Set(float64(n))
}

// snapshotTaken publishes the number and the hash of the last snapshot of a source outside of the
// bucket.
func (m *metrics) snapshotTaken(location, source string, last store.Signed) {
	m.sequence.DeletePartialMatch(prometheus.Labels{"location": location, "source": source})
	m.sequence.WithLabelValues(location, source, last.SHA256).Set(float64(last.Sequence))
}

func (m *metrics) snapshotFailed(schedule string) {
	m.snapshots.failures.WithLabelValues(schedule).Inc()
	m.snapshots.lastStatus.WithLabelValues(schedule).Set(0)
}

// pruned counts a prune; r is nil when none began.
func (m *metrics) pruned(r *retention.Result, err error) {
	if r != nil {
		m.prunes.removed.Add(float64(len(r.Removed)))
		m.prunes.freed.Add(float64(r.Freed.Bytes))
		m.prunes.retained.Add(float64(r.Retained.Keys))
	}
	if err != nil {
		m.prunes.failures.Inc()
		return
	}
	m.prunes.lastSuccess.SetToCurrentTime()
}

// runBegan counts the beginning of a run of an operation.
func (m *metrics) runBegan(kind catalog.Kind) {
	m.running.WithLabelValues(string(kind)).Inc()
	if r := m.of(kind); r != nil {
		r.attempts.Inc()
	}
}

func (m *metrics) runEnded(op catalog.Operation, state catalog.State, took time.Duration) {
	m.running.WithLabelValues(string(op.Kind)).Dec()
	r := m.of(op.Kind)
	if r == nil {
		return
	}
	r.duration.Observe(took.Seconds())
	switch {
	case state == catalog.Succeeded || state == catalog.RolledBack:
		r.successes.Inc()
	case op.Changed:
		r.partial.Inc()
	default:
		r.failures.Inc()
	}
}

func (m *metrics) of(kind catalog.Kind) *runMetrics {
	switch kind {
	case catalog.KindRestore:
		return &m.restores
	case catalog.KindMove:
		return &m.moves
	default: // snapshots, verifies and prunes are counted where they end
		return nil
	}
}
