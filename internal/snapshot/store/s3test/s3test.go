// Package s3test runs a real S3 server for tests: versitygw over a folder. It is built by "make lab".
package s3test

import (
	"bytes"
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
)

// Options of Start. The zero value is a server without TLS.
type Options struct {
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
	// Root holds one folder for each bucket.
	Root string

	cmd    *exec.Cmd
	output *lockedBuffer
}

// Start starts a server and waits until it answers. It fails the test when the program is not there.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	program := findProgram(t)
	dir := t.TempDir()
	s := &Server{
		AccessKey: "AKIATESTACCESSKEY", SecretKey: "test-secret-0123456789abcdefghijklmnop",
		Root: filepath.Join(dir, "root"), CredentialsFile: filepath.Join(dir, "credentials"), output: &lockedBuffer{},
	}
	ini := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", s.AccessKey, s.SecretKey)
	if err := errors.Join(os.Mkdir(s.Root, 0o700), os.WriteFile(s.CredentialsFile, []byte(ini), 0o600)); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	args := []string{"--port", address, "--quiet"}
	s.Endpoint = "http://" + address
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	if o.TLS {
		cert, key, ca := writeCertificates(t, dir)
		s.Endpoint, s.CAFile = "https://"+address, ca
		args = append(args, "--cert", cert, "--key", key)
		pool := x509.NewCertPool()
		if pem, err := os.ReadFile(ca); err != nil || !pool.AppendCertsFromPEM(pem) {
			t.Fatalf("read authority: %v", err)
		}
		client.Transport = &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	}
	s.cmd = exec.CommandContext(t.Context(), program, append(args, "posix", s.Root)...)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	endWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start versitygw: %v", err)
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
	s.await(t, client, ended)
	return s
}

// await waits for any answer, even one that denies.
func (s *Server) await(t testing.TB, client *http.Client, ended <-chan struct{}) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Endpoint, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("versitygw ended:\n%s", s.output)
		default:
		}
	}
	t.Fatalf("versitygw does not answer:\n%s", s.output)
}

// NewBucket makes a bucket.
func (s *Server) NewBucket(t testing.TB, name string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(s.Root, name), 0o700); err != nil {
		t.Fatal(err)
	}
}

// URL is the store URL of a place in a bucket, as --store takes it; the credentials are to come from the environment (Setenv).
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

// findProgram looks in the repository that holds the current folder, which is that of the package under test.
func findProgram(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		program := filepath.Join(dir, ".lab", "bin", "versitygw")
		if _, err := os.Stat(program); err == nil {
			return program
		}
	}
	t.Fatal("start S3 server: .lab/bin/versitygw is missing: run make lab")
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
