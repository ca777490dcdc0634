package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/service/config"
)

// certificates reads the certificate files again when they change: their renewal does not restart
// mgmtd. When the files do not fit together (a renewal has written one of two), the old ones stay
// in use.
type certificates struct {
	listen config.Listen
	log    *slog.Logger

	mu    sync.Mutex
	stamp [3]time.Time
	ready *tls.Config
}

func newCertificates(l config.Listen, log *slog.Logger) (*certificates, error) {
	c := &certificates{listen: l, log: log}
	var err error
	if c.stamp, err = c.stamps(); err != nil {
		return nil, err
	}
	if c.ready, err = c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// config returns a configuration that checks the files at each handshake.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil },
	}
}

func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, err := c.stamps()
	if err == nil && stamp == c.stamp {
		return c.ready
	}
	var fresh *tls.Config
	if err == nil {
		fresh, err = c.read()
	}
	if err != nil {
		c.log.Error("read certificates: those in use stay", "error", err)
		return c.ready
	}
	c.log.Info("certificates changed")
	c.stamp, c.ready = stamp, fresh
	return fresh
}

func (c *certificates) stamps() (stamps [3]time.Time, err error) {
	for i, file := range []string{c.listen.CertFile, c.listen.KeyFile, c.listen.ClientCAFile} {
		info, err := os.Stat(file)
		if err != nil {
			return stamps, err
		}
		stamps[i] = info.ModTime()
	}
	return stamps, nil
}

func (c *certificates) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.listen.CertFile, c.listen.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	pem, err := os.ReadFile(c.listen.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("read client CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read client CA: %s holds no certificate", c.listen.ClientCAFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true, // a session must not outlive the CA that it was verified with
	}, nil
}
