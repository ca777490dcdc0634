package service

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

const (
	metricPrefix   = "mgmtd"
	scheduleLabel  = "schedule"
	operationLabel = "operation"
	locationLabel  = "location"
	sourceLabel    = "source"
	mgmtLabel      = "management_cluster"
	levelLabel     = "level"
)

// seconds are the buckets of durations: a snapshot takes seconds, a restore of a fleet minutes, a
// move with its waits perhaps hours.
var seconds = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400}

// registry makes collectors with our prefix, and registers them where there is a registry: mgmtctl
// has none.
type registry struct{ prometheus.Registerer }

func (r registry) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return register(r.Registerer, prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricPrefix, Name: name, Help: help}, labels))
}

func (r registry) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(r.Registerer, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: metricPrefix, Name: name, Help: help}, labels))
}

func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r != nil {
		r.MustRegister(c)
	}
	return c
}

func newMetrics(registerer prometheus.Registerer, version string) *metrics {
	r := registry{registerer}
	m := &metrics{
		snapshots: newSnapshotMetrics(r), verifies: newVerifyMetrics(r), prunes: newPruneMetrics(r),
		copies: newCopyMetrics(r), fence: newFenceMetrics(r),
		restores: newRunMetrics(r, "restore"), moves: newRunMetrics(r, "move"),
		running: r.gauge("operations_running", "Operations at work now.", operationLabel),
		skipped: r.counter("schedule_skipped_total",
			"Runs that were due while the run before was not at its end.", scheduleLabel),
		wentBack: r.counter("schedule_clock_went_back_total", "How often times of the schedule were "+
			"ahead of the clock and were corrected.", scheduleLabel),
		overdue: r.gauge("schedule_overdue_seconds", "How long ago a run was due of which no "+
			"later snapshot is in the store; 0 when none is.", scheduleLabel),
		newest: r.gauge("schedule_newest_snapshot_timestamp_seconds", "When the newest snapshot of "+
			"the schedule was taken that is in the store, as Unix time in seconds; 0 when there is none.",
			scheduleLabel),
		missing: r.gauge("snapshot_missing", "Snapshots that this host knows and the store does not "+
			"have, without a trusted record that they were removed.", "location", "source"),
		sequence: r.gauge("snapshot_sequence", "Number of the last snapshot of a source; the label "+
			"sha256 is of its envelope. A restore can ask for at least this number.", "location", "source",
			"sha256"),
		panics: r.counter("panics_total", "Requests and operations that a bug ended.").
			WithLabelValues(),
	}
	for _, kind := range []catalog.Kind{catalog.KindSnapshot, catalog.KindRestore, catalog.KindMove,
		catalog.KindVerify, catalog.KindPrune, catalog.KindCopy} {
		m.running.WithLabelValues(string(kind)).Set(0)
	}
	r.gauge("build_info", "Always 1; the version is in the label.", "version").WithLabelValues(
		version).Set(1)
	return m
}

func newSnapshotMetrics(r registry) snapshotMetrics {
	return snapshotMetrics{
		attempts:  r.counter("backup_attempt_total", "Snapshots that were begun.", scheduleLabel),
		successes: r.counter("backup_success_total", "Snapshots that were taken.", scheduleLabel),
		failures: r.counter("backup_failure_total", "Snapshots that failed, were stopped or "+
			"could not begin.", scheduleLabel),
		warnings: r.counter("backup_warning_total", "Snapshots that were taken and lack something "+
			"that is needed, or a kind read at another resourceVersion.", scheduleLabel),
		lastSuccess: r.gauge("backup_last_successful_timestamp", "When the last snapshot that "+
			"succeeded was begun, as Unix time in seconds.", scheduleLabel),
		lastStatus: r.gauge("backup_last_status",
			"1 when the last snapshot succeeded, 0 when it did not.", scheduleLabel),
		items: r.gauge("backup_items_total", "Objects in the last snapshot.", scheduleLabel),
		bytes: r.gauge("backup_tarball_size_bytes", "Bytes in the store that the last "+
			"snapshot names.", scheduleLabel),
		wrote: r.counter("backup_written_bytes_total", "Bytes that snapshots wrote to the store.",
			scheduleLabel),
		duration: register(r.Registerer, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricPrefix, Name: "backup_duration_seconds",
			Help: "How long a snapshot took.", Buckets: seconds}, []string{scheduleLabel})),
	}
}

func newVerifyMetrics(r registry) *verifyMetrics {
	m := &verifyMetrics{sources: map[verifySeries]*verifiedScopes{},
		total: r.counter("verify_total", "Verifies, by what they came to: ok, damaged, or failed "+
			"when they did not come to an end.", "result"),
		lastSuccess: r.gauge("verify_last_success_timestamp_seconds",
			"When a verify last found the newest snapshots of a source good, as Unix time in seconds.",
			locationLabel, sourceLabel, levelLabel),
		findings: r.gauge("verify_findings", "Findings of the last verifies of the newest snapshots "+
			"of a source.", locationLabel, sourceLabel, levelLabel),
		cycleCompleted: r.gauge("verify_cycle_completed_timestamp_seconds", "When verifies by "+
			"schedule had last read everything that any snapshot of a source names, as Unix time in "+
			"seconds; 0 when they have not yet.", locationLabel, sourceLabel),
		cycleDamaged: r.gauge("verify_cycle_damaged_keys", "Keys that snapshots of a source name and "+
			"that are damaged or missing, and envelopes that cannot be read, as of the last verify by "+
			"schedule.", locationLabel, sourceLabel),
	}
	for _, result := range []string{string(store.OutcomeOK), string(store.OutcomeDamaged),
		failedVerify} {
		m.total.WithLabelValues(result)
	}
	return m
}

func newFenceMetrics(r registry) fenceMetrics {
	return fenceMetrics{
		overlap: r.gauge("fence_overlap_seconds", "How long a management cluster that came back had "+
			"workload clusters at work that another one owns: from its first answer to the last pause, "+
			"the last time.", mgmtLabel),
		ignored: r.gauge("fence_ignored_records", "Ownership records that name another management "+
			"cluster, or none, and are not obeyed: not trusted, damaged, or older than one seen before.",
			mgmtLabel),
		unprotected: r.gauge("fence_unprotected_clusters", "Workload clusters that were fenced, or "+
			"moved away by this daemon, and that the admission policy mgmtd-moved of the management "+
			"cluster does not protect: it, its ConfigMap or their key is missing.", mgmtLabel),
		paused: r.counter("fence_paused_total", "Workload clusters that were paused because another "+
			"management cluster owns them.", mgmtLabel),
		failures: r.counter("fence_failure_total", "Workload clusters that could not be paused "+
			"although another management cluster owns them; each time it was tried.", mgmtLabel),
	}
}

func newPruneMetrics(r registry) pruneMetrics {
	return pruneMetrics{
		failures: r.counter("prune_failure_total", "Prunes that failed, were stopped, had to leave "+
			"content or could not begin.").WithLabelValues(),
		removed: r.counter("prune_removed_snapshots_total", "Snapshots that prunes, and "+
			"deletions, removed.").WithLabelValues(),
		freed: r.counter("prune_freed_bytes_total", "Bytes that prunes, and deletions, removed "+
			"from the store.").WithLabelValues(),
		retained: r.counter("prune_retained_keys_total", "Keys that the storage did not let prunes "+
			"remove yet; each time it was tried.").WithLabelValues(),
		lastSuccess: r.gauge("prune_last_successful_timestamp", "When the last prune that succeeded "+
			"ended, as Unix time in seconds.").WithLabelValues(),
	}
}

func newRunMetrics(r registry, what string) runMetrics {
	return runMetrics{
		attempts: r.counter(what+"_attempt_total", "Runs of a "+what+
			" that began, resumed ones too.").WithLabelValues(),
		successes: r.counter(what+"_success_total", "Runs of a "+what+
			" that ended with everything done.").WithLabelValues(),
		partial: r.counter(what+"_partial_failure_total", "Runs of a "+what+
			" that changed something and left work.").WithLabelValues(),
		failures: r.counter(what+"_failed_total", "Runs of a "+what+
			" that ended without a change.").WithLabelValues(),
		duration: register(r.Registerer, prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricPrefix, Name: what + "_duration_seconds",
			Help: "How long a run of a " + what + " took.", Buckets: seconds})),
	}
}
