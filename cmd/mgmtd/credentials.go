package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"

	"google.golang.org/grpc/credentials"

	"github.com/mgmtd/mgmtd/internal/service/access"
)

// tlsCredentials are those of grpc for mutual TLS. They add who calls, and end the connection when
// that is not proven any more.
type tlsCredentials struct {
	credentials.TransportCredentials
	certificates *certificates
	sessions     *sessions
}

func newTLSCredentials(c *certificates, s *sessions) credentials.TransportCredentials {
	return &tlsCredentials{credentials.NewTLS(c.config()), c, s}
}

// certified is what a connection with a client certificate proves.
type certified struct {
	credentials.TLSInfo
	session      *session
	certificates *certificates
}

var _ access.AuthInfo = (*certified)(nil)

// Caller implements access.AuthInfo.
func (c *certified) Caller() access.Caller { return c.session.caller }

// Valid implements access.AuthInfo.
func (c *certified) Valid() error {
	c.certificates.current() // closes the session when its authority is not there any more
	return c.session.valid()
}

func (c *tlsCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, auth, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	info, ok := auth.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil, nil, errors.Join(errors.New("the client has shown no certificate"), conn.Close())
	}
	cert := info.State.VerifiedChains[0][0]
	s := c.sessions.add(conn, raw, access.Caller{Names: access.CertificateNames(cert),
		Serial: cert.SerialNumber.Text(16)}, &info.State)
	// The authorities may have changed since the handshake began.
	if !s.trusts(c.certificates.current().ClientCAs) {
		return nil, nil, errors.Join(errNotTrusted, s.Close())
	}
	return s, &certified{TLSInfo: info, session: s, certificates: c.certificates}, nil
}

func (c *tlsCredentials) Clone() credentials.TransportCredentials {
	return &tlsCredentials{c.TransportCredentials.Clone(), c.certificates, c.sessions}
}

// peerCredentials are those of a unix socket: the kernel says who has connected. Nothing is sent
// for them, so that a client needs none.
type peerCredentials struct{ sessions *sessions }

// local is what a connection to a unix socket proves.
type local struct {
	credentials.CommonAuthInfo
	session *session
}

var _ access.AuthInfo = (*local)(nil)

// AuthType implements credentials.AuthInfo.
func (*local) AuthType() string { return "peer" }

// Caller implements access.AuthInfo.
func (l *local) Caller() access.Caller { return l.session.caller }

// Valid implements access.AuthInfo.
func (l *local) Valid() error { return l.session.valid() }

func (p peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.New("not a unix socket")
	}
	u, err := peerOf(socket)
	if err != nil {
		return nil, nil, fmt.Errorf("ask who has connected: %w", err)
	}
	if known, err := user.LookupId(strconv.FormatUint(uint64(u.UID), 10)); err == nil {
		u.Name = known.Username
	}
	s := p.sessions.add(conn, conn, access.Caller{User: &u}, nil)
	return s, &local{CommonAuthInfo: credentials.CommonAuthInfo{
		SecurityLevel: credentials.PrivacyAndIntegrity}, session: s}, nil
}

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer"}
}

func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements credentials.TransportCredentials, which still asks for it.
func (peerCredentials) OverrideServerName(string) error { return nil }
