//go:build api

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// seeds are values that must not be found, by what they are.
type seeds map[string]string

// mark makes a value that nothing else has. It is made of letters and digits, so that no escaping
// changes it.
func (s seeds) mark(what string) string {
	s[what] = fmt.Sprintf("Marker%03dOf%xEnd", len(s), bytes.Repeat([]byte{byte(37 + 11*len(s))}, 7))
	return s[what]
}

// add adds a value that is there anyway.
func (s seeds) add(t *testing.T, what, value string) {
	t.Helper()
	if len(value) < 16 {
		t.Fatalf("%s has %d characters, which may be found anywhere", what, len(value))
	}
	s[what] = value
}

// forms are what a value looks like raw, in hex and in base64, wherever in the encoded text it
// begins; and the base64 of that, for Secrets inside of something.
func forms(value string) [][]byte {
	list := [][]byte{[]byte(value), []byte(hex.EncodeToString([]byte(value))),
		[]byte(strings.ToUpper(hex.EncodeToString([]byte(value))))}
	for _, once := range aligned(value) {
		list = append(list, []byte(once), []byte(strings.NewReplacer("+", "-", "/", "_").Replace(once)))
		for _, twice := range aligned(once) {
			list = append(list, []byte(twice))
		}
	}
	return list
}

// aligned gives the three base64 texts of a value without the characters that its neighbours have
// a part in.
func aligned(value string) (texts []string) {
	for before := range 3 {
		all := base64.StdEncoding.EncodeToString(append(make([]byte, before), value...))
		texts = append(texts, all[(before*8+5)/6:(before+len(value))*8/6])
	}
	return texts
}

// places are what is looked through, by where it is from.
type places map[string][]byte

// find gives where each seed is, and in which form.
func (p places) find(s seeds) (found []string) {
	for what, value := range s {
		for _, form := range forms(value) {
			for place, text := range p {
				if i := bytes.Index(text, form); i >= 0 {
					found = append(found, fmt.Sprintf("%s is in %s: ...%q...", what, place,
						text[max(0, i-80):min(len(text), i+len(form)+20)]))
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// folder adds all files of a folder, with their paths.
func (p places) folder(t *testing.T, name, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		key := strings.TrimPrefix(path, dir)
		text, err := os.ReadFile(path)
		p[name+" key "+key], p[name+" bytes of "+key] = []byte(key), text
		if strings.HasSuffix(key, ".zst") {
			p[name+" decompressed "+key] = decompressed(t, text)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%s: %d files, %v", name, files, err)
	}
}

func decompressed(t *testing.T, text []byte) []byte {
	t.Helper()
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	plain, err := dec.DecodeAll(text, nil)
	if err != nil {
		t.Error(err)
	}
	return plain
}

// catalogFile adds a catalog: its bytes, and what is compressed in them.
func (p places) catalogFile(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p["catalog "+path] = text
	c, err := catalog.Open(t.Context(), path, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ops, err := c.Operations(t.Context(), catalog.OperationFilter{})
	if err != nil {
		t.Fatal(err)
	}
	plans := 0
	for _, op := range ops {
		if plan, err := c.Plan(t.Context(), op.ID); err == nil {
			p["plan of "+string(op.Kind)+" "+string(op.ID)] = plan
			plans++
		}
	}
	if plans == 0 {
		t.Errorf("%s holds no plan", path)
	}
	// Parts of plans have no list: what is compressed begins with a mark of its own.
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for i := bytes.Index(text, magic); i >= 0; {
		dec, err := zstd.NewReader(bytes.NewReader(text[i:]), zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		plain, _ := io.ReadAll(io.LimitReader(dec, 64<<20)) // what comes after the frame is none
		dec.Close()
		p[fmt.Sprintf("frame at %d of %s", i, path)] = plain
		next := bytes.Index(text[i+1:], magic)
		if next < 0 {
			break
		}
		i += 1 + next
	}
}

// commands are runs of mgmtctl with all that it wrote.
type commands struct {
	t   *testing.T
	bin string
	env []string
	out places
	n   int
}

// mgmtctl runs it and wants an exit code.
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

// kubectl runs the lab's kubectl and gives all that it wrote.
func kubectl(t *testing.T, kubeconfig, stdin string, args ...string) (string, error) {
	t.Helper()
	lab, err := kubetest.Lab()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(lab), "kubectl"),
		append([]string{"--kubeconfig", kubeconfig}, args...)...)
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

// policy makes the API server quote a value of what it refuses in the text of the error, as an
// admission webhook may.
const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: ["%[2]s"], apiVersions: ["*"], operations: [CREATE], resources: [%[3]s]}]}
  validations: [{expression: "(has(request.dryRun) && request.dryRun) || !(%[4]s)", messageExpression: "%[5]s"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

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

// yard is what the test works with.
type yard struct {
	t                  *testing.T
	seeds              seeds
	a, b               string // kubeconfigs
	namespace          string
	bin, dir, identity string
	*commands
}

// TestAPISecretsStayInside seeds values that can be known again into everything that is secret, on
// management clusters and around them, takes snapshots, reads, restores, fails and moves, and
// finds none of them, raw or encoded, in anything that is written (invariant I6).
func TestAPISecretsStayInside(t *testing.T) {
	servers := kubetest.Start(t, 2)
	servers.Fleet(t, 0, "--namespace-prefix", "secrets-", "--workloads", "4", "--machines", "1")
	servers.Acknowledge(t, 0)
	servers.Acknowledge(t, 1)
	s3 := s3test.Start(t, s3test.Options{})
	s3.NewBucket(t, "mgmtd")
	y := &yard{
		t: t, seeds: seeds{}, a: servers.Options(0).KubeconfigFile, b: servers.Options(1).KubeconfigFile,
		namespace: "secrets-team-0000", bin: programs(t), dir: shortDir(t),
	}
	y.commands = &commands{t: t, bin: y.bin, out: places{}, env: []string{"PATH=" + os.Getenv("PATH"),
		"HOME=" + y.dir, "MGMTCTL_ADDRESS=unix://" + y.dir + "/mgmtd.sock",
		"AWS_ACCESS_KEY_ID=" + s3.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3.SecretKey}}
	y.seeds.add(t, "secret key of the bucket", s3.SecretKey)
	recipient := y.makeKeys()
	y.seedAround()
	y.seedObjects()
	metrics := freeAddress(t)
	write(t, y.dir, "mgmtd.yaml", fmt.Sprintf(secretsConfig, y.a, y.b, recipient, metrics)+s3Location(
		s3, "mgmtd"))
	p := startProcess(t, y.bin, y.dir)

	y.reads()
	y.restores()
	y.moves()
	y.standalone(s3)

	for _, op := range gjson.Get(y.mgmtctl(0, "operation", "list", "-o", "json"),
		"operations.#.id").Array() {
		y.mgmtctl(y.codeOf(op.String()), "operation", "watch", op.String(), "-o", "json")
		y.mgmtctl(0, "operation", "show", op.String(), "-o", "yaml")
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
	y.out["metrics"] = text
	p.end(t, y.dir, syscall.SIGTERM)
	if y.out["log of mgmtd"], err = os.ReadFile(filepath.Join(y.dir, "mgmtd.log")); err != nil ||
		!bytes.Contains(y.out["log of mgmtd"], []byte("level=DEBUG")) {
		t.Errorf("log: %v", err)
	}
	y.out.catalogFile(t, filepath.Join(y.dir, "catalog.db"))
	y.out.catalogFile(t, filepath.Join(y.dir, "alone.db"))
	y.out.folder(t, "bucket", s3.Root)
	for _, leak := range y.out.find(y.seeds) {
		t.Error(leak)
	}

	// The seeds were there to be leaked: they went all the way to the target, and the search knows
	// them there.
	there := places{"the target": []byte(mustKubectl(t, y.b, "", "get",
		"secrets,configmaps,kubeadmconfigs,kubeadmcontrolplanes", "-n", y.namespace, "-o", "json"))}
	for what := range maps.Keys(y.seeds) {
		if strings.HasPrefix(what, "object: ") && len(there.find(seeds{what: y.seeds[what]})) == 0 {
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

// makeKeys makes the daemon's keys with an identity that a passphrase protects, and gives the
// recipient.
func (y *yard) makeKeys() (recipient string) {
	y.t.Helper()
	write(y.t, y.dir, "passphrase", y.seeds.mark("passphrase")+"\n")
	write(y.t, y.dir, "wrong", y.seeds.mark("wrong passphrase")+"\n")
	y.mgmtctl(0, "keygen", "--out", y.dir+"/keys", "--passphrase", "--passphrase-file", y.dir+
		"/passphrase")
	y.mgmtctl(0, "keygen", "--out", y.dir+"/stranger")
	y.identity = y.dir + "/keys/identity.txt"
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(y.dir, name))
		if err != nil {
			y.t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	for _, name := range []string{"signing.key", "signing.pub"} {
		write(y.t, y.dir, name, read("keys/"+name)+"\n")
	}
	_, stranger, _ := strings.Cut(read("stranger/identity.txt"), "AGE-SECRET-KEY-")
	y.seeds.add(y.t, "another identity", stranger)
	_, signing, _ := strings.Cut(read("signing.key"), "\n")
	y.seeds.add(y.t, "signing key", signing[40:])
	return read("keys/recipient.txt")
}

// seedAround knows what opens the management clusters.
func (y *yard) seedAround() {
	y.t.Helper()
	for name, file := range map[string]string{"a": y.a, "b": y.b} {
		key := mustKubectl(y.t, file, "", "config", "view", "--raw", "-o",
			"jsonpath={.users[0].user.client-key-data}")
		y.seeds.add(y.t, "key of the kubeconfig of "+name, pemLine(y.t, key))
	}
}

// pemLine gives a line out of the middle of a key in base64 of PEM.
func pemLine(t *testing.T, encoded string) string {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(encoded)
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 4 {
		t.Fatalf("no key in PEM: %v", err)
	}
	return lines[2]
}

// opens are the flags of a command that reads what is encrypted.
func (y *yard) opens(args ...string) []string {
	return append(args, "--identity", y.identity, "--passphrase-file", y.dir+"/passphrase")
}

// reads takes two snapshots, with a change of a Secret between them, and looks at them in every
// way.
func (y *yard) reads() {
	y.t.Helper()
	id := func(out string) string { return gjson.Get(out, "snapshotId").String() }
	first := id(y.mgmtctl(0, "snapshot", "create", "--source", "a", "-o", "json"))
	mustKubectl(y.t, y.a, "", "patch", "-n", y.namespace, "secret", "cloud", "--type", "merge", "-p",
		fmt.Sprintf(`{"stringData":{"more":%q}}`, y.seeds.mark("object: value that came later")))
	y.mgmtctl(0, "snapshot", "create", "--source", "a")
	y.mgmtctl(0, "snapshot", "list", "-o", "json")
	for _, level := range []string{"structure", "sample", "full"} {
		y.mgmtctl(0, y.opens("snapshot", "verify", "latest", "--level", level)...)
	}
	for _, format := range []string{"dot", "mermaid", "svg", "json"} {
		y.mgmtctl(0, y.opens("snapshot", "graph", "latest", "-o", format)...)
	}
	for _, format := range []string{"table", "json", "yaml"} {
		y.mgmtctl(0, "prune", "plan", "--keep-last", "1", "-o", format)
		y.mgmtctl(0, y.opens("snapshot", "show", "latest", "-o", format)...)
		y.mgmtctl(0, y.opens("snapshot", "diff", first, "latest", "-o", format)...)
		y.mgmtctl(0, y.opens("snapshot", "diff", first, "--live", "--source", "a", "-o", format)...)
	}
	y.mgmtctl(0, "snapshot", "coverage", "--source", "a", "-o", "json")
	y.mgmtctl(0, "mgmt", "list", "-o", "json")
	y.mgmtctl(0, "mgmt", "check", "b")
	y.mgmtctl(0, "catalog", "rebuild")
	y.mgmtctl(0, "snapshot", "pin", first, "--reason", "a test")
	y.mgmtctl(0, "prune", "run", "--keep-last", "1", "--yes", "-o", "json")
	y.mgmtctl(0, "snapshot", "unpin", first)
	y.mgmtctl(3, "snapshot", "delete", first, "--yes", "-o", "json") // it is too young
	y.mgmtctl(12, "snapshot", "verify", "latest", "--level", "full", "--identity", y.dir+
		"/stranger/identity.txt")
	y.mgmtctl(12, "snapshot", "diff", "latest", first, "--identity", y.dir+"/signing.key")
	y.mgmtctl(12, "snapshot", "diff", "latest", first, "--identity", y.a)
	y.mgmtctl(12, "snapshot", "show", "latest", "--identity", y.identity, "--passphrase-file", y.dir+
		"/wrong")
	y.mgmtctl(12, "snapshot", "show", "latest", "--identity", y.identity)
}

// restores restores three workload clusters: one is blocked by a Secret that is there, two fail
// where admission quotes what it refuses, and are gone on with after it.
func (y *yard) restores() {
	y.t.Helper()
	flags := []string{"--target", "b", "--source-is-gone", "--force"}
	for i := range 3 {
		flags = append(flags, "--workload", fmt.Sprintf("%s/w-0000%d", y.namespace, i))
	}
	for _, format := range []string{"table", "json", "yaml"} {
		y.mgmtctl(3, y.opens(append([]string{"restore", "plan", "-o", format}, flags...)...)...)
	}
	failed := y.mgmtctl(4, y.opens(append([]string{"restore", "run", "--yes"}, flags...)...)...)
	for _, refused := range []string{"Secret/" + y.namespace + "/refused",
		"KubeadmConfig.bootstrap.cluster.x-k8s.io/" + y.namespace} {
		if !strings.Contains(failed, refused) {
			y.t.Errorf("admission did not refuse %s:\n%s", refused, failed)
		}
	}
	y.mgmtctl(12, "operation", "resume", "latest")
	mustKubectl(y.t, y.b, "", "delete", "validatingadmissionpolicybindings", "--all")
	mustKubectl(y.t, y.b, "", "delete", "validatingadmissionpolicies", "--all")
	wait(y.t, y.dir, "admission takes everything", func() bool {
		out, err := kubectl(y.t, y.b, "", "create", "secret", "generic", "refused", "-n", y.namespace,
			"--from-literal=token=x")
		if err == nil {
			mustKubectl(y.t, y.b, "", "delete", "secret", "-n", y.namespace, "refused")
		}
		return err == nil && out != ""
	})
	y.mgmtctl(4, y.opens("operation", "resume", "latest")...) // one is blocked still
}

// moves moves the fourth.
func (y *yard) moves() {
	y.t.Helper()
	flags := []string{"--source", "a", "--target", "b", "--workload", y.namespace + "/w-00003"}
	y.mgmtctl(0, append([]string{"move", "plan", "-o", "json"}, flags...)...)
	y.mgmtctl(0, append([]string{"move", "run", "--yes"}, flags...)...)
}

// standalone does some of it without the daemon, into the same bucket.
func (y *yard) standalone(s3 *s3test.Server) {
	y.t.Helper()
	flags := []string{"--standalone", "--store", s3.URL("mgmtd", "p") + "&path-style=true",
		"--catalog", y.dir + "/alone.db", "--trusted-key", y.dir + "/signing.pub"}
	y.mgmtctl(0, y.opens(append([]string{"snapshot", "verify", "latest", "--level", "full"},
		flags...)...)...)
	y.mgmtctl(3, y.opens(append([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
		"--target-kubeconfig", y.b, "--workload", y.namespace + "/w-00000"}, flags...)...)...)
	mustKubectl(y.t, y.b, "", "delete", "secret", "-n", y.namespace, "collides")
	y.mgmtctl(0, y.opens(append([]string{"restore", "run", "--yes", "--source-is-gone", "--force",
		"--target-kubeconfig", y.b, "--workload", y.namespace + "/w-00000"}, flags...)...)...)
	y.mgmtctl(12, append([]string{"restore", "plan", "--source-is-gone", "--target-kubeconfig", y.b,
		"--identity", y.dir + "/stranger/identity.txt"}, flags...)...)
}

// codeOf is the exit code that watching an operation ends with.
func (y *yard) codeOf(id string) int {
	y.t.Helper()
	var op struct{ ExitCode int }
	if err := json.Unmarshal([]byte(y.mgmtctl(0, "operation", "show", id, "-o", "json")),
		&op); err != nil {
		y.t.Fatal(err)
	}
	return op.ExitCode
}
