package main

import (
	"cmp"
	"errors"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mgmtd/mgmtd/internal/service/access"
	"github.com/mgmtd/mgmtd/internal/service/config"
)

// reloadMetrics say how the last reload went, as the metrics of Prometheus and Alertmanager do.
type reloadMetrics struct{ successful, at prometheus.Gauge }

// newReloadMetrics counts the start as a successful reload.
func newReloadMetrics(r prometheus.Registerer) *reloadMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "mgmtd_config_last_reload_" + name,
			Help: help})
		r.MustRegister(g)
		return g
	}
	m := &reloadMetrics{
		successful: gauge("successful", "Whether the last reload of the configuration succeeded."),
		at: gauge("success_timestamp_seconds", "When the configuration was last read successfully, as "+
			"Unix time in seconds."),
	}
	m.succeeded()
	return m
}

func (m *reloadMetrics) succeeded() {
	m.successful.Set(1)
	m.at.SetToCurrentTime()
}

// atOnce are the fields of the Config document that a reload applies. The listeners that they are
// about stay: their own fields need a restart.
var atOnce = []string{"spec.listen.groups", "spec.listen.clients", "spec.listen.certFile",
	"spec.listen.keyFile", "spec.listen.clientCAFile"}

// reload reads the configuration again, and applies what it can without a restart. A restart stops
// operations, so it is left to the operator.
func (m *Main) reload() {
	m.notify(reloading())
	defer m.notify("READY=1")
	next, err := config.Load(m.File)
	if err != nil {
		// After a rotation the lines would go on into a file that nobody keeps.
		if err := m.reopenAudit(""); err != nil {
			m.notReloaded("audit log not opened again", err)
		}
		m.notReloaded("configuration not reloaded: nothing has changed", err)
		return
	}
	for _, w := range next.Warnings {
		m.Log.Warn("configuration", "warning", w.String())
	}
	ended, err := m.apply(next)
	for _, field := range m.needRestart(next) {
		m.Log.Warn("changed field needs a restart of mgmtd", "field", field.String())
	}
	if err != nil {
		m.notReloaded("configuration not reloaded as a whole", err)
		return
	}
	m.reloads.succeeded()
	m.Log.Info("configuration reloaded", "endedConnections", ended)
}

// notReloaded logs an error for each thing that is wrong with a file, and for any other error.
func (m *Main) notReloaded(message string, err error) {
	m.reloads.successful.Set(0)
	if invalid, ok := errors.AsType[*config.InvalidError](err); ok {
		for _, p := range invalid.Problems {
			m.Log.Error(message, "file", m.File, "problem", p.String())
		}
		return
	}
	m.Log.Error(message, "error", err)
}

// apply applies a configuration. What fails stays as it was, and prevents nothing else: a role that
// was taken away is gone in any case. It returns how many connections it ended.
func (m *Main) apply(next *config.Config) (ended int, err error) {
	ended = m.setRules(rulesOf(next))
	if m.Config.Listen.Unix != "" {
		err = openSocketTo(m.Config.Listen.Unix, next.Listen.Access.Groups)
	}
	if m.certificates != nil && next.Listen.TCP != "" {
		untrusted, certificatesErr := m.certificates.use(next.Listen)
		ended, err = ended+untrusted, errors.Join(err, certificatesErr)
	}
	return ended, errors.Join(err, m.reopenAudit(next.AuditLog))
}

// reopenAudit opens the audit log again, at another path if next is not empty. Whether it is a file
// or a part of the log is decided at start.
func (m *Main) reopenAudit(next string) error {
	if m.auditLog == "" {
		return nil
	}
	path := cmp.Or(next, m.auditLog)
	if err := m.ReopenAudit(path); err != nil {
		return err
	}
	m.auditLog = path
	return nil
}

// needRestart returns the fields that differ from the file that was read at start and that only a
// restart applies. So each reload names what the ones before have named and still waits.
func (m *Main) needRestart(next *config.Config) []config.Change {
	return slices.DeleteFunc(m.Config.Changes(next), func(c config.Change) bool {
		if c.Field == "spec.auditLog" {
			return m.Config.AuditLog != "" && next.AuditLog != ""
		}
		return slices.Contains(atOnce, c.Field)
	})
}

// rulesOf returns the rules of a configuration, for a daemon of our own user.
func rulesOf(c *config.Config) *access.Rules {
	rules := c.Listen.Access
	rules.UID = uint32(os.Geteuid())
	return &rules
}

// setRules replaces the rules, and ends the connections whose callers have a lower role now. A call
// that has begun would go on with the role that it began with. It returns how many it ended.
func (m *Main) setRules(rules *access.Rules) int {
	before := m.guard.SetRules(rules)
	return m.sessions.endIf(func(s *session) bool {
		had, _ := before.Role(s.caller)
		has, _ := rules.Role(s.caller)
		return has < had
	})
}
