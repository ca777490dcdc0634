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
	codeUsage    = 2
	codeFindings = 3
	codeLeft     = 4
	codeKilled   = -1 // by a signal
)

// output is the output and the exit code of a run of mgmtctl.
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

// exec runs mgmtctl with a state folder, so that each scenario has its own catalog.
func (f *fixture) exec(ctx context.Context, state string, args ...string) output {
	cmd, stdout, stderr := f.command(ctx, state, args)
	err := cmd.Run()
	return ended(cmd, err, stdout, stderr)
}

func (f *fixture) command(ctx context.Context, state string, args []string) (cmd *exec.Cmd, stdout,
	stderr *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, f.mgmtctl, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
	if f.s3 != nil {
		cmd.Env = append(cmd.Env, f.s3.Env()...)
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
	*fixture
	t     *testing.T
	state string
}

// operate starts a scenario that runs in parallel to others.
func operate(t *testing.T) *operator { return shared.operate(t) }

// operate starts a scenario on this fixture that runs in parallel to others.
func (f *fixture) operate(t *testing.T) *operator {
	t.Parallel()
	return &operator{fixture: f, t: t, state: t.TempDir()}
}

// flags are the flags of a standalone restore.
func (o *operator) flags() []string {
	return []string{
		"--standalone", "--store", o.store(), "--identity", o.keys("identity.txt"),
		"--trusted-key", o.keys("signing.pub"), "--target-kubeconfig", o.target.Kubeconfig(),
	}
}

// run runs a command and asserts its exit code.
func (o *operator) run(code int, args ...string) output {
	o.t.Helper()
	out := o.exec(o.t.Context(), o.state, args...)
	o.assertOutput(out, code)
	return out
}

// assertOutput asserts the exit code, and that no value of a Secret was printed.
func (o *operator) assertOutput(out output, code int) {
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

// values returns texts that mgmtctl can only print when it prints a value of the Secret.
func values(secret unstructured.Unstructured) map[string]string {
	texts := map[string]string{}
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	for key, encoded := range data {
		value, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(value) < 12 {
			continue
		}
		texts[key+" in base64"] = encoded
		// One line of a key or a certificate is enough.
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

// plan is the output of restore plan.
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
		// The plan is long, so report its errors first.
		for _, f := range p.Findings {
			if strings.HasSuffix(f.Severity, "_ERROR") || strings.HasSuffix(f.Severity, "_FATAL") {
				o.t.Errorf("the plan finds %s %v [%s]: %s", f.Code, f.Ref, f.Unit, f.Message)
			}
		}
	}
	o.assertOutput(out, code)
	return p
}

// finds reports whether the plan has a finding of this code that blocks.
func (p plan) finds(code string) bool {
	for _, f := range p.Findings {
		if f.Code == code && (f.Severity == "SEVERITY_ERROR" || f.Severity == "SEVERITY_FATAL") {
			return true
		}
	}
	return false
}

// moment is an event on a management cluster. It is seen by a watch, which is faster than polling:
// a program killed at that moment has had no time to journal its last step.
type moment struct {
	mgmt            *lab.Mgmt
	kind, namespace string
	reached         func(watch.Event) bool
}

// begin starts a command, and returns its process and what it has said once it ends.
func (o *operator) begin(args ...string) (*os.Process, <-chan output) {
	o.t.Helper()
	cmd, stdout, stderr := o.command(o.t.Context(), o.state, args)
	if err := cmd.Start(); err != nil {
		o.t.Fatalf("start mgmtctl: %v", err)
	}
	done := make(chan output, 1)
	go func() { done <- ended(cmd, cmd.Wait(), stdout, stderr) }()
	return cmd.Process, done
}

// runAndKill starts a command and kills it with kill -9 at a moment.
func (o *operator) runAndKill(at moment, args ...string) {
	o.t.Helper()
	o.runAndInterrupt(at, func(process *os.Process) { _ = process.Kill() }, codeKilled, args...)
}

// runAndInterrupt starts a command, calls kill at a moment and asserts the command's exit code.
func (o *operator) runAndInterrupt(at moment, kill func(*os.Process), code int,
	args ...string) output {
	o.t.Helper()
	watcher := o.watch(at)
	defer func() { watcher.Stop() }()
	process, done := o.begin(args...)
	for {
		select {
		case out := <-done:
			o.t.Fatalf("it ended before it was killed:\n%s", out.text())
		case event, open := <-watcher.ResultChan():
			if !open {
				// A busy API server ended the watch. A new one begins with the objects that exist.
				watcher = o.watch(at)
				continue
			}
			if !at.reached(event) {
				continue
			}
			kill(process)
			out := <-done
			o.assertOutput(out, code)
			return out
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

// created is reached by the first object that exists.
func created(event watch.Event) bool { return event.Type == watch.Added }

// released is reached by a Cluster that is not paused.
func released(event watch.Event) bool {
	cluster, ok := event.Object.(*unstructured.Unstructured)
	return ok && !observe.Paused(cluster)
}

// deleted is reached by the first object that is deleted.
func deleted(event watch.Event) bool { return event.Type == watch.Deleted }
