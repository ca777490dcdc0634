package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/access"
	"github.com/mgmtd/mgmtd/internal/service/config"
)

// Main is one run of the daemon.
type Main struct {
	Config *config.Config
	Log    *slog.Logger
	// Audit gets a line for each request that changes or decrypts something, or is refused.
	Audit   *slog.Logger
	Version string
	// NotifySocket is the socket on which systemd receives notifications; empty without systemd.
	NotifySocket string
	// Watchdog is how often systemd expects to hear that the daemon works; 0 for never.
	Watchdog time.Duration
	// File is the file of Config, which a reload reads again.
	File string
	// Reload asks for a reload with each value; nil for never.
	Reload <-chan struct{}
	// ReopenAudit opens the file of the audit log again, at this path; needed when Config names one.
	ReopenAudit func(path string) error
	// Ready is called once everything is served, with the addresses of the API over TCP and of the
	// metrics; nil where one is not served.
	Ready func(tcp, metrics net.Addr)

	service *service.Server
	guard   *access.Guard
	reloads *reloadMetrics
	// certificates are nil without TCP.
	certificates *certificates
	auditLog     string // path of the audit log that is open; empty when it is no file
	sessions     *sessions
	health       *health.Server
	servers      []*grpc.Server
	http         *http.Server
	stopping     atomic.Bool
	// connectionEnd says when connections end; zero is within an hour.
	connectionEnd keepalive.ServerParameters
}

// callsOfConnection is how many calls a connection may have open. Further ones wait in the client,
// so that one client cannot have mgmtd hold any number of them. RFC 9113 (section 6.5.2) recommends
// no fewer.
const callsOfConnection = 100

// lastCalls is how long calls may take to end once no operation runs.
const lastCalls = 5 * time.Second

// Run serves until ctx ends. Then it accepts no more calls, schedules begin no more runs, and
// operations end after their current step. It returns an error when it could not begin or
// continue.
func (m *Main) Run(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.sessions, m.guard = newSessions(), access.NewGuard(rulesOf(m.Config), m.Audit)
	cfg := m.Config.Service
	cfg.Log, cfg.Version, cfg.Metrics = m.Log, m.Version, registry
	cfg.CatalogSocket = append(m.guard.ServerOptions(), grpc.Creds(peerCredentials{m.sessions}))
	m.service = service.New(cfg)
	m.health = health.NewServer()
	if m.connectionEnd == (keepalive.ServerParameters{}) {
		m.connectionEnd = connectionEnd()
	}
	m.reloads, m.auditLog = newReloadMetrics(registry), m.Config.AuditLog
	for _, w := range m.Config.Warnings {
		m.Log.Warn("configuration", "warning", w.String())
	}
	failed := make(chan error, 3)
	err := m.begin(ctx, registry, failed)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = nil // it was stopped while it began
	case err == nil:
		m.notify("READY=1")
		watched, stop := context.WithCancel(context.WithoutCancel(ctx))
		var watchdog sync.WaitGroup
		watchdog.Go(func() { m.watchdog(watched, m.service.Alive) })
		defer watchdog.Wait()
		defer stop() // after the operations have ended
		err = m.wait(ctx, failed)
	}
	return errors.Join(err, m.end())
}

// wait reloads when it is asked to, until ctx ends or something fails.
func (m *Main) wait(ctx context.Context, failed <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case err := <-m.service.Failed():
			return err
		case <-m.Reload:
			m.reload()
		}
	}
}

// begin opens the catalog before it listens, so that two daemons never both answer.
func (m *Main) begin(ctx context.Context, registry *prometheus.Registry,
	failed chan<- error) error {
	var tcp, metrics net.Addr
	if err := m.service.Open(ctx); err != nil {
		return err
	}
	l := m.Config.Listen
	if l.Unix != "" {
		listener, err := listenUnix(ctx, l.Unix, l.Access.Groups)
		if err != nil {
			return err
		}
		m.serve(listener, peerCredentials{m.sessions}, failed)
	}
	if l.TCP != "" {
		var err error
		if m.certificates, err = newCertificates(l, m.Log, m.sessions); err != nil {
			return err
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.TCP)
		if err != nil {
			return err
		}
		tcp = listener.Addr()
		m.serve(listener, newTLSCredentials(m.certificates, m.sessions), failed)
	}
	if address := m.Config.Metrics; address != "" {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		metrics = listener.Addr()
		m.serveMetrics(listener, registry, failed)
	}
	if err := m.service.Start(ctx); err != nil {
		return err
	}
	m.Log.Info("mgmtd serves", "version", m.Version, "unix", l.Unix, "tcp", l.TCP, "metrics",
		m.Config.Metrics,
		"managementClusters", len(m.Config.Service.Sources), "locations", len(m.Config.Service.Locations),
		"schedules", len(m.Config.Service.Schedules))
	if m.Ready != nil {
		m.Ready(tcp, metrics)
	}
	return nil
}

// serve serves the API on a listener. The credentials say who calls.
func (m *Main) serve(l net.Listener, c credentials.TransportCredentials, failed chan<- error) {
	options := slices.Concat(logCalls(m.Log), service.ServerOptions(), m.service.Recover(),
		m.guard.ServerOptions(), []grpc.ServerOption{grpc.Creds(c),
			grpc.KeepaliveParams(m.connectionEnd), grpc.MaxConcurrentStreams(callsOfConnection)})
	s := grpc.NewServer(options...)
	m.service.Register(s)
	healthv1.RegisterHealthServer(s, m.health)
	reflection.Register(s)
	m.servers = append(m.servers, s)
	go func() {
		if err := s.Serve(l); err != nil { // ends with end
			failed <- err
		}
	}()
}

func (m *Main) serveMetrics(l net.Listener, registry *prometheus.Registry, failed chan<- error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if m.stopping.Load() {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	m.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := m.http.Serve(l); !errors.Is(err, http.ErrServerClosed) { // ends with end
			failed <- err
		}
	}()
}

// end stops everything that begin started, however far begin came.
func (m *Main) end() error {
	m.stopping.Store(true)
	m.notify("STOPPING=1")
	m.health.Shutdown()
	m.service.Stop()
	var calls sync.WaitGroup
	for _, s := range m.servers {
		calls.Go(s.GracefulStop)
	}
	m.service.Drain()
	// Watchers have time to read how their operation ended; longer calls are cut off.
	cut := time.AfterFunc(lastCalls, func() {
		for _, s := range m.servers {
			s.Stop()
		}
	})
	calls.Wait()
	cut.Stop()
	err := m.service.Close()
	if m.http != nil {
		err = errors.Join(err, m.http.Close())
	}
	m.Log.Info("mgmtd ended")
	return err
}
