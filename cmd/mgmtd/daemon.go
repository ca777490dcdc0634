package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
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
	"google.golang.org/grpc/reflection"

	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/config"
)

// Main is one run of the daemon.
type Main struct {
	Config  *config.Config
	Log     *slog.Logger
	Version string
	// NotifySocket is the socket on which systemd receives notifications; empty without systemd.
	NotifySocket string
	// Ready is called once everything is served, with the addresses of the API over TCP and of the
	// metrics; nil where one is not served.
	Ready func(tcp, metrics net.Addr)

	service  *service.Server
	health   *health.Server
	servers  []*grpc.Server
	http     *http.Server
	stopping atomic.Bool
}

// lastCalls is how long calls may take to end once no operation runs.
const lastCalls = 5 * time.Second

// Run serves until ctx ends. Then it accepts no more calls, schedules begin no more runs, and
// operations end after their current step. It returns an error when it could not begin or continue.
func (m *Main) Run(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg := m.Config.Service
	cfg.Log, cfg.Version, cfg.Metrics = m.Log, m.Version, registry
	m.service = service.New(cfg)
	m.health = health.NewServer()
	failed := make(chan error, 3)
	err := m.begin(ctx, registry, failed)
	if err == nil {
		m.notify("READY=1")
		select {
		case <-ctx.Done():
		case err = <-failed:
		case err = <-m.service.Failed():
		}
	}
	return errors.Join(err, m.end())
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
		listener, err := listenUnix(ctx, l.Unix)
		if err != nil {
			return err
		}
		m.serve(listener, nil, failed)
	}
	if l.TCP != "" {
		certificates, err := newCertificates(l, m.Log)
		if err != nil {
			return err
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.TCP)
		if err != nil {
			return err
		}
		tcp = listener.Addr()
		m.serve(listener, credentials.NewTLS(certificates.config()), failed)
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

// serve serves the API on a listener. A listener without credentials is a socket that only our
// user, and root, can open.
func (m *Main) serve(l net.Listener, c credentials.TransportCredentials, failed chan<- error) {
	options := append(logCalls(m.Log), service.ServerOptions()...)
	if c != nil {
		options = append(options, grpc.Creds(c))
	}
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
