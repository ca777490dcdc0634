package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// authority signs certificates for a test.
type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
		0o600); err != nil {
		t.Fatal(err)
	}
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{file: filepath.Join(t.TempDir(), name+".pem"), cert: cert, key: key}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// sign makes a certificate for a host, or for a client, and gives the files of it and its key.
func (a *authority) sign(t *testing.T, host string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", keyDER)
	return certFile, keyFile
}

// serveTLS serves a fake as the daemon does on TCP, and gives the port.
func serveTLS(t *testing.T, f *fake, serverCA, clientCA *authority) string {
	t.Helper()
	certFile, keyFile := serverCA.sign(t, "localhost")
	own, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	text, err := os.ReadFile(clientCA.file)
	if err != nil || !clients.AppendCertsFromPEM(text) {
		t.Fatalf("read %s: %v", clientCA.file, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
		ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
	s := grpc.NewServer(append(service.ServerOptions(), grpc.Creds(credentials.NewTLS(config)))...)
	f.Register(s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(listener) }()
	t.Cleanup(func() { s.Stop(); <-done })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestMutualTLSReportsWhichSideIsWrong connects over TCP, and asserts that the error names the side
// whose certificate is wrong.
func TestMutualTLSReportsWhichSideIsWrong(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	f := newFake()
	f.snapshots = testSnapshots()
	port := serveTLS(t, f, ours, ours)
	certFile, keyFile := ours.sign(t, "me")
	strangeCert, strangeKey := theirs.sign(t, "me")
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, newFake(), plain)
	_, plainPort, _ := net.SplitHostPort(plain.Addr().String())

	line := func(address, ca, cert, key string) string {
		return "snapshot list --address " + address + " --ca-file " + ca + " --cert-file " + cert +
			" --key-file " + key
	}
	tests := []struct {
		name string
		line string
		code int
		says []string
	}{
		{"all right", line("localhost:"+port, ours.file, certFile, keyFile), 0, nil},
		{"with a scheme", line("tcp://localhost:"+port, ours.file, certFile, keyFile), 0, nil},
		{"another server", line("localhost:"+port, theirs.file, certFile, keyFile), 1,
			[]string{"reach mgmtd at localhost:" + port + ": its certificate is not trusted: ",
				"unknown authority", "hint: --ca-file must hold the authority"}},
		{"another host", line("127.0.0.1:"+port, ours.file, certFile, keyFile), 1,
			[]string{"its certificate is not trusted: ", "hint: --ca-file must"}},
		{"an unknown client", line("localhost:"+port, ours.file, strangeCert, strangeKey), 1,
			[]string{"it refuses our certificate: ", "hint: --cert-file must be signed by"}},
		{"no TLS there", line("localhost:"+plainPort, ours.file, certFile, keyFile), 1,
			[]string{"does not speak TLS", "hint: check the port"}},
		{"nobody there", line("localhost:1", ours.file, certFile, keyFile), 1,
			[]string{"reach mgmtd at localhost:1: ", "connection refused", "--standalone"}},
		{"no authority", line("localhost:"+port, filepath.Join(t.TempDir(), "none"), certFile, keyFile),
			2, []string{"read --ca-file: ", "no such file"}},
		{"authority is a key", line("localhost:"+port, keyFile, certFile, keyFile), 2,
			[]string{"holds no certificate"}},
		{"key of another", line("localhost:"+port, ours.file, certFile, strangeKey), 2,
			[]string{"read --cert-file and --key-file: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runner{fake: newFake()}.run(t, tt.line).want(t, tt.code).stderrHas(t, tt.says...)
		})
	}
}

// TestDaemonIsReachedByFlagAndVariable: --address and the environment variable name the daemon. The
// commands that mgmtctl prints repeat the flag; the variable is still set where they are typed.
func TestDaemonIsReachedByFlagAndVariable(t *testing.T) {
	dir, listener := listenShort(t)
	f := newFake()
	f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
	serveOn(t, f, listener)
	address := "unix://" + filepath.Join(dir, "mgmtd.sock")
	const resume = "mgmtctl operation resume 65f1a2b3c4d5"

	runner{fake: newFake()}.run(t, "restore run --yes --target new --address "+address).want(t,
		4).stderrHas(t, resume+" --address "+address+"\n")
	environment := map[string]string{"MGMTCTL_ADDRESS": address}
	runner{fake: newFake(), getenv: environment}.run(t, "operation watch latest").want(t,
		4).stderrHas(t, resume+"\n")
	runner{fake: newFake(), getenv: environment}.run(t, "operation list --store /s").want(t,
		2).stderrHas(t, "--store needs --standalone")
	alone := newFake()
	alone.snapshots = testSnapshots()
	runner{fake: alone, getenv: environment}.run(t, "snapshot list"+readFlags).want(t, 0)
}

// TestIdentityIsSent reads identities and sends them decrypted with the request: a daemon can
// neither read our files nor ask for a passphrase.
func TestIdentityIsSent(t *testing.T) {
	dir, listener := listenShort(t)
	f := newFake()
	f.snapshots = testSnapshots()
	serveOn(t, f, listener)
	passphrase := filepath.Join(dir, "passphrase")
	if err := os.WriteFile(passphrase, []byte("correct horse\nbattery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	runner{fake: f}.run(t, "keygen --out "+dir+"/open").want(t, 0)
	runner{fake: f}.run(t, "keygen --passphrase --out "+dir+"/protected --passphrase-file "+
		passphrase).want(t, 0)
	both := " --identity " + dir + "/open/identity.txt --identity " + dir + "/protected/identity.txt"
	runner{fake: newFake()}.run(t, "snapshot show latest --location vault --address unix://"+dir+
		"/mgmtd.sock --passphrase-file "+passphrase+both).want(t, 0)
	req := requestOf[*mgmtv1.GetSnapshotRequest](t, f)
	identities, err := age.ParseIdentities(bytes.NewReader(req.GetIdentity()))
	if err != nil || len(identities) != 2 || req.GetLocation() != "vault" {
		t.Fatalf("identities %v, %v, location %q", len(identities), err, req.GetLocation())
	}
	for i, folder := range []string{"open", "protected"} {
		recipient, err := os.ReadFile(filepath.Join(dir, folder, "recipient.txt"))
		if got := identities[i].(*age.X25519Identity).Recipient().String() + "\n"; err != nil ||
			got != string(recipient) {
			t.Errorf("%s: the identity of %s was sent, want %s, %v", folder, got, recipient, err)
		}
	}
}
