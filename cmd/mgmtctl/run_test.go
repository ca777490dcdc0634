package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestExitCodeFollowsTheOperation compares the exit codes of ended operations with the table.
func TestExitCodeFollowsTheOperation(t *testing.T) {
	tests := []struct {
		name    string
		op      *mgmtv1.Operation
		code    int
		resumes bool
	}{
		{"all done", testOperation(succeeded, 0, true), 0, false},
		{"findings, nothing changed", testOperation(failed, 3, false), 3, false},
		{"units failed", testOperation(failed, 4, true), 4, true},
		{"store lost before any change", testOperation(failed, 10, false), 10, false},
		{"identity lost", testOperation(mgmtv1.OperationState_OPERATION_STATE_NEEDS_IDENTITY, 12, false),
			12, false},
		{"failed without a code", testOperation(failed, 0, false), 1, false},
		{"stopped by another, changed", testOperation(stopped, 0, true), 4, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.operation, f.events = tt.op, testEvents(tt.op.GetState())
			r := runner{fake: f}.run(t, "restore run --yes"+readFlags+" -o json").want(t, tt.code)
			const resume = "mgmtctl operation resume 65f1a2b3c4d5 --standalone --store /s --plain " +
				"--target-kubeconfig t\n"
			if strings.Contains(r.stderr, resume) != tt.resumes {
				t.Errorf("resume command printed: %v, want %v:\n%s", !tt.resumes, tt.resumes, r.stderr)
			}
			var op map[string]any
			if err := json.Unmarshal([]byte(r.stdout), &op); err != nil || op["id"] != "65f1a2b3c4d5" {
				t.Errorf("stdout is no operation (%v): %s", err, r.stdout)
			}
		})
	}
}

// TestInterruptStopsBetweenSteps sends signals while an operation runs.
func TestInterruptStopsBetweenSteps(t *testing.T) {
	tests := []struct {
		name string
		op   *mgmtv1.Operation
		line string
		code int
		says string
	}{
		{"nothing changed", testOperation(stopped, 0, false), "", 130, "interrupted"},
		{"nothing changed, with a code", testOperation(stopped, 1, false), "", 130, "interrupted"},
		{"changed", testOperation(stopped, 130, true), "", 4, "operation resume"},
		{"done before it could stop", testOperation(succeeded, 0, true), "", 0, ""},
		{"failed before it could stop", testOperation(failed, 3, false), "", 3, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.operation, f.events, f.untilStop = tt.op, testEvents(tt.op.GetState()), true
			signals := make(chan os.Signal, 1)
			go func() { <-f.watching; signals <- syscall.SIGTERM }()
			r := runner{fake: f, signals: signals}.run(t, "restore run --yes"+readFlags)
			r.want(t, tt.code).stderrHas(t, "stopping between two steps", tt.says)
		})
	}
}

func TestTimeoutStopsLikeAnInterrupt(t *testing.T) {
	for changed, code := range map[bool]int{true: 4, false: 1} {
		f := newFake()
		f.operation, f.events, f.untilStop = testOperation(stopped, 0, changed), testEvents(stopped), true
		runner{fake: f}.run(t, "restore run --yes --timeout 50ms"+readFlags).want(t, code)
	}
}

// TestInterruptWhileBeginningFindsTheOperation finds the operation although the call that began it
// was cancelled.
func TestInterruptWhileBeginningFindsTheOperation(t *testing.T) {
	for _, begun := range []bool{true, false} {
		f := newFake()
		f.operation, f.events = testOperation(stopped, 0, true), testEvents(stopped)
		signals := make(chan os.Signal, 1)
		f.begin = func(ctx context.Context) error {
			signals <- os.Interrupt
			<-ctx.Done()
			return ctx.Err()
		}
		want := 130
		if begun {
			f.operation.CreateTime = timestamppb.New(time.Now().Add(time.Hour))
			want = 4
		}
		runner{fake: f, signals: signals}.run(t, "restore run --yes"+readFlags).want(t, want)
	}
}

// TestInterruptDetachesFromDaemon leaves the operation to the daemon.
func TestInterruptDetachesFromDaemon(t *testing.T) {
	for changed, code := range map[bool]int{true: 4, false: 130} {
		f := newFake()
		f.operation, f.events, f.untilStop = testOperation(running, 0, changed), testEvents(stopped), true
		dir, listener := listenShort(t)
		serveOn(t, f, listener)
		signals := make(chan os.Signal, 1)
		go func() { <-f.watching; signals <- os.Interrupt }()
		r := runner{fake: newFake(), signals: signals, getenv: map[string]string{"XDG_RUNTIME_DIR": dir}}
		r.run(t, "restore run --yes").want(t, code).stderrHas(t, "goes on in the daemon; to watch "+
			"it:\n  mgmtctl operation watch 65f1a2b3c4d5\n")
		select {
		case <-f.stopped:
			t.Error("the daemon was stopped")
		default:
		}
	}
}

// TestSignalEndsAWaitForAServer ends a run that waits for a server that never answers with a real
// signal.
func TestSignalEndsAWaitForAServer(t *testing.T) {
	dir, listener := listenShort(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	accepted := make(chan net.Conn, 2)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	go func() {
		first, second := <-accepted, <-accepted // the first only asks whether anyone is there
		defer first.Close()
		defer second.Close()
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		for range accepted {
		}
	}()
	var stderr strings.Builder
	if code := Run(t.Context(), []string{"operation", "list"}, strings.NewReader(""), io.Discard,
		&stderr); code != 130 {
		t.Errorf("exit code %d, want 130: %s", code, stderr.String())
	}
	_ = listener.Close()
}

// TestSecondInterruptReturnsAtOnce waits for nothing.
func TestSecondInterruptReturnsAtOnce(t *testing.T) {
	f := newFake()
	release := make(chan struct{})
	defer close(release)
	signals := make(chan os.Signal, 2)
	f.begin = func(context.Context) error {
		signals <- os.Interrupt
		signals <- os.Interrupt
		<-release
		return nil
	}
	runner{fake: f, signals: signals}.run(t, "snapshot create"+writeFlags).want(t, 130)
}

// TestInterruptedWatchLeavesTheOperation does not stop the operation.
func TestInterruptedWatchLeavesTheOperation(t *testing.T) {
	f := newFake()
	f.operation, f.events, f.untilStop = testOperation(running, 0, true), testEvents(stopped), true
	signals := make(chan os.Signal, 1)
	go func() { <-f.watching; signals <- os.Interrupt }()
	runner{fake: f, signals: signals}.run(t, "operation watch latest"+catalogFlags).want(t,
		130).stderrHas(t, "interrupted")
}

// TestBrokenWatchReadsTheOperation reads the result of the operation when the stream of events
// breaks.
func TestBrokenWatchReadsTheOperation(t *testing.T) {
	f := newFake()
	f.operation, f.events, f.watchErr = testOperation(failed, 4, true), testEvents(failed)[:2],
		status.Error(codes.Internal, "event is damaged")
	runner{fake: f}.run(t, "restore run --yes"+readFlags).want(t, 4).stderrHas(t, "event is damaged",
		"operation resume 65f1a2b3c4d5")
}

// TestRunWhoseEndIsLostSaysHowToGoOn: the disk of the catalog is full, so that nobody can say what
// became of the operation.
func TestRunWhoseEndIsLostSaysHowToGoOn(t *testing.T) {
	for kind, code := range map[string]int{kindMove: 4, kindRestore: 4, "snapshot": 1} {
		f := newFake()
		f.operation, f.events, f.watchErr = testOperation(running, 0, false), testEvents(failed)[:2],
			status.Error(codes.Internal, "no space left for the catalog")
		f.operation.Kind = kind
		r := runner{fake: f}.run(t, "move run --yes"+moveStandalone).want(t, code).stderrHas(t,
			"no space left for the catalog")
		for _, verb := range []string{"resume", "rollback"} {
			if strings.Contains(r.stderr, "operation "+verb+" 65f1a2b3c4d5") != (code == 4) {
				t.Errorf("%s: %s is wrong in:\n%s", kind, verb, r.stderr)
			}
		}
	}
}

func TestRestoreRunsOnlyAfterYes(t *testing.T) {
	tests := []struct {
		name        string
		interactive bool
		answer      string
		code        int
		runs        bool
	}{
		{"yes", true, "yes\n", 0, true},
		{"no", true, "no\n", 2, false},
		{"only yes is yes", true, "y\n", 2, false},
		{"end of input", true, "", 2, false},
		{"no terminal", false, "yes\n", 2, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.plan, f.operation, f.events = testPlan(), testOperation(succeeded, 0, true),
				testEvents(succeeded)
			r := runner{fake: f, interactive: tt.interactive, stdin: strings.NewReader(tt.answer)}.run(t,
				"restore run"+readFlags).want(t, tt.code)
			if !tt.interactive {
				r.stderrHas(t, "--yes")
				return
			}
			r.stderrHas(t, "2 to create, 1 to adopt, 1 left out; findings block 1 workload cluster", "owner-missing",
				"Restore this?")
			if !tt.runs {
				return
			}
			if got := requestOf[*mgmtv1.RunRestoreRequest](t, f).GetPlanDigest(); got != "d1ge57" {
				t.Errorf("plan digest %q is not that of the plan shown", got)
			}
		})
	}
}

func TestInterruptedConfirmationExitsWith130(t *testing.T) {
	f := newFake()
	f.plan = testPlan()
	signals := make(chan os.Signal, 1)
	reader, writer := io.Pipe()
	defer writer.Close()
	r := runner{fake: f, interactive: true, signals: signals,
		stdin: readHook{reader, func() { signals <- os.Interrupt }}}
	r.run(t, "restore run"+readFlags).want(t, 130)
}

type readHook struct {
	io.Reader
	hook func()
}

func (r readHook) Read(b []byte) (int, error) {
	r.hook()
	return r.Reader.Read(b)
}

// TestBlockedPlanIsNotAsked does not ask for a confirmation of a plan that cannot run.
func TestBlockedPlanIsNotAsked(t *testing.T) {
	f := newFake()
	f.plan = testPlan()
	summaryOf(f.plan).Blocked = true
	r := runner{fake: f, interactive: true}.run(t, "restore run"+readFlags).want(t, 3).stderrHas(t,
		"findings block all of it")
	if strings.Contains(r.stderr, "Restore this?") {
		t.Error("asked")
	}
}

// TestRefusalShowsFindings prints the findings of a refused run.
func TestRefusalShowsFindings(t *testing.T) {
	f := newFake()
	f.plan = testPlan()
	f.begin = func(context.Context) error {
		return &service.Error{Reason: service.ReasonFindings, Message: "findings block everything",
			Hint: "mend them"}
	}
	runner{fake: f}.run(t, "restore run --yes"+readFlags).want(t, 3).
		stderrHas(t, "mgmtctl: findings block everything\nhint: mend them",
			"owner-missing MachineSet.cluster.x-k8s.io/team-a/web-1")
}

// TestRestoreRunsThePlanOfAFile runs the output of "restore plan", in both formats.
func TestRestoreRunsThePlanOfAFile(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		t.Run(format, func(t *testing.T) {
			f := newFake()
			f.plan, f.operation, f.events = testPlan(), testOperation(succeeded, 0, true),
				testEvents(succeeded)
			printed := runner{fake: f}.run(t, "restore plan -o "+format+readFlags)
			file := filepath.Join(t.TempDir(), "plan")
			if err := os.WriteFile(file, []byte(printed.stdout), 0o600); err != nil {
				t.Fatal(err)
			}
			r := runner{fake: f, interactive: true, stdin: strings.NewReader("yes\n")}
			r.run(t, "restore run --plan "+file+" --concurrency 3 --canary team-a/db --observe 90s"+
				readFlags).want(t, 0)
			req := requestOf[*mgmtv1.RunRestoreRequest](t, f)
			if s := req.GetSpec(); s.GetSnapshot() != "1a2b3c4d5e6f" || !s.GetSourceIsGone() ||
				len(s.GetDropOwners()) != 1 {
				t.Errorf("spec is not the plan's: %v", s)
			}
			if req.GetPlanDigest() != "d1ge57" {
				t.Errorf("digest %q", req.GetPlanDigest())
			}
			if n := req.GetTuning(); n.GetConcurrency() != 3 || n.GetCanary() != "team-a/db" ||
				n.GetObserve().AsDuration() != 90*time.Second ||
				n.GetMaxFailures() != service.DefaultMaxFailures {
				t.Errorf("tuning %v", n)
			}
		})
	}
}

// TestRestoreRequestHasEveryFlag asserts that every flag is in the request.
func TestRestoreRequestHasEveryFlag(t *testing.T) {
	f := newFake()
	f.plan = testPlan()
	keys := t.TempDir()
	if err := makeKeys(keys, nil); err != nil {
		t.Fatal(err)
	}
	identity := filepath.Join(keys, "identity.txt")
	file, text := modifiersOf(t)
	runner{fake: f}.run(t, "restore plan --source prod --at 2026-03-01T10:00:00+01:00 --target new "+
		"--namespace a --namespace b --workload c/d --selector tier=gold"+
		" --source-is-gone --force source-seen-recently,held --force owned-elsewhere=b "+
		"--no-release --include-unowned --renew-kubeconfigs --scope team-a --at-least-sequence 7 "+
		"--drop-owner Machine.cluster.x-k8s.io/a/b --accept-difference Machine.b:spec.a "+
		"--managed-fields none --resource-modifiers "+file+" --identity "+identity+readFlags).want(t, 3)
	req := requestOf[*mgmtv1.PlanRestoreRequest](t, f)
	got, err := rawJSON(req.GetSpec())
	if err != nil {
		t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(got, &spec); err != nil {
		t.Fatal(err)
	}
	want := `{"acceptDifferences":["Machine.b:spec.a"],"at":"2026-03-01T09:00:00Z",` +
		`"atLeastSequence":"7","dropOwners":["Machine.cluster.x-k8s.io/a/b"],"forceCodes":["source-seen-recently","held",` +
		`"owned-elsewhere=b"],"includeUnowned":true,` +
		`"location":"","managedFields":"MANAGED_FIELDS_NONE","noRelease":true,"releaseOf":"",` +
		`"renewKubeconfigs":true,"scope":"team-a",` +
		`"selection":{"namespaces":["a","b"],"selector":"tier=gold","workloads":["c/d"]},` +
		`"snapshot":"","source":"prod","sourceIsGone":true,"target":"new"}`
	if sorted, _ := json.Marshal(spec); string(sorted) != want {
		t.Errorf("got  %s\nwant %s", sorted, want)
	}
	if !strings.Contains(string(req.GetIdentity()), "AGE-SECRET-KEY-") {
		t.Errorf("an identity of %d bytes", len(req.GetIdentity()))
	}
	if !bytes.Equal(req.GetResourceModifiers(), text) {
		t.Errorf("resource modifiers of %d bytes", len(req.GetResourceModifiers()))
	}
	if f.flags.sourceName != "prod" || f.flags.targetName != "new" {
		t.Errorf("names of the sides: %+v", f.flags)
	}
}

// modifiersOf makes a file of resource modifiers.
func modifiersOf(t *testing.T) (file string, text []byte) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "modifiers.yaml")
	text = []byte("version: v1\nresourceModifierRules:\n- conditions: {groupResource: secrets}\n" +
		"  mergePatches: [{patchData: 'stringData: {key: hunter2}'}]\n")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, text
}

// TestResumeSendsResourceModifiers: and a stop says to give the same file again.
func TestResumeSendsResourceModifiers(t *testing.T) {
	file, text := modifiersOf(t)
	f := newFake()
	f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
	resume := "mgmtctl operation resume 65f1a2b3c4d5"
	runner{fake: f}.run(t, "restore run --yes --resource-modifiers "+file+readFlags).want(t, 4).
		stderrHas(t, resume, "--resource-modifiers "+file)
	runner{fake: f}.run(t, "operation resume latest --resource-modifiers "+file+readFlags).want(t, 4)
	req := requestOf[*mgmtv1.ResumeOperationRequest](t, f)
	if !bytes.Equal(req.GetResourceModifiers(), text) || req.GetId() != "65f1a2b3c4d5" {
		t.Errorf("resumes %s with %d bytes", req.GetId(), len(req.GetResourceModifiers()))
	}
	runner{fake: f}.run(t, "restore run --yes --resource-modifiers "+os.DevNull+readFlags).want(t, 2).
		stderrHas(t, "read --resource-modifiers: "+os.DevNull+" is empty")
}

// TestAPlanWithModifiersNeedsThemAgain: they are not in the file of the plan.
func TestAPlanWithModifiersNeedsThemAgain(t *testing.T) {
	file, _ := modifiersOf(t)
	f := newFake()
	f.plan = testPlan()
	f.operation, f.events = testOperation(succeeded, 0, true), testEvents(succeeded)
	f.plan = slices.Insert(f.plan, len(f.plan)-1, &mgmtv1.PlanRestoreResponse{
		Item: &mgmtv1.PlanRestoreResponse_Finding{Finding: &mgmtv1.Finding{Code: "modified",
			Severity: mgmtv1.Severity_SEVERITY_INFO, Message: "the resource modifiers change data.key"}}})
	plan := filepath.Join(t.TempDir(), "plan.json")
	stdout := runner{fake: f}.run(t, "restore plan -o json --resource-modifiers "+file+readFlags).stdout
	if err := os.WriteFile(plan, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	runner{fake: f}.run(t, "restore run --yes --plan "+plan+readFlags).want(t, 2).
		stderrHas(t, "the plan was made with resource modifiers, which are not in it")
	runner{fake: f}.run(t, "restore run --yes --plan "+plan+" --resource-modifiers "+file+readFlags).want(t, 0)
}

// TestResumedRestoreNeedsItsFlags asks for the flags that the operation needs, once its kind is
// known.
func TestResumedRestoreNeedsItsFlags(t *testing.T) {
	f := newFake()
	f.operation, f.events = testOperation(stopped, 4, true), testEvents(succeeded)
	runner{fake: f}.run(t, "operation resume latest --standalone --store /s").want(t, 2).
		stderrHas(t, "--identity (or --plain), --trusted-key (or --plain), --target-kubeconfig")

	f = newFake()
	f.operation, f.events = testOperation(succeeded, 0, true), testEvents(succeeded)
	runner{fake: f}.run(t, "operation resume latest --standalone --store /s").want(t, 0)
	if got := requestOf[*mgmtv1.ResumeOperationRequest](t, f).GetId(); got != "65f1a2b3c4d5" {
		t.Errorf("resumes %q, want the whole id", got)
	}
}

func TestPrintedCommandsAreQuoted(t *testing.T) {
	f := newFake()
	f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
	runner{fake: f}.run(t, "restore run --yes --standalone --store /s --plain --trusted-key it's "+
		"--trusted-key b --target-kubeconfig=t$x").want(t, 4).
		stderrHas(t, `mgmtctl operation resume 65f1a2b3c4d5 --standalone --store /s --plain `+
			`--trusted-key 'it'\''s' --trusted-key b --target-kubeconfig 't$x'`)
}

// TestLostDaemonMayGoOn asserts that mgmtctl says how to watch the operation.
func TestLostDaemonMayGoOn(t *testing.T) {
	r, f := daemonRunner(t)
	f.operation, f.events, f.watchErr = testOperation(running, 0, true), testEvents(failed)[:2],
		status.Error(codes.Unavailable, "error reading from server: EOF")
	r.run(t, "restore run --yes").want(t, 1).
		stderrHas(t, "the daemon may go on with operation 65f1a2b3c4d5 all the same; to watch it:\n  "+
			"mgmtctl operation watch 65f1a2b3c4d5\n", "EOF")
}

// TestRestoreReleaseNamesTheRestore: it asks for the plan of the release, and begins exactly that.
func TestRestoreReleaseNamesTheRestore(t *testing.T) {
	f := newFake()
	f.plan, f.operation = testPlan(), testOperation(succeeded, 0, true)
	f.events = testEvents(succeeded)
	r := runner{fake: f, interactive: true, stdin: strings.NewReader("yes\n")}
	r.run(t, "restore release latest --source-is-gone --accept-difference Machine.b:spec.a "+
		"--renew-kubeconfigs "+
		"--max-failures 0"+readFlags).want(t, 0)
	req := requestOf[*mgmtv1.RunRestoreRequest](t, f)
	if want := (&mgmtv1.RestoreSpec{ReleaseOf: f.operation.GetId(), SourceIsGone: true,
		RenewKubeconfigs:  true,
		AcceptDifferences: []string{"Machine.b:spec.a"}}); !proto.Equal(req.GetSpec(), want) ||
		req.GetPlanDigest() != "d1ge57" {
		t.Errorf("request %v", req)
	}
	if n := req.GetTuning(); n.MaxFailures == nil || n.GetMaxFailures() != 0 {
		t.Errorf("no limit of failures becomes %v", n)
	}
	r.run(t, "restore release"+readFlags).want(t, 2).stderrHas(t, "argument missing")
}
