package live

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/lab"
	"github.com/mgmtd/mgmtd/e2e/observe"
)

// Exit codes that the help of mgmtctl promises.
const (
	codeDone     = 0
	codeError    = 1
	codeFindings = 3
	codeLeft     = 4
	codeKilled   = -1 // by a signal
)

// output is what mgmtctl printed and how it ended.
type output struct {
	args           []string
	code           int
	stdout, stderr string
}

func (o output) text() string {
	return fmt.Sprintf("mgmtctl %s\nexit code %d\n--- stdout\n%s\n--- stderr\n%s",
		strings.Join(o.args, " "), o.code, o.stdout, o.stderr)
}

func (o output) decode(v any) error {
	if err := json.Unmarshal([]byte(o.stdout), v); err != nil {
		return fmt.Errorf("decode output: %w\n%s", err, o.text())
	}
	return nil
}

// exec runs mgmtctl with a state folder of its own, so that scenarios do not share a catalog.
func (w *world) exec(ctx context.Context, state string, args ...string) output {
	cmd, stdout, stderr := w.command(ctx, state, args)
	err := cmd.Run()
	return ended(cmd, err, stdout, stderr)
}

func (w *world) command(ctx context.Context, state string, args []string) (cmd *exec.Cmd, stdout,
	stderr *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, w.mgmtctl, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
	if w.s3 != nil {
		cmd.Env = append(cmd.Env, w.s3.Env()...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

func ended(cmd *exec.Cmd, err error, stdout, stderr *bytes.Buffer) output {
	o := output{args: cmd.Args[1:], stdout: stdout.String(), stderr: stderr.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		o.code = exit.ExitCode()
	} else if err != nil {
		o.code, o.stderr = 1, o.stderr+err.Error()
	}
	return o
}

// operator runs commands of one scenario.
type operator struct {
	*world
	t     *testing.T
	state string
}

// operate is for a scenario that runs beside others.
func operate(t *testing.T) *operator {
	t.Parallel()
	return &operator{world: shared, t: t, state: t.TempDir()}
}

// flags of commands that restore, standalone.
func (o *operator) flags() []string {
	return []string{
		"--standalone", "--store", o.store(), "--identity", o.keys("identity.txt"),
		"--trusted-key", o.keys("signing.pub"), "--target-kubeconfig", o.target.Kubeconfig(),
	}
}

// run runs a command and wants it to end with code.
func (o *operator) run(code int, args ...string) output {
	o.t.Helper()
	out := o.exec(o.t.Context(), o.state, args...)
	o.look(out, code)
	return out
}

// look checks the exit code, and that no value of a Secret was printed.
func (o *operator) look(out output, code int) {
	o.t.Helper()
	if out.code != code {
		o.t.Fatalf("want exit code %d:\n%s", code, out.text())
	}
	printed := out.stdout + out.stderr
	for _, secret := range o.secrets {
		for key, value := range values(secret) {
			if strings.Contains(printed, value) {
				o.t.Errorf("mgmtctl %s prints the value of %s of Secret %s/%s", strings.Join(out.args[:2], " "),
					key, secret.GetNamespace(), secret.GetName())
			}
		}
	}
}

// values are texts that only somebody can print who has the values of a Secret.
func values(secret unstructured.Unstructured) map[string]string {
	texts := map[string]string{}
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	for key, encoded := range data {
		value, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(value) < 12 {
			continue
		}
		texts[key+" in base64"] = encoded
		// Of a key or a certificate one line is enough.
		lines := strings.Split(string(value), "\n")
		texts[key] = slices.MaxFunc(lines, func(a, b string) int { return len(a) - len(b) })
	}
	return texts
}

// restore runs "restore run" with --yes.
func (o *operator) restore(code int, args ...string) output {
	o.t.Helper()
	return o.run(code, slices.Concat([]string{"restore", "run", "--yes"}, o.flags(), args)...)
}

// plan is what a restore would do.
type plan struct {
	Units []struct {
		Name    string `json:"name"`
		Blocked bool   `json:"blocked"`
	} `json:"units"`
	Findings []struct {
		Severity string `json:"severity"`
		Code     string `json:"code"`
		Unit     string `json:"unit"`
		Ref      any    `json:"ref"`
		Message  string `json:"message"`
	} `json:"findings"`
	Summary struct {
		Create int64 `json:"create,string"`
		Adopt  int64 `json:"adopt,string"`
	} `json:"summary"`
}

func (o *operator) plan(code int, args ...string) plan {
	o.t.Helper()
	out := o.exec(o.t.Context(), o.state, slices.Concat([]string{"restore", "plan", "-o", "json"},
		o.flags(), args)...)
	var p plan
	if err := out.decode(&p); err != nil {
		o.t.Fatal(err)
	}
	if out.code != code {
		// What is wrong comes first: the plan itself is long.
		for _, f := range p.Findings {
			if strings.HasSuffix(f.Severity, "_ERROR") || strings.HasSuffix(f.Severity, "_FATAL") {
				o.t.Errorf("the plan finds %s %v [%s]: %s", f.Code, f.Ref, f.Unit, f.Message)
			}
		}
	}
	o.look(out, code)
	return p
}

// finds tells whether the plan has a finding that blocks, of this code.
func (p plan) finds(code string) bool {
	for _, f := range p.Findings {
		if f.Code == code && (f.Severity == "SEVERITY_ERROR" || f.Severity == "SEVERITY_FATAL") {
			return true
		}
	}
	return false
}

// moment is an event on a management cluster, seen by a watch: that is faster
// than any polling, so whoever is killed then has no time to note what it did.
type moment struct {
	mgmt            *lab.Mgmt
	kind, namespace string
	reached         func(watch.Event) bool
}

// killed starts a command and kills it with kill -9 at a moment.
func (o *operator) killed(at moment, args ...string) {
	o.t.Helper()
	o.interrupted(at, func(process *os.Process) { _ = process.Kill() }, codeKilled, args...)
}

// interrupted starts a command and calls kill at a moment; the command must then end with code.
func (o *operator) interrupted(at moment, kill func(*os.Process), code int, args ...string) {
	o.t.Helper()
	watcher := o.watch(at)
	defer func() { watcher.Stop() }()
	cmd, stdout, stderr := o.command(o.t.Context(), o.state, args)
	if err := cmd.Start(); err != nil {
		o.t.Fatalf("start mgmtctl: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			o.t.Fatalf("it ended before it was killed:\n%s", ended(cmd, err, stdout, stderr).text())
		case event, open := <-watcher.ResultChan():
			if !open {
				// the API server was too busy to keep it; this one begins with what is there
				watcher = o.watch(at)
				continue
			}
			if !at.reached(event) {
				continue
			}
			kill(cmd.Process)
			o.look(ended(cmd, <-done, stdout, stderr), code)
			return
		}
	}
}

func (o *operator) watch(at moment) watch.Interface {
	o.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	list.SetKind(at.kind + "List")
	watcher, err := o.clients[at.mgmt].Watch(o.t.Context(), list, client.InNamespace(at.namespace))
	if err != nil {
		o.t.Fatalf("watch %s: %v", at.kind, err)
	}
	return watcher
}

// created is reached by the first object that is there.
func created(event watch.Event) bool { return event.Type == watch.Added }

// released is reached by a Cluster that is not paused, or no longer.
func released(event watch.Event) bool {
	cluster, ok := event.Object.(*unstructured.Unstructured)
	return ok && !observe.Paused(cluster)
}

// deleted is reached by the first object that goes.
func deleted(event watch.Event) bool { return event.Type == watch.Deleted }
