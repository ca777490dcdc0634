package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/mgmtd/mgmtd/internal/service/config"
)

// writeCA makes the authority that of clients.
func writeCA(t *testing.T, dir string, as ...authority) {
	t.Helper()
	var text []byte
	for _, a := range as {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
	}
	write(t, dir, "ca.crt", string(text))
}

// handshake connects a client to the credentials over a pipe, and returns both ends.
func handshake(t *testing.T, c *tlsCredentials, client *tls.Config) (*tls.Conn, *certified, error) {
	t.Helper()
	near, far := net.Pipe()
	conn := tls.Client(near, client)
	shaken := make(chan error, 1)
	go func() { shaken <- conn.HandshakeContext(t.Context()) }()
	_, auth, err := c.ServerHandshake(far)
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	if err != nil {
		return conn, nil, err
	}
	return conn, auth.(*certified), nil
}

// newTestCredentials returns credentials for the clients of an authority.
func newTestCredentials(t *testing.T, a authority) (*tlsCredentials, string) {
	t.Helper()
	dir := t.TempDir()
	a.files(t, dir, "server")
	writeCA(t, dir, a)
	sessions := newSessions()
	certs, err := newCertificates(config.Listen{CertFile: filepath.Join(dir, "server.crt"),
		KeyFile: filepath.Join(dir, "server.key"), ClientCAFile: filepath.Join(dir, "ca.crt")},
		slog.New(slog.NewTextHandler(t.Output(), nil)), sessions)
	if err != nil {
		t.Fatal(err)
	}
	return newTLSCredentials(certs, sessions).(*tlsCredentials), dir
}

func TestAConnectionEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		creds, _ := newTestCredentials(t, a)
		client := &tls.Config{RootCAs: a.pool(), ServerName: "localhost", NextProtos: []string{"h2"},
			Certificates: a.client(t, "ops", func(c *x509.Certificate) {
				c.NotAfter = time.Now().Add(20 * time.Minute)
			})}
		conn, auth, err := handshake(t, creds, client)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			ended <- err
		}()
		time.Sleep(20*time.Minute - time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("it ended early: %v", err)
		default:
		}
		if err := auth.Valid(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := <-ended; err == nil {
			t.Error("it did not end")
		}
		if err := auth.Valid(); err == nil || len(creds.sessions.open) > 0 {
			t.Errorf("a request is served: %v, %v", err, creds.sessions.open)
		}
	})
}

// TestARequestAfterTheExpiryIsRefusedThoughTheConnectionIsOpen: timers do not run while the host
// is suspended.
func TestARequestAfterTheExpiryIsRefusedThoughTheConnectionIsOpen(t *testing.T) {
	s := newSessions()
	c := &session{in: s, expires: time.Now().Add(time.Hour)}
	s.open[c] = struct{}{}
	if err := c.valid(); err != nil {
		t.Error(err)
	}
	c.expires = time.Now().Add(-time.Second)
	if err := c.valid(); !errors.Is(err, errExpired) {
		t.Error(err)
	}
}

func TestAConnectionEndsWithItsAuthority(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	creds, dir := newTestCredentials(t, ours)
	client := func(a authority) *tls.Config {
		return &tls.Config{RootCAs: ours.pool(), ServerName: "localhost", NextProtos: []string{"h2"},
			Certificates: a.client(t, "ops")}
	}
	conn, auth, err := handshake(t, creds, client(ours))
	if err != nil {
		t.Fatal(err)
	}
	replace := func(at time.Time, as ...authority) {
		writeCA(t, dir, as...)
		if err := os.Chtimes(filepath.Join(dir, "ca.crt"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Minute)
	replace(later, ours, other)
	newcomer, newAuth, err := handshake(t, creds, client(other))
	if err != nil {
		t.Fatal(err)
	}
	defer newcomer.NetConn().Close()
	if err := auth.Valid(); err != nil {
		t.Errorf("beside another authority: %v", err)
	}
	replace(later.Add(time.Minute), other)
	if err := newAuth.Valid(); err != nil { // a request of anybody notices it
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection of an authority that is gone goes on")
	}
	if auth.Valid() == nil {
		t.Error("a request of an authority that is gone is served")
	}
}

// TestAConnectionEndsWithItsAge: grpc ends it, and a client can begin another one. The error is
// what mgmtctl takes for the end of a connection.
func TestAConnectionEndsWithItsAge(t *testing.T) {
	o := serveTCP(t, `[{name: "cn:ops", role: view}]`, func(m *Main) {
		m.connectionEnd = keepalive.ServerParameters{MaxConnectionAge: 10 * time.Millisecond,
			MaxConnectionAgeGrace: 10 * time.Millisecond}
	})
	conn := o.as("ops")
	stream, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	if s, _ := status.FromError(err); s.Code() != codes.Unavailable || len(s.Details()) > 0 {
		t.Errorf("a stream ends with %v", err)
	}
	if err := listOperations(t.Context(), conn); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if longest := connectionAge + connectionAge/10 + connectionGrace; longest > time.Hour {
		t.Errorf("a connection may last %s", longest)
	}
	if connectionEnd() != (keepalive.ServerParameters{MaxConnectionAge: connectionAge,
		MaxConnectionAgeGrace: connectionGrace}) {
		t.Error("the limits are not in use")
	}
}
