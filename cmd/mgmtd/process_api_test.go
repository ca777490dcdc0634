//go:build api

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// built are both programs as they are now. Linking them takes seconds, so that all tests of the
// package share them.
var built struct {
	dir  string
	once sync.Once
	err  error
}

// servers are two API servers that all tests share. Each test clears them first.
var servers *kubetest.Servers

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mgmtd-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir = dir
	code := kubetest.Main(m, 2, func(s *kubetest.Servers) { servers = s })
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// programs builds both programs, for the first test that asks, and returns their folder.
func programs(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if out, err := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-w -s", "-o", built.dir+"/",
			"../...").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// s3Location is the document of a storage location in a bucket of a server.
func s3Location(s3 *s3test.Server, bucket string) string {
	return fmt.Sprintf(`---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: s3}
spec:
  provider: aws
  objectStorage: {bucket: %s, prefix: p}
  config: {region: us-east-1, s3Url: "%s", s3ForcePathStyle: "true", credentialsFile: %s}
`, bucket, s3.Endpoint, s3.CredentialsFile)
}

// newKeys makes keys in the folder of a daemon, takes the identity away, and returns it with its
// recipient.
func newKeys(t *testing.T, dir string) (identity []byte, recipient string) {
	t.Helper()
	if err := service.Keygen(dir, nil); err != nil {
		t.Fatal(err)
	}
	var texts [2][]byte
	for i, name := range []string{"identity.txt", "recipient.txt"} {
		var err error
		if texts[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "identity.txt")); err != nil {
		t.Fatal(err)
	}
	return texts[0], strings.TrimSpace(string(texts[1]))
}

// shortDir makes a folder whose name is short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mgmtd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// process is an mgmtd of its own, in its own folder, with mgmtd.yaml, mgmtd.sock and mgmtd.log in
// it.
type process struct {
	cmd  *exec.Cmd
	conn *grpc.ClientConn
}

// startProcess starts one and waits until it serves. It is ended with the test, or by kill.
func startProcess(t *testing.T, bin, dir string, env ...string) *process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, "mgmtd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &process{cmd: exec.Command(filepath.Join(bin, "mgmtd"), "--config",
		filepath.Join(dir, "mgmtd.yaml"), "--log-level", "debug")}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, dir
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(t, dir, syscall.SIGTERM) })
	p.conn = dial(t, "unix:"+filepath.Join(dir, "mgmtd.sock"), insecure.NewCredentials())
	wait(t, dir, "mgmtd serves", func() bool {
		answer, err := healthv1.NewHealthClient(p.conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		return err == nil && answer.GetStatus() == healthv1.HealthCheckResponse_SERVING
	})
	return p
}

// end ends the process with a signal; a second time it does nothing.
func (p *process) end(t *testing.T, dir string, signal syscall.Signal) {
	t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	if err := p.cmd.Wait(); err != nil && signal == syscall.SIGTERM {
		log, _ := os.ReadFile(filepath.Join(dir, "mgmtd.log"))
		t.Errorf("mgmtd ended: %v\n%s", err, log)
	}
}

// waitLimit is longer than anything here takes on a busy machine.
const waitLimit = 2 * time.Minute

// wait waits until what is so.
func wait(t *testing.T, dir, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(dir, "mgmtd.log"))
			t.Fatalf("after %s still not: %s\n%s", waitLimit, what, log)
		}
	}
}
