package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{}
	a.cert, a.key = a.issue(t, "ca", func(c *x509.Certificate) { c.IsCA = true })
	return a
}

// issue makes a certificate with a common name; also changes it.
func (a authority) issue(t *testing.T, name string, also ...func(*x509.Certificate)) (
	*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, change := range also {
		change(tmpl)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// files writes a certificate of this host, and its key.
func (a authority) files(t *testing.T, dir, name string) {
	t.Helper()
	cert, key := a.issue(t, name, func(c *x509.Certificate) { c.DNSNames = []string{"localhost"} })
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	write(t, dir, name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: cert.Raw})))
}

func (a authority) pair(t *testing.T) []tls.Certificate { return a.client(t, "operator") }

// client returns a certificate with a common name, and its key.
func (a authority) client(t *testing.T, name string,
	also ...func(*x509.Certificate)) []tls.Certificate {
	t.Helper()
	cert, key := a.issue(t, name, also...)
	return []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
}

func (a authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func TestMutualTLSAcceptsClientsOfTheAuthorityOnly(t *testing.T) {
	dir := setup(t, "{tcp: \"localhost:0\", certFile: server.crt, keyFile: server.key, "+
		"clientCAFile: ca.crt, clients: [{name: \"cn:operator\", role: view}]}")
	ours, other := newAuthority(t), newAuthority(t)
	ours.files(t, dir, "server")
	caFile := func(a authority) {
		write(t, dir, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: a.cert.Raw})))
	}
	caFile(ours)
	s := start(t, dir)
	call := func(c *tls.Config) error {
		c.RootCAs, c.ServerName = ours.pool(), "localhost"
		conn := dial(t, "passthrough:///"+s.tcp.String(), credentials.NewTLS(c))
		_, err := mgmtv1.NewOperationServiceClient(conn).ListOperations(t.Context(),
			&mgmtv1.ListOperationsRequest{})
		return err
	}
	for _, test := range []struct {
		name string
		c    *tls.Config
		ok   bool
	}{
		{"ours", &tls.Config{Certificates: ours.pair(t)}, true},
		{"no certificate", &tls.Config{}, false},
		{"of another authority", &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (
			*tls.Certificate, error) {
			return &other.pair(t)[0], nil
		}}, false},
		{"TLS 1.2", &tls.Config{Certificates: ours.pair(t), MaxVersion: tls.VersionTLS12}, false},
	} {
		err := call(test.c)
		if (err == nil) != test.ok || err != nil && status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	conn := dial(t, "passthrough:///"+s.tcp.String(), insecure.NewCredentials())
	if _, err := mgmtv1.NewOperationServiceClient(conn).ListOperations(t.Context(),
		&mgmtv1.ListOperationsRequest{}); err == nil {
		t.Error("served without TLS")
	}
	// Another CA takes hold without a restart; half a renewal changes nothing.
	later := time.Now().Add(time.Minute)
	write(t, dir, "ca.crt", "half")
	if err := os.Chtimes(filepath.Join(dir, "ca.crt"), later, later); err != nil {
		t.Fatal(err)
	}
	if err := call(&tls.Config{Certificates: ours.pair(t)}); err != nil {
		t.Errorf("after half a renewal: %v", err)
	}
	caFile(other)
	later = later.Add(time.Minute)
	if err := os.Chtimes(filepath.Join(dir, "ca.crt"), later, later); err != nil {
		t.Fatal(err)
	}
	if err := call(&tls.Config{Certificates: ours.pair(t)}); err == nil {
		t.Error("a client of the CA before is served")
	}
	if err := call(&tls.Config{Certificates: other.pair(t)}); err != nil {
		t.Errorf("a client of the new CA: %v", err)
	}
}
