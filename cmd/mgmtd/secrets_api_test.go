//go:build api

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// commands are runs of mgmtctl with all their output.
type commands struct {
	t   *testing.T
	bin string
	env []string
	out places
	n   int
}

// mgmtctl runs mgmtctl, asserts the exit code, and returns stdout.
func (r *commands) mgmtctl(code int, args ...string) string {
	r.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(r.bin, "mgmtctl"), args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, r.env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err := cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("mgmtctl %s: exit code %d, want %d: %v\n%s\n%s", strings.Join(args, " "), got, code,
			err, stdout.String(), stderr.String())
	}
	r.n++
	what := fmt.Sprintf("%d mgmtctl %s", r.n, strings.Join(args, " "))
	r.out["stdout of "+what], r.out["stderr of "+what] = stdout.Bytes(), stderr.Bytes()
	return stdout.String()
}

// kubectl runs the lab's kubectl and returns all its output. It has a cache beside the kubeconfig:
// in the one of the user there may be the kinds of another server that had the port before.
func kubectl(t *testing.T, kubeconfig, stdin string, args ...string) (string, error) {
	t.Helper()
	lab, err := kubetest.Lab()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(lab), "kubectl"),
		append([]string{"--kubeconfig", kubeconfig, "--cache-dir", kubeconfig + ".cache"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustKubectl(t *testing.T, kubeconfig, stdin string, args ...string) string {
	t.Helper()
	out, err := kubectl(t, kubeconfig, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

const secretsConfig = `apiVersion: mgmtd.dev/v1alpha1
kind: Config
spec:
  managementClusters:
  - {name: a, kubeconfigFile: %s}
  - {name: b, kubeconfigFile: %s}
  catalog: catalog.db
  recipients: [%s]
  signingKeyFile: signing.key
  trustedKeyFiles: [signing.pub]
  listen: {unix: mgmtd.sock}
  metrics: %s
`

// secretsFixture is two management clusters, a daemon's folder and what must not leak.
type secretsFixture struct {
	t         *testing.T
	seeds     seeds
	a, b      string // kubeconfigs
	namespace string
	bin, dir  string
	// identity is the file of an identity, protected that of one with a passphrase.
	identity, protected string
	*commands
}

// TestAPISecretsStayInside writes recognizable values into everything that is secret, on
// management clusters and around them. It takes snapshots, reads, restores, fails and moves. None
// of the values, raw or encoded, may be in anything that is written (invariant I6).
func TestAPISecretsStayInside(t *testing.T) {
	servers.Clear(t)
	servers.Fleet(t, 0, "--namespace-prefix", "secrets-", "--workloads", "4", "--machines", "1")
	servers.Acknowledge(t, 0)
	servers.Acknowledge(t, 1)
	s3 := s3test.Start(t, s3test.Options{})
	s3.NewBucket(t, "mgmtd")
	f := &secretsFixture{
		t: t, seeds: seeds{}, a: servers.Options(0).KubeconfigFile, b: servers.Options(1).KubeconfigFile,
		namespace: "secrets-team-0000", bin: programs(t), dir: shortDir(t),
	}
	f.commands = &commands{t: t, bin: f.bin, out: places{}, env: []string{"PATH=" + os.Getenv("PATH"),
		"HOME=" + f.dir, "MGMTCTL_ADDRESS=unix://" + f.dir + "/mgmtd.sock",
		"AWS_ACCESS_KEY_ID=" + s3.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3.SecretKey}}
	f.seeds.add(t, "secret key of the bucket", s3.SecretKey)
	recipients := f.makeKeys()
	f.seedAround()
	f.seedObjects()
	metrics := freeAddress(t)
	write(t, f.dir, "mgmtd.yaml", fmt.Sprintf(secretsConfig, f.a, f.b, recipients, metrics)+s3Location(
		s3, "mgmtd"))
	p := startProcess(t, f.bin, f.dir)

	f.reads()
	f.restores()
	f.moves()
	f.standalone(s3)

	for _, op := range gjson.Get(f.mgmtctl(0, "operation", "list", "-o", "json"),
		"operations.#.id").Array() {
		f.mgmtctl(f.codeOf(op.String()), "operation", "watch", op.String(), "-o", "json")
		f.mgmtctl(0, "operation", "show", op.String(), "-o", "yaml")
	}
	resp, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil || !bytes.Contains(text, []byte("mgmtd_restore_attempt_total")) {
		t.Errorf("metrics: %s, %v", text, err)
	}
	f.out["metrics"] = text
	p.end(t, f.dir, syscall.SIGTERM)
	if f.out["log of mgmtd"], err = os.ReadFile(filepath.Join(f.dir, "mgmtd.log")); err != nil ||
		!bytes.Contains(f.out["log of mgmtd"], []byte("level=DEBUG")) {
		t.Errorf("log: %v", err)
	}
	f.out.catalogFile(t, filepath.Join(f.dir, "catalog.db"))
	f.out.catalogFile(t, filepath.Join(f.dir, "alone.db"))
	f.out.folder(t, "bucket", s3.Root)
	for _, leak := range f.out.find(f.seeds) {
		t.Error(leak)
	}

	// The search works: the restored and moved seeds are on the target, and it finds them there.
	there := places{"the target": []byte(mustKubectl(t, f.b, "", "get",
		"secrets,configmaps,kubeadmconfigs,kubeadmcontrolplanes", "-n", f.namespace, "-o", "json"))}
	for what := range f.seeds {
		if strings.HasPrefix(what, "object: ") && len(there.find(seeds{what: f.seeds[what]})) == 0 {
			t.Errorf("%s is not on the target", what)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// opens adds the flags of a command that reads encrypted content.
func (f *secretsFixture) opens(args ...string) []string {
	return append(args, "--identity", f.identity)
}

// opensProtected is opens with a passphrase.
func (f *secretsFixture) opensProtected(args ...string) []string {
	return append(args, "--identity", f.protected, "--passphrase-file", f.dir+"/passphrase")
}

// reads takes two snapshots, with a change of a Secret between them, and runs every command that
// reads them.
func (f *secretsFixture) reads() {
	f.t.Helper()
	id := func(out string) string { return gjson.Get(out, "snapshotId").String() }
	first := id(f.mgmtctl(0, "snapshot", "create", "--source", "a", "-o", "json"))
	mustKubectl(f.t, f.a, "", "patch", "-n", f.namespace, "secret", "cloud", "--type", "merge", "-p",
		fmt.Sprintf(`{"stringData":{"more":%q}}`, f.seeds.mark("object: value that came later")))
	f.mgmtctl(0, "snapshot", "create", "--source", "a")
	f.mgmtctl(0, "snapshot", "list", "-o", "json")
	for _, level := range []string{"structure", "sample", "full"} {
		f.mgmtctl(0, f.opensProtected("snapshot", "verify", "latest", "--level", level)...)
	}
	for _, format := range []string{"dot", "mermaid", "svg", "json"} {
		f.mgmtctl(0, f.opens("snapshot", "graph", "latest", "-o", format)...)
	}
	for _, format := range []string{"table", "json", "yaml"} {
		f.mgmtctl(0, "prune", "plan", "--keep-last", "1", "-o", format)
		f.mgmtctl(0, f.opens("snapshot", "show", "latest", "-o", format)...)
		f.mgmtctl(0, f.opens("snapshot", "diff", first, "latest", "-o", format)...)
		f.mgmtctl(0, f.opens("snapshot", "ls", first, "-o", format)...)
		f.mgmtctl(0, f.opens("snapshot", "find", "Secret", f.namespace+"/cloud", "-o", format)...)
		f.mgmtctl(0, "store", "stats", "--snapshots", "-o", format)
		f.mgmtctl(0, f.opens("snapshot", "diff", first, "--live", "--source", "a", "-o", format)...)
	}
	for _, format := range []string{"json", "yaml"} {
		f.mgmtctl(0, f.opens("snapshot", "cat", "latest", "Secret", f.namespace+"/cloud", "-o",
			format)...)
	}
	f.mgmtctl(1, f.opens("snapshot", "find", "Secret", f.namespace+"/no-such-object")...)
	f.mgmtctl(1, f.opens("snapshot", "cat", "latest", "Secret", f.namespace+"/no-such-object")...)
	f.mgmtctl(0, "snapshot", "coverage", "--source", "a", "-o", "json")
	f.mgmtctl(0, "mgmt", "list", "-o", "json")
	f.mgmtctl(0, "mgmt", "check", "b")
	f.mgmtctl(0, "catalog", "rebuild")
	f.mgmtctl(0, "snapshot", "pin", first, "--reason", "a test")
	f.mgmtctl(0, "prune", "run", "--keep-last", "1", "--yes", "-o", "json")
	f.mgmtctl(0, "snapshot", "unpin", first)
	f.mgmtctl(3, "snapshot", "delete", first, "--yes", "-o", "json") // it is too young
	f.mgmtctl(12, "snapshot", "verify", "latest", "--level", "full", "--identity", f.dir+
		"/other/identity.txt")
	f.mgmtctl(12, "snapshot", "diff", "latest", first, "--identity", f.dir+"/signing.key")
	f.mgmtctl(12, "snapshot", "diff", "latest", first, "--identity", f.a)
	f.mgmtctl(12, "snapshot", "show", "latest", "--identity", f.protected, "--passphrase-file", f.dir+
		"/wrong")
	f.mgmtctl(12, "snapshot", "show", "latest", "--identity", f.protected)
}

// restores restores three workload clusters. One is blocked by a Secret that exists. Two fail
// where admission quotes what it refuses, and are resumed afterwards.
func (f *secretsFixture) restores() {
	f.t.Helper()
	flags := []string{"--target", "b", "--force", "fence-unacknowledged"}
	for i := range 3 {
		mustKubectl(f.t, f.a, "", "patch", "cluster", "-n", f.namespace, fmt.Sprintf("w-0000%d", i),
			"--type", "merge", "-p", `{"metadata":{"annotations":{"mgmtd.dev/fenced":"by-operator"}},`+
				`"spec":{"paused":true}}`)
		flags = append(flags, "--workload", fmt.Sprintf("%s/w-0000%d", f.namespace, i))
	}
	for _, format := range []string{"table", "json", "yaml"} {
		f.mgmtctl(3, f.opens(append([]string{"restore", "plan", "-o", format}, flags...)...)...)
	}
	failed := f.mgmtctl(4, f.opensProtected(append([]string{"restore", "run", "--yes"}, flags...)...)...)
	for _, refused := range []string{"Secret/" + f.namespace + "/refused",
		"KubeadmConfig.bootstrap.cluster.x-k8s.io/" + f.namespace} {
		if !strings.Contains(failed, refused) {
			f.t.Errorf("admission did not refuse %s:\n%s", refused, failed)
		}
	}
	f.mgmtctl(12, "operation", "resume", "latest")
	mustKubectl(f.t, f.b, "", "delete", "validatingadmissionpolicybindings", "--all")
	mustKubectl(f.t, f.b, "", "delete", "validatingadmissionpolicies", "--all")
	wait(f.t, f.dir, "admission accepts everything", func() bool {
		out, err := kubectl(f.t, f.b, "", "create", "secret", "generic", "refused", "-n", f.namespace,
			"--from-literal=token=x")
		if err == nil {
			mustKubectl(f.t, f.b, "", "delete", "secret", "-n", f.namespace, "refused")
		}
		return err == nil && out != ""
	})
	f.mgmtctl(4, f.opensProtected("operation", "resume", "latest")...) // one is blocked still
}

// moves moves the fourth workload cluster.
func (f *secretsFixture) moves() {
	f.t.Helper()
	flags := []string{"--source", "a", "--target", "b", "--workload", f.namespace + "/w-00003"}
	f.mgmtctl(0, append([]string{"move", "plan", "-o", "json"}, flags...)...)
	f.mgmtctl(0, append([]string{"move", "run", "--yes"}, flags...)...)
}

// standalone verifies and restores without the daemon, from the same bucket.
func (f *secretsFixture) standalone(s3 *s3test.Server) {
	f.t.Helper()
	flags := []string{"--standalone", "--store", s3.URL("mgmtd", "p") + "&path-style=true",
		"--catalog", f.dir + "/alone.db", "--trusted-key", f.dir + "/signing.pub"}
	f.mgmtctl(0, f.opens(append([]string{"snapshot", "verify", "latest", "--level", "full"},
		flags...)...)...)
	f.mgmtctl(3, f.opens(append([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently",
		"--target-kubeconfig", f.b, "--workload", f.namespace + "/w-00000"}, flags...)...)...)
	mustKubectl(f.t, f.b, "", "delete", "secret", "-n", f.namespace, "collides")
	f.mgmtctl(0, f.opens(append([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
		"source-seen-recently",
		"--target-kubeconfig", f.b, "--workload", f.namespace + "/w-00000"}, flags...)...)...)
	f.mgmtctl(12, append([]string{"restore", "plan", "--source-is-gone", "--target-kubeconfig", f.b,
		"--identity", f.dir + "/other/identity.txt"}, flags...)...)
}

// codeOf returns the exit code of watching an operation.
func (f *secretsFixture) codeOf(id string) int {
	f.t.Helper()
	var op struct{ ExitCode int }
	if err := json.Unmarshal([]byte(f.mgmtctl(0, "operation", "show", id, "-o", "json")),
		&op); err != nil {
		f.t.Fatal(err)
	}
	return op.ExitCode
}
