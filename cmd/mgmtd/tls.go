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
	// sessions are closed whose authority is gone after a change.
	sessions *sessions

	mu      sync.Mutex
	stamp   [3]time.Time
	ready   *tls.Config
	problem string // why the files of now are not in use; logged once
}

func newCertificates(l config.Listen, log *slog.Logger, s *sessions) (*certificates, error) {
	c := &certificates{log: log, sessions: s}
	_, err := c.use(l)
	return c, err
}

// config returns a configuration that checks the files at each handshake.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil },
	}
}

// current returns the configuration of the files as they are now.
func (c *certificates) current() *tls.Config {
	now, changed := c.reread()
	if changed {
		c.log.Info("certificates changed", "endedConnections", c.endUntrusted(now))
	}
	return now
}

// reread reads the files if they have changed, and reports whether there is a new configuration.
func (c *certificates) reread() (*tls.Config, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, err := stampsOf(c.listen)
	if err == nil && stamp == c.stamp {
		c.problem = ""
		return c.ready, false
	}
	if err == nil {
		err = c.load(c.listen)
	}
	if err != nil {
		if c.problem != err.Error() {
			c.problem = err.Error()
			c.log.Error("read certificates: those in use stay", "error", err)
		}
		return c.ready, false
	}
	return c.ready, true
}

// use reads the files that l names, now and from now on, whether they seem to have changed or not.
// It returns how many connections it ended. After an error the files in use stay.
func (c *certificates) use(l config.Listen) (ended int, err error) {
	c.mu.Lock()
	err = c.load(l)
	now := c.ready
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.endUntrusted(now), nil
}

// load reads the files that l names. The caller holds mu.
func (c *certificates) load(l config.Listen) error {
	stamp, err := stampsOf(l)
	if err != nil {
		return err
	}
	ready, err := readCertificates(l)
	if err != nil {
		return err
	}
	c.listen, c.stamp, c.ready, c.problem = l, stamp, ready, ""
	return nil
}

// endUntrusted ends the connections of clients for which no authority vouches any more.
func (c *certificates) endUntrusted(now *tls.Config) int {
	return c.sessions.endIf(func(s *session) bool { return !s.trusts(now.ClientCAs) })
}

func stampsOf(l config.Listen) (stamps [3]time.Time, err error) {
	for i, file := range []string{l.CertFile, l.KeyFile, l.ClientCAFile} {
		info, err := os.Stat(file)
		if err != nil {
			return stamps, err
		}
		stamps[i] = info.ModTime()
	}
	return stamps, nil
}

func readCertificates(l config.Listen) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	pem, err := os.ReadFile(l.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("read client CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read client CA: %s holds no certificate", l.ClientCAFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true, // a session must not outlive the CA that it was verified with
	}, nil
}
