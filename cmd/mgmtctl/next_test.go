package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	needsIdentity = mgmtv1.OperationState_OPERATION_STATE_NEEDS_IDENTITY
	rolledBack    = mgmtv1.OperationState_OPERATION_STATE_ROLLED_BACK
)

// sampleValues are values that flags of each type accept; the other types take any text.
var sampleValues = map[string]string{"NS": "a", "NS/NAME": "a/b", "LABELS": "a=b",
	"REF": "Machine.cluster.x-k8s.io/a/b", "KIND:PATH": "Machine.b:spec.a", "bool": "true",
	"duration": "1s", "int": "1", "int32": "1", "int64": "1", "TIME": "2026-03-01T14:30:00Z",
	"TIME|AGE": "36h", "DURATION": "30d", "N/T": "1/2", "KIND": "move", "STATE": "failed"}

// sampleValue gives a value that a flag accepts; modifiers is a file of resource modifiers.
func sampleValue(t *testing.T, f *pflag.Flag, modifiers string) string {
	t.Helper()
	value := sampleValues[f.Value.Type()]
	if force, ok := f.Value.(*forceFlag); ok {
		value = strings.ReplaceAll(object.Forceable(force.works[0])[0], "NAME", "b")
	}
	if f.Name == modifiersFlagName {
		value = modifiers
	}
	first, _, _ := strings.Cut(f.Value.Type(), "|") // of an enum
	value = cmp.Or(value, first)
	if err := f.Value.Set(value); err != nil {
		t.Errorf("--%s %s: %v", f.Name, value, err)
	}
	return value
}

// typedLines gives every command of mgmtctl with each of its own flags in turn, and the flags of
// the server.
func typedLines(t *testing.T, modifiers string) (lines [][]string) {
	t.Helper()
	p := testProgram()
	for _, cmd := range commands(t) {
		if cmd.HasSubCommands() {
			continue
		}
		line := append(strings.Fields(cmd.CommandPath())[1:], strings.Fields(moveStandalone)...)
		lines = append(lines, line)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || p.flags.lookup(f.Name) != nil || cmd.InheritedFlags().Lookup(f.Name) == f {
				return
			}
			lines = append(lines, append(slices.Clone(line), "--"+f.Name+"="+sampleValue(t, f, modifiers)))
		})
	}
	return lines
}

// TestProposedCommandsOfAnOperationPassTheirChecks: whatever was typed, the commands that show an
// operation, go on with it or undo it get past the check of their flags, down to the server.
func TestProposedCommandsOfAnOperationPassTheirChecks(t *testing.T) {
	modifiers, _ := modifiersOf(t)
	proposed, ran := map[string]string{}, 0
	for _, typed := range typedLines(t, modifiers) {
		p := parsed(t, typed)
		for _, verb := range []string{"show", "watch", "stop", "resume", "rollback",
			"rollback --without-target", "resume --without-source", "accept"} {
			words := append([]string{nounOperation}, strings.Fields(verb)...)
			words = slices.Insert(words, 2, "65f1a2b3c4d5")
			if verb == "accept" {
				words = append(words, "a/b")
			}
			proposed[p.commandLine(words...)] = strings.Join(typed, " ")
		}
	}
	for line, typed := range proposed {
		for _, state := range []mgmtv1.OperationState{stopped, failed} {
			f := newFake()
			f.operation, f.events = testMove(state, 4, map[string]string{"a/b": "paused"}),
				testEvents(state)
			r := runner{fake: f}.run(t, strings.TrimPrefix(line, "mgmtctl "))
			if ran++; r.code == service.ExitUsage {
				t.Errorf("after %s\n%s\nis refused: %s", typed, line, r.stderr)
			}
		}
	}
	if ran < 2*8 {
		t.Errorf("%d commands", ran)
	}
}

// TestEveryProposedCommandParses: the commands of all hints, after every command that may be typed,
// have flags that the proposed command has, with values that it takes.
func TestEveryProposedCommandParses(t *testing.T) {
	modifiers, _ := modifiersOf(t)
	var templates []string
	collect := func(text string) {
		for _, command := range commandTemplate.FindAllString(text, -1) {
			if !slices.Contains(templates, command) {
				templates = append(templates, command)
			}
		}
	}
	for _, texts := range []map[object.Code]string{findingCommands, overrideCommands} {
		for _, text := range texts {
			collect(text)
		}
	}
	for _, text := range errorCommands {
		collect(text)
	}
	lines := map[string]string{}
	for _, typed := range typedLines(t, modifiers) {
		p := parsed(t, typed)
		for _, template := range templates {
			lines[p.expand(template)] = strings.Join(typed, " ")
		}
	}
	for line, typed := range lines {
		words := strings.Fields(strings.TrimPrefix(line, "mgmtctl "))
		cmd, rest, err := newRoot(&program{stderr: &console{}}).Find(words)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil {
			t.Errorf("after %s\n%s: %v", typed, line, err)
			continue
		}
		forced(t, cmd, line)
	}
}

// forced checks that a command overrides nothing that it does not propose by itself.
func forced(t *testing.T, cmd *cobra.Command, line string) {
	t.Helper()
	f := cmd.Flags().Lookup(forceFlagName)
	if f == nil || !f.Changed || cmd.Parent().Name() != nounOperation {
		return
	}
	for _, own := range []string{"--force no-mirror", "--force store-away"} {
		if strings.Contains(line, own) {
			return
		}
	}
	t.Errorf("%s overrides %s", line, f.Value)
}

// TestNextCommandRepeatsWhatItKnows: the flags of a selection and an override only where they mean
// the same.
func TestNextCommandRepeatsWhatItKnows(t *testing.T) {
	const id = "65f1a2b3c4d5"
	for _, tt := range []struct {
		name, typed string
		next        func(*program) string
		want        string
	}{
		{"an operation knows its selection",
			"move run --workload a/b --namespace a --selector a=b --source prod --target new --location l",
			func(p *program) string { return p.commandLine(nounOperation, "rollback", id) },
			"mgmtctl operation rollback " + id},
		{"an operation has other overrides", "move run --force provisioning,locked",
			func(p *program) string { return p.commandLine(nounOperation, "resume", id) },
			"mgmtctl operation resume " + id},
		{"a rollback has other overrides than one without the target",
			"operation rollback latest --without-target --force store-away",
			func(p *program) string { return p.commandLine(nounOperation, "rollback", id) },
			"mgmtctl operation rollback " + id},
		{"a rollback of an operation is none from marks",
			"operation rollback --from-marks --target t --dry-run",
			func(p *program) string { return p.commandLine(nounOperation, "rollback", id) },
			"mgmtctl operation rollback " + id},
		{"an operation does not know its modifiers", "move run --resource-modifiers f --canary a/b",
			func(p *program) string { return p.commandLine(nounOperation, "resume", id) },
			"mgmtctl operation resume " + id + " --resource-modifiers f"},
		{"the plan of a run", "move run --force locked --workload a/b --yes",
			func(p *program) string { return p.planCommand(kindMove) },
			"mgmtctl move plan --force locked --workload a/b"},
		{"the same command", "operation rollback 1a2b --without-target --force store-away",
			func(p *program) string { return p.again("--signing-key", "FILE") },
			"mgmtctl operation rollback 1a2b --signing-key FILE --force store-away --without-target"},
		{"the same command, not its consent", "operation forget 1a2b --force work-left --yes",
			func(p *program) string { return p.again("--store", "URL") },
			"mgmtctl operation forget 1a2b --store URL --force work-left"},
		{"another noun has other overrides", "operation rollback --from-marks --force owners-unread " +
			"--target t --workload a/b",
			func(p *program) string { return p.commandLine("restore", "plan") },
			"mgmtctl restore plan --target t --workload a/b"},
		{"an override in the text of a hint", "operation resume 1a2b --standalone",
			func(p *program) string { return p.expand(overrideCommands[object.CodeNoMirror]) },
			"mgmtctl operation resume 1a2b --force no-mirror --standalone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.next(parsed(t, strings.Fields(tt.typed))); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestRollbackRefusesAnOverrideInItsOwnName: the text is not that of a resume.
func TestRollbackRefusesAnOverrideInItsOwnName(t *testing.T) {
	r := runner{fake: newFake()}.run(t, "operation rollback 1a2b --force held").want(t, 2).
		stderrHas(t, "a rollback can override no-mirror")
	if strings.Contains(r.stderr, "a resume can") {
		t.Errorf("stderr: %s", r.stderr)
	}
	runner{fake: newFake()}.run(t, "operation resume 1a2b --force held").want(t, 2).
		stderrHas(t, "a resume can override no-mirror")
}

// TestShowAndStopPrintHowToGoOn: what the end of the run prints, for one that ended with work left,
// also by a crash. JSON stays as it is.
func TestShowAndStopPrintHowToGoOn(t *testing.T) {
	const resume, rollback = "mgmtctl operation resume 65f1a2b3c4d5" + moveStandalone + "\n",
		"mgmtctl operation rollback 65f1a2b3c4d5" + moveStandalone + "\n"
	move := func(state mgmtv1.OperationState, units map[string]string) *mgmtv1.Operation {
		return testMove(state, 0, units)
	}
	snapshot, untouched := testOperation(stopped, 0, true), testOperation(failed, 3, false)
	snapshot.Kind = "snapshot"
	for _, tt := range []struct {
		name string
		op   *mgmtv1.Operation
		want []string // lines that are printed; no other command is
	}{
		{"a move that crashed", move(stopped, map[string]string{"a/b": "paused"}),
			[]string{resume, rollback}},
		{"a move with a hand-over", move(failed, map[string]string{"a/b": "handed-over"}),
			[]string{resume}},
		{"a restore that stopped", testOperation(stopped, 0, true), []string{resume}},
		{"one that needs an identity", testOperation(needsIdentity, 12, true),
			[]string{"mgmtctl operation resume 65f1a2b3c4d5 --identity FILE" + moveStandalone + "\n"}},
		{"one that runs", move(running, map[string]string{"a/b": "paused"}), nil},
		{"one that succeeded", move(succeeded, map[string]string{"a/b": "retired"}), nil},
		{"one that was rolled back", move(rolledBack, map[string]string{"a/b": "rolled-back"}), nil},
		{"one that changed nothing", untouched, nil},
		{"a snapshot", snapshot, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, line := range []string{"operation show latest", "operation show latest -o json",
				"operation stop latest"} {
				f := newFake()
				f.operation = tt.op
				r := runner{fake: f}.run(t, line+moveStandalone).want(t, 0).stderrHas(t, tt.want...)
				got := strings.Count(r.stderr, "\n  mgmtctl ")
				if strings.HasPrefix(line, "operation stop") && tt.op.GetState() == running {
					got-- // the command that watches its end
				}
				if got != len(tt.want) {
					t.Errorf("%s: %d commands, want %d:\n%s", line, got, len(tt.want), r.stderr)
				}
				if strings.Contains(line, "json") && !strings.HasPrefix(r.stdout, "{") ||
					strings.Contains(r.stdout, "mgmtctl") {
					t.Errorf("%s: stdout: %s", line, r.stdout)
				}
			}
		})
	}
}

// TestPlanOfAnOperationIsOfItsKind: also when the command that was typed has none.
func TestPlanOfAnOperationIsOfItsKind(t *testing.T) {
	for kind, want := range map[string]string{
		kindMove:    "mgmtctl move plan --source prod --target new --location vault)",
		kindRestore: "mgmtctl restore plan --snapshot 1a2b3c4d5e6f --target new --location vault)"} {
		r, f := daemonRunner(t)
		f.operation = testMove(failed, 3, nil)
		f.operation.Kind, f.operation.Changed = kind, false
		f.operation.Message, f.operation.HintKey = "findings block it (plan again)",
			string(object.HintPlan)
		got := r.run(t, "operation show latest").want(t, 0)
		if !strings.Contains(got.stdout, want) {
			t.Errorf("want %s:\n%s", want, got.stdout)
		}
	}
}

// TestAcceptNamesTheUnit: that of the finding, else the only one that can be accepted.
func TestAcceptNamesTheUnit(t *testing.T) {
	const id = "65f1a2b3c4d5"
	for _, tt := range []struct {
		name  string
		state mgmtv1.OperationState
		units map[string]string
		unit  string // of the finding
		want  string
	}{
		{"of the finding", failed, map[string]string{"a/b": "released", "a/c": "released"}, "a/c",
			"a/c"},
		{"the only one left", failed, map[string]string{"a/b": "retired", "a/c": "handed-over",
			"a/d": "paused"}, "", "a/c"},
		{"several", failed, map[string]string{"a/b": "released", "a/c": "released"}, "",
			"NAMESPACE/NAME"},
		{"it is at work", running, map[string]string{"a/b": "released"}, "", "NAMESPACE/NAME"},
	} {
		p := testProgram()
		p.operation = testMove(tt.state, 4, tt.units)
		f := &mgmtv1.Finding{Code: string(object.CodeObserve), Hint: "look", Unit: tt.unit}
		want := "look (mgmtctl operation accept " + id + " " + tt.want + ")"
		if p.completeHint(f); f.GetHint() != want {
			t.Errorf("%s: got %q, want %q", tt.name, f.GetHint(), want)
		}
	}
	p := testProgram()
	p.operation = testMove(failed, 4, map[string]string{"a/b": "released"})
	_, next := p.hintOf(&service.Error{Message: "operation 0123456789ab failed", Hint: "accept it",
		HintKey: object.HintAccept})
	if want := "mgmtctl operation accept 0123456789ab NAMESPACE/NAME"; next != want {
		t.Errorf("of another operation: got %q, want %q", next, want)
	}
}

// stubborn is a service whose operations do not stop.
type stubborn struct{ *fake }

func (stubborn) Stop() {}

// TestSecondInterruptSaysHowToGoOn: of an operation that has begun, whatever else it does.
func TestSecondInterruptSaysHowToGoOn(t *testing.T) {
	const left, resume, rollback = "operation 65f1a2b3c4d5 is left as it is",
		"mgmtctl operation resume 65f1a2b3c4d5", "mgmtctl operation rollback 65f1a2b3c4d5"
	for _, tt := range []struct {
		line, kind string
		begins     bool // the call that begins it answers
		want       []string
		no         string
	}{
		{"move run --yes", kindMove, true, []string{left, "mgmtctl operation show 65f1a2b3c4d5",
			resume + moveStandalone + "\n", rollback + moveStandalone + "\n"}, "NAMESPACE"},
		{"operation resume latest", kindMove, false, []string{left, resume, rollback}, "NAMESPACE"},
		{"snapshot create", "snapshot", true, []string{left}, "operation resume"},
		{"move run --yes", kindMove, false, nil, "65f1a2b3c4d5"},
	} {
		f := newFake()
		f.operation, f.events, f.untilStop = testMove(running, 0, nil), testEvents(stopped), true
		f.operation.Kind = tt.kind
		signals, release := make(chan os.Signal, 2), make(chan struct{})
		interrupt := func() { signals <- os.Interrupt; signals <- syscall.SIGTERM }
		if tt.begins {
			go func() { <-f.watching; interrupt() }()
		} else {
			f.begin = func(context.Context) error { interrupt(); <-release; return nil }
		}
		r := runner{inside: stubborn{f}, signals: signals}.run(t, tt.line+moveStandalone).want(t, 130).
			stderrHas(t, tt.want...)
		close(release)
		f.Stop()
		if strings.Contains(r.stderr, tt.no) {
			t.Errorf("%s: stderr has %q:\n%s", tt.line, tt.no, r.stderr)
		}
	}
}

// TestWayAroundIsACommand: a hint about what does not answer ends with the command that does
// without.
func TestWayAroundIsACommand(t *testing.T) {
	for _, tt := range []struct {
		typed string
		key   object.HintKey
		want  string
	}{
		{"operation rollback 1a2b --force no-mirror", object.HintWithoutTarget,
			"mgmtctl operation rollback 1a2b --without-target"},
		{"operation resume 1a2b", object.HintWithoutTarget, // after a rollback that did not end
			"mgmtctl operation rollback 1a2b --without-target"},
		{"operation resume 1a2b --resource-modifiers f", object.HintWithoutSource,
			"mgmtctl operation resume 1a2b --without-source --resource-modifiers f"},
		{"operation resume 1a2b", object.HintStoreAway,
			"mgmtctl operation rollback 1a2b --without-target --force store-away"},
	} {
		_, next := parsed(t, strings.Fields(tt.typed+moveStandalone)).hintOf(&service.Error{
			Message: "no answer", Hint: "wait", HintKey: tt.key})
		if next != tt.want+moveStandalone {
			t.Errorf("after %s: got %q, want %q", tt.typed, next, tt.want)
		}
	}
}
