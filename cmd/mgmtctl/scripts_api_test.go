//go:build api

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/mgmt"
)

// The scripts of testdata/api run mgmtctl against two real API servers without Cluster API controllers: what it says, how it exits, and above all that it
// changes nothing when it refuses.
//
// Each script has a namespace of its own, $NS, with the workload clusters $NS/w-00000 and $NS/w-00001 on the source and nothing on the target, so that they
// run side by side; those named alone_* change what is common to all namespaces and run one after the other. These are set:
//
//	$SOURCE, $TARGET  kubeconfigs
//	$TO               --target-kubeconfig of the target
//	$WRITE            what "snapshot create" needs: the store, the keys that encrypt and sign, the source
//	$READ             what everything else needs: the store, the identity, the trusted key
//
// Besides the commands of testscript there are:
//
//	exits CODE ARG...     run mgmtctl and want this exit code
//	refuses CODE ARG...   the same, and nothing may have changed: neither $NS on both servers, nor the store, nor may it leave an operation running
//	reads ARG...          refuses 0
//	copy REF              copy an object of the source to the target, without its owners
//	unsign, tamper        take the signature away from the newest envelope of the store; change what was signed
//	truncate PATTERN      cut the one file that fits the pattern in half
//	disk DIR SIZE         mount a file system of this size at DIR, or give the one that is there another size
//	await FILE REGEXP     wait until a line of the file matches
//	setenv NAME REGEXP    set $NAME to the first group of a regular expression that matches the last stdout
//
// An argument such as $READ, which begins with a flag and holds several, counts as several.

func TestAPIScripts(t *testing.T) {
	s := startServers(t)
	files, err := filepath.Glob("testdata/api/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("find scripts: %v", err)
	}
	var beside, alone []string
	for _, f := range files {
		if strings.HasPrefix(filepath.Base(f), "alone_") {
			alone = append(alone, f)
		} else {
			beside = append(beside, f)
		}
	}
	t.Run("beside", func(t *testing.T) { testscript.Run(t, s.params(beside...)) })
	for _, f := range alone {
		t.Run("alone", func(t *testing.T) { testscript.Run(t, s.params(f)) })
	}
}

func (s *servers) params(files ...string) testscript.Params {
	return testscript.Params{
		Files:               files,
		Setup:               s.setup,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		ContinueOnError:     true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   func(ts *testscript.TestScript, neg bool, args []string) { exits(ts, neg, split(args)) },
			"refuses": s.refuses,
			"reads": func(ts *testscript.TestScript, neg bool, args []string) {
				s.refuses(ts, neg, append([]string{"0"}, args...))
			},
			"copy":     s.copyObject,
			"unsign":   unsign,
			"tamper":   tamper,
			"truncate": truncate,
			"disk":     disk,
			"await":    await,
			"setenv":   setenv,
		},
	}
}

// servers are two bare API servers, the source and the target.
type servers struct {
	lab            string
	source, target *mgmt.Mgmt
	kubeconfigs    [2]string
	kinds          []mgmt.Kind
}

// startServers starts them for the time of one test; the other tests of the package need none.
func startServers(t *testing.T) *servers {
	t.Helper()
	bin, err := filepath.Abs("../../.lab/bin")
	if err != nil {
		t.Fatal(err)
	}
	s := &servers{lab: filepath.Join(bin, "lab")}
	if _, err := os.Stat(s.lab); err != nil {
		t.Fatalf("start API servers: %v: run make lab", err)
	}
	dir, err := os.MkdirTemp("", "mgmtctltest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.Command(s.lab, "up", "--bare", "--dir", dir, "--mgmt", "2")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start API servers: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	if seen, ok := readyWithin(3*time.Minute, bufio.NewScanner(out)); !ok {
		t.Fatalf("start API servers: %s", seen)
	}
	for i := range s.kubeconfigs {
		s.kubeconfigs[i] = filepath.Join(dir, fmt.Sprintf("mgmt-%d", i+1), "kubeconfig")
	}
	s.source, s.target = s.connect(t, 0), s.connect(t, 1)
	if s.kinds, err = s.source.Reader().Kinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// readyWithin waits for the line "ready", and gives what was said until then.
func readyWithin(limit time.Duration, lines *bufio.Scanner) (string, bool) {
	ready := make(chan string, 1)
	go func() {
		var seen []string
		for lines.Scan() {
			seen = append(seen, lines.Text())
			if lines.Text() == "ready" {
				ready <- ""
			}
		}
		select {
		case ready <- strings.Join(seen, "\n"):
		default:
		}
	}()
	select {
	case seen := <-ready:
		return seen, seen == ""
	case <-time.After(limit):
		return "not ready after " + limit.String(), false
	}
}

func (s *servers) connect(t *testing.T, i int) *mgmt.Mgmt {
	t.Helper()
	m, err := mgmt.Connect(t.Context(), mgmt.Options{KubeconfigFile: s.kubeconfigs[i]})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// setup fills the script's namespace on the source and makes keys.
func (s *servers) setup(env *testscript.Env) error {
	script := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"), "_", "-")
	fill := []string{"fleet", "--bare", "--kubeconfig", s.kubeconfigs[0], "--namespace-prefix", script + "-", "--workloads", "2", "--machines", "2", "--fast"}
	if strings.HasPrefix(script, "alone") {
		fill = append(fill, "--machine-pools") // a kind that no other script needs, so that it can be taken away
	}
	out, err := exec.Command(s.lab, fill...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fill source: %w\n%s", err, out)
	}
	keys := filepath.Join(env.WorkDir, "keys")
	if err := makeKeys(keys); err != nil {
		return err
	}
	recipient, err := os.ReadFile(filepath.Join(keys, "recipient.txt"))
	if err != nil {
		return err
	}
	common := "--standalone --store $WORK/store --catalog $WORK/catalog.db"
	for name, value := range map[string]string{
		"NS":        script + "-team-0000",
		"HOME":      "$WORK/home",
		"SOURCE":    s.kubeconfigs[0],
		"TARGET":    s.kubeconfigs[1],
		"TO":        "--target-kubeconfig " + s.kubeconfigs[1],
		"WRITE":     common + " --recipient $RECIPIENT --signing-key $WORK/keys/signing.key --source-kubeconfig " + s.kubeconfigs[0],
		"READ":      common + " --identity $WORK/keys/identity.txt --trusted-key $WORK/keys/signing.pub",
		"RECIPIENT": "$RECIPIENT",
		"PATH":      filepath.Dir(s.lab) + string(filepath.ListSeparator) + env.Getenv("PATH"),
	} {
		env.Setenv(name, strings.NewReplacer("$WORK", env.WorkDir, "$RECIPIENT", strings.TrimSpace(string(recipient))).Replace(value))
	}
	return nil
}

// split makes several arguments of one that begins with a flag and holds several.
func split(args []string) []string {
	var all []string
	for _, a := range args {
		if strings.HasPrefix(a, "--") && strings.Contains(a, " ") {
			all = append(all, strings.Fields(a)...)
		} else {
			all = append(all, a)
		}
	}
	return all
}

// state is what must not change: objects with their UIDs and versions, files with their hashes.
type state map[string]string

// look takes the state of the script's namespace on both servers, and of its store.
func (s *servers) look(ts *testscript.TestScript) state {
	all := state{}
	var mu sync.Mutex
	set := func(key, value string) {
		mu.Lock()
		defer mu.Unlock()
		all[key] = value
	}
	ns := ts.Getenv("NS")
	var g errgroup.Group
	g.SetLimit(8)
	for side, m := range map[string]*mgmt.Mgmt{"source": s.source, "target": s.target} {
		for _, k := range s.kinds {
			o := mgmt.ListOptions{Namespace: ns, Metadata: true}
			if !k.Namespaced {
				o.Name = ns
			}
			g.Go(func() error {
				_, err := m.Reader().List(context.Background(), k, o, func(raw []byte) error {
					meta := gjson.GetBytes(raw, "metadata")
					set(fmt.Sprintf("%s: %s/%s", side, k.GroupKind, meta.Get("name")), meta.Get("uid").String()+" version "+meta.Get("resourceVersion").String())
					return nil
				})
				if apierrors.IsNotFound(err) {
					return nil // a script has taken the kind away
				}
				return err
			})
		}
	}
	ts.Check(g.Wait())
	root := ts.MkAbs("store")
	ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String() + " " + info.ModTime().String()
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		all[path] = text
		return nil
	}))
	return all
}

// differences gives a line for each key that is not alike.
func (s state) differences(now state) []string {
	var lines []string
	keys := maps.Clone(s)
	maps.Copy(keys, now)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if s[key] != now[key] {
			lines = append(lines, fmt.Sprintf("%s: was %q, is %q", key, s[key], now[key]))
		}
	}
	return lines
}

// refuses runs mgmtctl, wants this exit code and that nothing has changed.
func (s *servers) refuses(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refuses CODE ARG...")
	}
	before := s.look(ts)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(before)), func(key string) bool { return strings.HasPrefix(key, "source: Cluster.") }) {
		ts.Fatalf("the source holds no Clusters in %s: this proves nothing", ts.Getenv("NS"))
	}
	exits(ts, neg, split(args))
	if d := before.differences(s.look(ts)); len(d) > 0 {
		ts.Fatalf("something changed:\n%s", strings.Join(d, "\n"))
	}
	if args[0] == "11" {
		return // another process holds the catalog: no operation could have been written to it
	}
	if left := atWorkIn(ts); len(left) > 0 {
		ts.Fatalf("operations were left running: %v", left)
	}
}

// atWorkIn gives the operations of the script's catalog that have not ended.
func atWorkIn(ts *testscript.TestScript) []string {
	var out, said bytes.Buffer
	p := &program{stdin: strings.NewReader(""), stdout: &out, stderr: &console{w: &said}, getenv: ts.Getenv, now: time.Now, serve: serveStandalone}
	if code := p.run(context.Background(), []string{"operation", "list", "--standalone", "--catalog", ts.MkAbs("catalog.db"), "-o", "json"}); code != 0 {
		ts.Fatalf("list operations: exit code %d: %s", code, &said)
	}
	var ids []string
	for _, op := range gjson.Get(out.String(), "operations").Array() {
		if state := op.Get("state").String(); state == "OPERATION_STATE_RUNNING" || state == "OPERATION_STATE_PLANNED" {
			ids = append(ids, op.Get("id").String())
		}
	}
	return ids
}

// copyObject copies an object of the source to the target, without its owners.
func (s *servers) copyObject(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: copy REF")
	}
	ref, err := mgmt.ParseRef(args[0])
	ts.Check(err)
	k, ok := mgmt.FindKind(s.kinds, ref.GroupKind())
	if !ok {
		ts.Fatalf("copy: no kind %s", ref.GroupKind())
	}
	obj, err := s.source.Reader().Get(context.Background(), k, ref.Namespace, ref.Name)
	ts.Check(err)
	obj.SetResourceVersion("")
	obj.SetUID("")
	obj.SetManagedFields(nil)
	obj.SetOwnerReferences(nil)
	_, err = s.target.Writer().Create(context.Background(), k, obj)
	ts.Check(err)
}

// newestEnvelope is the file of the newest snapshot in the store.
func newestEnvelope(ts *testscript.TestScript) string {
	files, err := filepath.Glob(ts.MkAbs("store/snapshots/*/*.json"))
	ts.Check(err)
	if len(files) == 0 {
		ts.Fatalf("the store has no snapshot")
	}
	return slices.MaxFunc(files, func(a, b string) int { return cmp.Compare(filepath.Base(a), filepath.Base(b)) })
}

// rewriteEnvelope changes the newest envelope as somebody would who can write to the store.
func rewriteEnvelope(ts *testscript.TestScript, change func(envelope map[string]string)) {
	file := newestEnvelope(ts)
	data, err := os.ReadFile(file)
	ts.Check(err)
	envelope := map[string]string{}
	ts.Check(json.Unmarshal(data, &envelope))
	if envelope["payload"] == "" || envelope["signature"] == "" {
		ts.Fatalf("%s has no payload or no signature", file)
	}
	change(envelope)
	data, err = json.Marshal(envelope)
	ts.Check(err)
	ts.Check(os.WriteFile(file, data, 0o600))
}

func unsign(ts *testscript.TestScript, _ bool, _ []string) {
	rewriteEnvelope(ts, func(e map[string]string) { e["signature"] = "" })
}

func tamper(ts *testscript.TestScript, _ bool, _ []string) {
	rewriteEnvelope(ts, func(e map[string]string) {
		changed := strings.Replace(e["payload"], `"sequence":1`, `"sequence":7`, 1)
		if changed == e["payload"] {
			ts.Fatalf("the payload has no sequence to change")
		}
		e["payload"] = changed
	})
}

func truncate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: truncate PATTERN")
	}
	files, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(files) != 1 {
		ts.Fatalf("truncate: %d files fit %s, want 1", len(files), args[0])
	}
	info, err := os.Stat(files[0])
	ts.Check(err)
	ts.Check(os.Truncate(files[0], info.Size()/2))
}

// disk mounts a tmpfs, which is full as a real disk is full. It does not skip where that is refused: a full disk is what happens in an outage.
func disk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: disk DIR SIZE")
	}
	dir, size := ts.MkAbs(args[0]), "size="+args[1]
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, size); err == nil {
		return
	}
	ts.Check(os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, size+",mode=0700"); err != nil {
		ts.Fatalf("mount a small file system: %v: this test needs the right to mount (run it as root, or in a container with CAP_SYS_ADMIN)", err)
	}
	ts.Defer(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	file := ts.MkAbs(args[0])
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if data, err := os.ReadFile(file); err == nil && re.Match(data) {
			return
		}
	}
	data, _ := os.ReadFile(file)
	ts.Fatalf("await: %s does not match %s:\n%s", args[0], args[1], data)
}

func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenv NAME REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	m := re.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) != 2 {
		ts.Fatalf("setenv: stdout does not match %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}
