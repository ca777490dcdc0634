package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/keepalive"

	"github.com/mgmtd/mgmtd/internal/service/access"
)

// Connections end within an hour, after which a client has to prove once more who it is: grpc adds
// up to a tenth to the age, and then lets calls go on for the grace. mgmtctl goes on with a watch
// by itself.
const (
	connectionAge   = 45 * time.Minute
	connectionGrace = 10 * time.Minute
)

// connectionEnd makes connections end.
func connectionEnd() keepalive.ServerParameters {
	return keepalive.ServerParameters{MaxConnectionAge: connectionAge,
		MaxConnectionAgeGrace: connectionGrace}
}

// sessions are the open connections of clients. A connection does not outlive what it proved: it is
// closed when its certificate expires, when the authorities change and do not include its own any
// more, and when a reload gives its caller a lower role. The calls in it end with it, and the
// operations that they began go on.
type sessions struct {
	mu   sync.Mutex
	open map[*session]struct{}
}

func newSessions() *sessions { return &sessions{open: map[*session]struct{}{}} }

// session is a connection.
type session struct {
	net.Conn
	raw    net.Conn // below TLS, which may wait for a client before it closes
	in     *sessions
	caller access.Caller
	// certificates are what the client has shown, its own first; nil for a unix socket.
	certificates []*x509.Certificate
	expires      time.Time // zero: never
	timer        *time.Timer
}

// add keeps a connection, over a raw one, until it is closed.
func (s *sessions) add(conn, raw net.Conn, caller access.Caller,
	state *tls.ConnectionState) *session {
	c := &session{Conn: conn, raw: raw, in: s, caller: caller}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	if state != nil {
		c.certificates, c.expires = state.PeerCertificates, expiry(state.VerifiedChains)
		c.timer = time.AfterFunc(time.Until(c.expires), c.end)
	}
	return c
}

// Close closes the connection.
func (c *session) Close() error {
	c.remove()
	return c.Conn.Close()
}

// end closes the connection at once. grpc notices it and closes the rest.
func (c *session) end() {
	c.remove()
	_ = c.raw.Close()
}

func (c *session) remove() {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	delete(c.in.open, c)
	if c.timer != nil {
		c.timer.Stop()
	}
}

// expiry returns when the last of the chains expires, each of which does so with its first
// certificate.
func expiry(chains [][]*x509.Certificate) time.Time {
	var last time.Time
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, cert := range chain {
			if cert.NotAfter.Before(first) {
				first = cert.NotAfter
			}
		}
		if first.After(last) {
			last = first
		}
	}
	return last
}

var (
	errExpired    = errors.New("the client certificate has expired")
	errClosed     = errors.New("the connection was ended")
	errNotTrusted = errors.New("no authority of spec.listen.clientCAFile vouches for the client")
)

// valid returns an error when the connection was closed or its certificate has expired. The timer
// that closes the connection does not count the time for which a host is suspended.
func (c *session) valid() error {
	if !c.expires.IsZero() && time.Now().After(c.expires) {
		return errExpired
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if _, open := c.in.open[c]; !open {
		return errClosed
	}
	return nil
}

// endIf ends the connections to which it applies, and returns how many there were.
func (s *sessions) endIf(applies func(*session) bool) int {
	s.mu.Lock()
	var ending []*session
	for c := range s.open {
		if applies(c) {
			ending = append(ending, c)
		}
	}
	s.mu.Unlock()
	for _, c := range ending {
		c.end()
	}
	return len(ending)
}

// trusts returns whether an authority of the pool vouches for the client of a connection. A socket
// needs none.
func (c *session) trusts(pool *x509.CertPool) bool {
	if len(c.certificates) == 0 {
		return true
	}
	o := x509.VerifyOptions{Roots: pool, Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, cert := range c.certificates[1:] {
		o.Intermediates.AddCert(cert)
	}
	_, err := c.certificates[0].Verify(o)
	return err == nil
}
