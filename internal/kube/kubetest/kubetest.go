// Package kubetest starts real API servers for tests: kube-apiserver, etcd and the garbage
// collector with the CRDs of Cluster API, but no Cluster API controllers and no webhooks, unless
// StartContracts says so. They are built by "make lab".
package kubetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// startTimeout bounds the start; on a busy machine with cold caches it takes half a minute.
const startTimeout = 3 * time.Minute

// Servers are running API servers.
type Servers struct {
	dir string
	cmd *exec.Cmd
	n   int
}

// Main starts n API servers for the tests of a package, runs them and ends the servers. set gets
// them before the tests run. Use it from TestMain.
func Main(m *testing.M, n int, set func(*Servers)) int {
	s, err := start(n, bare(n)...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.stop()
	set(s)
	return m.Run()
}

// Start starts n API servers for the time of one test.
func Start(t testing.TB, n int) *Servers {
	t.Helper()
	return startFor(t, n, bare(n)...)
}

// StartContracts starts two API servers for the time of one test: server 0 has the CRDs of Cluster
// API 1.10, which stores v1beta1, and server 1 has the current ones, with their webhooks.
func StartContracts(t testing.TB) *Servers {
	t.Helper()
	return startFor(t, 2, "--contracts")
}

func startFor(t testing.TB, n int, args ...string) *Servers {
	t.Helper()
	s, err := start(n, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// Lab is the path of the program that "make lab" builds; next to it is what else it has built, such
// as kubectl.
func Lab() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".lab", "bin", "lab")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("start API servers: .lab/bin/lab is missing: run make lab")
}

// bare are the arguments of n bare API servers. MGMTD_TEST_MEMORY is how much memory each may use
// ("8GiB"), for fleets of more than 20,000 objects.
func bare(n int) []string {
	args := []string{"--bare", "--mgmt", strconv.Itoa(n)}
	if memory := os.Getenv("MGMTD_TEST_MEMORY"); memory != "" {
		args = append(args, "--memory", memory)
	}
	return args
}

// start runs "lab up" with args, which start n API servers.
func start(n int, args ...string) (*Servers, error) {
	program, err := Lab()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kubetest")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(context.Background(), program,
		append([]string{"up", "--dir", dir}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start API servers: %w", err)
	}
	s := &Servers{dir: dir, cmd: cmd, n: n}
	ready := make(chan error, 1)
	go func() {
		var seen []string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			seen = append(seen, lines.Text())
			if lines.Text() == "ready" {
				ready <- nil
			}
		}
		ready <- fmt.Errorf("start API servers: %s", strings.Join(seen, "\n"))
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = fmt.Errorf("start API servers: not ready after %s", startTimeout)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *Servers) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// Options of server i, from 0.
func (s *Servers) Options(i int) kube.Options {
	name := fmt.Sprintf("mgmt-%d", i+1)
	return kube.Options{Name: name, KubeconfigFile: filepath.Join(s.dir, name, "kubeconfig")}
}

// Connect reaches server i.
func (s *Servers) Connect(t testing.TB, i int) *kube.Mgmt {
	t.Helper()
	m, err := kube.Connect(t.Context(), s.Options(i))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Fleet fills server i with workload clusters as their controllers would have left them. args are
// those of "lab fleet --bare".
func (s *Servers) Fleet(t testing.TB, i int, args ...string) {
	t.Helper()
	if err := s.Fill(t.Context(), i, args...); err != nil {
		t.Fatal(err)
	}
}

// Fill is Fleet for a caller without a test.
func (s *Servers) Fill(ctx context.Context, i int, args ...string) error {
	program, err := Lab()
	if err != nil {
		return err
	}
	all := append([]string{"fleet", "--bare", "--kubeconfig", s.Options(i).KubeconfigFile}, args...)
	if out, err := exec.CommandContext(ctx, program, all...).CombinedOutput(); err != nil {
		return fmt.Errorf("lab %s: %w\n%s", strings.Join(all, " "), err, out)
	}
	return nil
}
