// Package s3test runs real S3 servers for tests: versitygw or MinIO, over a folder. They are built
// by "make lab".
package s3test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Kind is which program serves.
type Kind string

// The servers that there are.
const (
	VersityGW Kind = "versitygw"
	MinIO     Kind = "minio"
)

// Kinds are all servers, for tests of what every one of them has to do.
var Kinds = []Kind{VersityGW, MinIO}

// Options of Start. The zero value is versitygw without TLS, without versions.
type Options struct {
	Kind Kind
	// Versions allows versioned buckets, and with that Object Lock; MinIO always does.
	Versions bool
	// TLS serves with a certificate of a new authority: see Server.CAFile.
	TLS bool
}

// Server is a running S3 server. It ends with the test.
type Server struct {
	Endpoint  string // http://127.0.0.1:port, or https
	AccessKey string
	SecretKey string
	CAFile    string // certificate of the authority, with TLS only
	// CredentialsFile is an AWS credentials file with the keys.
	CredentialsFile string
	// Root holds one folder for each bucket; with versitygw each key is a file in it.
	Root string

	kind      Kind
	address   string
	transport *http.Transport
	cmd       *exec.Cmd
	output    *lockedBuffer
}

// Start starts a server and waits until it answers. It fails the test when the program is not
// there.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Kind == "" {
		o.Kind = VersityGW
	}
	program := findProgram(t, string(o.Kind))
	dir := t.TempDir()
	s := &Server{
		AccessKey: "AKIATESTACCESSKEY", SecretKey: "test-secret-0123456789abcdefghijklmnop",
		Root: filepath.Join(dir, "root"), CredentialsFile: filepath.Join(dir, "credentials"),
		kind: o.Kind, output: &lockedBuffer{}, transport: &http.Transport{DisableKeepAlives: true},
	}
	ini := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", s.AccessKey,
		s.SecretKey)
	if err := errors.Join(os.Mkdir(s.Root, 0o700), os.WriteFile(s.CredentialsFile, []byte(ini),
		0o600)); err != nil {
		t.Fatal(err)
	}
	s.address = freeAddress(t)
	s.Endpoint = "http://" + s.address
	if o.TLS {
		s.Endpoint, s.CAFile = "https://"+s.address, filepath.Join(dir, "certs", "CAs", "ca.pem")
		writeCertificates(t, filepath.Join(dir, "certs"))
		pool := x509.NewCertPool()
		if pem, err := os.ReadFile(s.CAFile); err != nil || !pool.AppendCertsFromPEM(pem) {
			t.Fatalf("read authority: %v", err)
		}
		s.transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	var args []string
	switch o.Kind {
	case VersityGW:
		args = s.versitygw(t, o, dir)
	case MinIO:
		args = []string{"server", "--quiet", "--address", s.address, "--console-address", "127.0.0.1:0",
			"--certs-dir", filepath.Join(dir, "certs"), s.Root}
	}
	s.cmd = exec.CommandContext(t.Context(), program, args...)
	s.cmd.Env = append(
		os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey,
		// MinIO on the file system of the test's folder, without its web pages, its look for
		// updates, and its proxies.
		"MINIO_ROOT_USER="+s.AccessKey, "MINIO_ROOT_PASSWORD="+s.SecretKey, "MINIO_CI_CD=1",
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_SITE_REGION=us-east-1", "HOME="+dir,
	)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	endWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", o.Kind, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = s.cmd.Wait() // it ends by our signal
		close(ended)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-ended
	})
	s.await(t, ended)
	return s
}

func (s *Server) versitygw(t testing.TB, o Options, dir string) []string {
	t.Helper()
	args := []string{"--port", s.address, "--quiet"}
	if o.TLS {
		args = append(args, "--cert", filepath.Join(dir, "certs", "public.crt"), "--key",
			filepath.Join(dir, "certs", "private.key"))
	}
	args = append(args, "posix")
	if o.Versions {
		versions := filepath.Join(dir, "versions")
		if err := os.Mkdir(versions, 0o700); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--versioning-dir", versions)
	}
	return append(args, s.Root)
}

// await waits until the server answers and is ready: MinIO answers with an error before it is.
func (s *Server) await(t testing.TB, ended <-chan struct{}) {
	t.Helper()
	client := s.Client(t)
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(
		20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = client.ListBuckets(ctx)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-ended:
			t.Fatalf("%s ended:\n%s", s.kind, s.output)
		default:
		}
	}
	t.Fatalf("%s does not answer: %v\n%s", s.kind, err, s.output)
}

// Client is the other hand on the server: what an operator, or an attacker, does.
func (s *Server) Client(t testing.TB) *minio.Client {
	t.Helper()
	c, err := minio.New(s.address, &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Secure: s.CAFile != "",
		Transport: s.transport, Region: "us-east-1", MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// NewBucket makes a bucket without versions.
func (s *Server) NewBucket(t testing.TB, name string) {
	t.Helper()
	s.newBucket(t, name, minio.MakeBucketOptions{})
}

// NewVersionedBucket makes a versioned bucket.
func (s *Server) NewVersionedBucket(t testing.TB, name string) {
	t.Helper()
	s.newBucket(t, name, minio.MakeBucketOptions{})
	if err := s.Client(t).EnableVersioning(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// NewLockedBucket makes a bucket with Object Lock, which is versioned.
func (s *Server) NewLockedBucket(t testing.TB, name string) {
	t.Helper()
	s.newBucket(t, name, minio.MakeBucketOptions{ObjectLocking: true})
}

func (s *Server) newBucket(t testing.TB, name string, o minio.MakeBucketOptions) {
	t.Helper()
	if err := s.Client(t).MakeBucket(t.Context(), name, o); err != nil {
		t.Fatal(err)
	}
}

// URL is the store URL of a place in a bucket, as --store takes it; the credentials are to come
// from the environment (Setenv).
func (s *Server) URL(bucket, prefix string) string {
	u := "s3://" + bucket
	if prefix != "" {
		u += "/" + prefix
	}
	u += "?endpoint=" + s.Endpoint
	if s.CAFile != "" {
		u += "&ca-file=" + url.QueryEscape(s.CAFile)
	}
	return u
}

// Setenv puts the credentials into the environment for the rest of the test.
func (s *Server) Setenv(t testing.TB) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
}

// findProgram searches the repository that holds the current folder, which is that of the package
// under test.
func findProgram(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		program := filepath.Join(dir, ".lab", "bin", name)
		if _, err := os.Stat(program); err == nil {
			return program
		}
	}
	t.Fatalf("start S3 server: .lab/bin/%s is missing: run make lab", name)
	return ""
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
