package service

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// failedVerify is the result of a verify that came to none.
const failedVerify = "failed"

// verifyMetrics count verifies, by schedule and by request alike. The series of a source are about
// the newest snapshots of all of its scopes; a verify of one of them says nothing of the others.
type verifyMetrics struct {
	total                 *prometheus.CounterVec
	lastSuccess, findings *prometheus.GaugeVec
	// Of what any snapshot of a source names.
	cycleCompleted, cycleDamaged *prometheus.GaugeVec

	mu      sync.Mutex
	sources map[verifySeries]*verifiedScopes
}

// verifySeries are the labels of the series of a source.
type verifySeries struct {
	location, source string
	level            store.VerifyLevel
}

// verifiedScopes is what verifies last found of the newest snapshots of a source.
type verifiedScopes struct {
	// incomplete: the schedule verifies all scopes, and has not done so since this process began.
	incomplete bool
	scopes     map[string]store.Verification
}

// ended counts a verify.
func (m *verifyMetrics) ended(c store.Verification) {
	result := string(c.Outcome)
	if result == "" {
		result = failedVerify
	}
	m.total.WithLabelValues(result).Inc()
}

// known makes the series of a source that is verified by schedule, and sets its time unless that is
// zero.
func (m *verifyMetrics) known(s verifySeries, lastSuccess time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sources[s] == nil {
		m.of(s).incomplete = true
	}
	m.succeeded(s, lastSuccess)
}

// cycle sets the series of the cycle of a source.
func (m *verifyMetrics) cycle(location, source string, c catalog.VerifyCycle) {
	completed := m.cycleCompleted.WithLabelValues(location, source)
	if completed.Set(0); !c.Completed.IsZero() {
		completed.Set(float64(c.Completed.Unix()))
	}
	m.cycleDamaged.WithLabelValues(location, source).Set(float64(c.Count))
}

// all sets the series of a source by a verify of its newest snapshots of all scopes.
func (m *verifyMetrics) all(s verifySeries, scopes map[string]store.Verification) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.level == store.LevelFull {
		structure := s.structure()
		before := m.of(structure).scopes
		covered := map[string]store.Verification{}
		for scope, c := range scopes {
			if was, ok := before[scope]; c.Outcome == store.OutcomeOK {
				covered[scope] = asStructure(c)
			} else if ok {
				covered[scope] = was
			}
		}
		m.sources[structure] = &verifiedScopes{scopes: covered, incomplete: len(covered) < len(scopes)}
		m.publish(structure)
	}
	m.sources[s] = &verifiedScopes{scopes: scopes}
	m.publish(s)
}

// one sets what is known of one scope of a source.
func (m *verifyMetrics) one(s verifySeries, scope string, c store.Verification) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(s).scopes[scope] = c
	m.publish(s)
	if s.level == store.LevelFull && c.Outcome == store.OutcomeOK {
		m.of(s.structure()).scopes[scope] = asStructure(c)
		m.publish(s.structure())
	}
}

// of returns what is known of a source.
func (m *verifyMetrics) of(s verifySeries) *verifiedScopes {
	if m.sources[s] == nil {
		m.sources[s] = &verifiedScopes{scopes: map[string]store.Verification{}}
	}
	return m.sources[s]
}

// structure returns the series that a good verify of everything counts for, too.
func (s verifySeries) structure() verifySeries {
	s.level = store.LevelStructure
	return s
}

// asStructure is the result of a verify of the structure that is part of a good one.
func asStructure(c store.Verification) store.Verification {
	c.Level, c.Findings = store.LevelStructure, 0
	return c
}

// publish sets the series from what is known. The source is good when each scope is, and as of the
// oldest result.
func (m *verifyMetrics) publish(s verifySeries) {
	known := m.sources[s]
	if known.incomplete {
		return
	}
	var findings int64
	good, oldest := true, time.Time{}
	for _, c := range known.scopes {
		findings += c.Findings
		good = good && c.Outcome == store.OutcomeOK
		if oldest.IsZero() || c.Time.Before(oldest) {
			oldest = c.Time
		}
	}
	m.findings.WithLabelValues(s.location, s.source, string(s.level)).Set(float64(findings))
	if good {
		m.succeeded(s, oldest)
	}
}

// succeeded makes the series, and sets its time unless that is zero.
func (m *verifyMetrics) succeeded(s verifySeries, at time.Time) {
	g := m.lastSuccess.WithLabelValues(s.location, s.source, string(s.level))
	if !at.IsZero() {
		g.Set(float64(at.Unix()))
	}
}
