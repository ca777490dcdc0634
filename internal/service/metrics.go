package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// metrics are named after Velero's where they mean the same, so that dashboards and alerts need
// another prefix and nothing else. Labels hold names of the configuration only: no names of
// objects, and nothing that grows with the fleet.
type metrics struct {
	snapshots snapshotMetrics
	restores  runMetrics
	moves     runMetrics
	verifies  verifyMetrics
	prunes    pruneMetrics
	running   *prometheus.GaugeVec
	skipped   *prometheus.CounterVec
	overdue   *prometheus.GaugeVec
}

type snapshotMetrics struct {
	attempts, successes, failures, warnings, wrote *prometheus.CounterVec
	lastSuccess, lastStatus, items, bytes          *prometheus.GaugeVec
	duration                                       *prometheus.HistogramVec
}

// verifyMetrics tell of verifies: by schedule and by request alike.
type verifyMetrics struct {
	total                 *prometheus.CounterVec
	lastSuccess, findings *prometheus.GaugeVec
}

type pruneMetrics struct {
	failures, removed, freed, retained prometheus.Counter
	lastSuccess                        prometheus.Gauge
}

// runMetrics count restores or moves.
type runMetrics struct {
	attempts, successes, partial, failures prometheus.Counter
	duration                               prometheus.Histogram
}

const (
	metricPrefix   = "mgmtd"
	scheduleLabel  = "schedule"
	operationLabel = "operation"
	locationLabel  = "location"
	sourceLabel    = "source"
	levelLabel     = "level"
)

// seconds are the buckets of durations: a snapshot takes seconds, a restore of a fleet minutes, a
// move with its waits perhaps hours.
var seconds = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400}

func newMetrics(r prometheus.Registerer, version string) *metrics { //nolint:funlen // a table of all metrics
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricPrefix,
			Name: name, Help: help}, labels))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: metricPrefix,
			Name: name, Help: help}, labels))
	}
	run := func(what string) runMetrics {
		return runMetrics{
			attempts: counter(what+"_attempt_total", "Runs of a "+what+
				" that began, resumed ones too.").WithLabelValues(),
			successes: counter(what+"_success_total", "Runs of a "+what+
				" that ended with everything done.").WithLabelValues(),
			partial: counter(what+"_partial_failure_total", "Runs of a "+what+
				" that changed something and left work.").WithLabelValues(),
			failures: counter(what+"_failed_total", "Runs of a "+what+
				" that ended without a change.").WithLabelValues(),
			duration: register(r, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: metricPrefix,
				Name: what + "_duration_seconds", Help: "How long a run of a " + what + " took.",
				Buckets: seconds})),
		}
	}
	m := &metrics{
		snapshots: snapshotMetrics{
			attempts:  counter("backup_attempt_total", "Snapshots that were begun.", scheduleLabel),
			successes: counter("backup_success_total", "Snapshots that were taken.", scheduleLabel),
			failures: counter("backup_failure_total", "Snapshots that failed, were stopped or "+
				"could not begin.", scheduleLabel),
			warnings: counter("backup_warning_total", "Snapshots that were taken and lack something "+
				"that is needed, or a kind read at another resourceVersion.", scheduleLabel),
			lastSuccess: gauge("backup_last_successful_timestamp", "When the last snapshot that "+
				"succeeded was begun, as Unix time in seconds.", scheduleLabel),
			lastStatus: gauge("backup_last_status",
				"1 when the last snapshot succeeded, 0 when it did not.", scheduleLabel),
			items: gauge("backup_items_total", "Objects in the last snapshot.", scheduleLabel),
			bytes: gauge("backup_tarball_size_bytes", "Bytes in the store that the last "+
				"snapshot names.", scheduleLabel),
			wrote: counter("backup_written_bytes_total", "Bytes that snapshots wrote to the store.",
				scheduleLabel),
			duration: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Namespace: metricPrefix, Name: "backup_duration_seconds",
				Help: "How long a snapshot took.", Buckets: seconds}, []string{scheduleLabel})),
		},
		verifies: verifyMetrics{
			total: counter("verify_total", "Verifies, by what they came to: ok, damaged, or failed "+
				"when they did not come to an end.", "result"),
			lastSuccess: gauge("verify_last_success_timestamp_seconds",
				"When a verify last found the newest snapshot of a source good, as Unix time in seconds.",
				locationLabel, sourceLabel, levelLabel),
			findings: gauge("verify_findings", "Findings of the last verify of the newest snapshot "+
				"of a source.", locationLabel, sourceLabel, levelLabel),
		},
		restores: run("restore"),
		moves:    run("move"),
		prunes: pruneMetrics{
			failures: counter("prune_failure_total", "Prunes that failed, were stopped, had to leave "+
				"content or could not begin.").WithLabelValues(),
			removed: counter("prune_removed_snapshots_total", "Snapshots that prunes, and "+
				"deletions, removed.").WithLabelValues(),
			freed: counter("prune_freed_bytes_total", "Bytes that prunes, and deletions, removed "+
				"from the store.").WithLabelValues(),
			retained: counter("prune_retained_keys_total", "Keys that the storage did not let prunes "+
				"remove yet; each time it was tried.").WithLabelValues(),
			lastSuccess: gauge("prune_last_successful_timestamp", "When the last prune that succeeded "+
				"ended, as Unix time in seconds.").WithLabelValues(),
		},
		running: gauge("operations_running", "Operations at work now.", operationLabel),
		skipped: counter("schedule_skipped_total", "Runs that were due while the one before was going.",
			scheduleLabel),
		overdue: gauge("schedule_overdue_seconds", "How long ago a run was due that has not "+
			"succeeded; 0 when none is.", scheduleLabel),
	}
	for _, kind := range []catalog.Kind{catalog.KindSnapshot, catalog.KindRestore, catalog.KindMove,
		catalog.KindVerify, catalog.KindPrune} {
		m.running.WithLabelValues(string(kind)).Set(0)
	}
	for _, result := range []string{string(store.OutcomeOK), string(store.OutcomeDamaged),
		failedVerify} {
		m.verifies.total.WithLabelValues(result)
	}
	gauge("build_info", "Always 1; the version is in the label.", "version").WithLabelValues(
		version).Set(1)
	return m
}

// register makes a collector known where there is a registry: mgmtctl has none.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r != nil {
		r.MustRegister(c)
	}
	return c
}

// ScheduleKnown makes the series of a schedule, so that an alert sees a schedule that never ran. It
// implements schedule.Metrics.
func (m *metrics) ScheduleKnown(schedule string, lastSuccess time.Time) {
	s := m.snapshots
	for _, c := range []*prometheus.CounterVec{s.attempts, s.successes, s.failures, s.warnings,
		s.wrote, m.skipped} {
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

func (m *metrics) snapshotFailed(schedule string) {
	m.snapshots.failures.WithLabelValues(schedule).Inc()
	m.snapshots.lastStatus.WithLabelValues(schedule).Set(0)
}

// failedVerify is the result of a verify that did not come to one.
const failedVerify = "failed"

// verifyEnded counts a verify; newest says that it was of the newest snapshot. One that looked at
// everything looked at the structure, too.
func (m *metrics) verifyEnded(location, source string, newest bool, c store.Verification) {
	if c.Outcome == "" {
		m.verifies.total.WithLabelValues(failedVerify).Inc()
		return
	}
	m.verifies.total.WithLabelValues(string(c.Outcome)).Inc()
	if !newest {
		return
	}
	m.verifies.findings.WithLabelValues(location, source, string(c.Level)).Set(float64(c.Findings))
	if c.Outcome != store.OutcomeOK {
		return
	}
	m.verifySucceeded(location, source, c.Level, c.Time)
	if c.Level == store.LevelFull {
		m.verifySucceeded(location, source, store.LevelStructure, c.Time)
		m.verifies.findings.WithLabelValues(location, source, string(store.LevelStructure)).Set(0)
	}
}

// verifySucceeded makes the series known, and its time where it is not zero.
func (m *metrics) verifySucceeded(location, source string, level store.VerifyLevel, at time.Time) {
	g := m.verifies.lastSuccess.WithLabelValues(location, source, string(level))
	if !at.IsZero() {
		g.Set(float64(at.Unix()))
	}
}

// pruned counts a prune; r is nil when it did not begin.
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

// runBegan and runEnded count every operation.
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
