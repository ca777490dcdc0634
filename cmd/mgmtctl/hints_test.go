package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func TestEveryHintKeyHasACommand(t *testing.T) {
	for _, key := range object.HintKeys() {
		if errorCommands[key] == "" {
			t.Errorf("the hint key %s has no command", key)
		}
	}
	if len(errorCommands) != len(object.HintKeys()) {
		t.Errorf("%d commands for %d hint keys", len(errorCommands), len(object.HintKeys()))
	}
	for _, commands := range []map[object.Code]string{findingCommands, overrideCommands} {
		for code := range commands {
			if _, ok := object.Define(code); !ok {
				t.Errorf("%s is no code", code)
			}
		}
	}
}

func TestEveryForceableFindingNamesForce(t *testing.T) {
	for _, d := range object.Definitions() {
		if d.Forceable && !strings.Contains(overrideCommands[d.Code], "--force "+string(d.Code)) {
			t.Errorf("%s can be forced, and its hint does not say how", d.Code)
		}
	}
}

func TestHintsGetTheCommandsOfMgmtctl(t *testing.T) {
	const errorSeverity, warning = mgmtv1.Severity_SEVERITY_ERROR, mgmtv1.Severity_SEVERITY_WARNING
	for _, tt := range []struct {
		code       object.Code
		severity   mgmtv1.Severity
		hint, want string
	}{
		{object.CodeOwnerMissing, errorSeverity, "create it",
			"create it (--drop-owner OWNER)"},
		{object.CodeProvisioning, errorSeverity, "wait", "wait (--force provisioning takes the risk)"},
		{object.CodeProvisioning, warning, "wait", "wait"}, // forced already
		{object.CodeCAMissing, errorSeverity, "", ""},
		// where the catalog of the other operation is lost, and where the copy is completed
		{object.CodeLeftByOperation, errorSeverity, "resume operation 0123456789ab where its catalog " +
			"is; if that is lost, leave this unit out", "resume operation 0123456789ab where its catalog " +
			"is; if that is lost, leave this unit out (mgmtctl operation resume 0123456789ab; mgmtctl " +
			"operation rollback --from-marks when its journal is lost)"},
		{object.CodeLeftByOperation, warning, "make sure that operation 0123456789ab does not run",
			"make sure that operation 0123456789ab does not run"},
		{"code-of-a-newer-server", errorSeverity, "wait", "wait"},
	} {
		f := &mgmtv1.Finding{Code: string(tt.code), Severity: tt.severity, Hint: tt.hint}
		if testProgram().completeHint(f); f.GetHint() != tt.want {
			t.Errorf("%s: got %q, want %q", tt.code, f.GetHint(), tt.want)
		}
	}
	e := service.FromStatus(service.ToStatus(&service.Error{Reason: service.ReasonLocked,
		Message: "operation 65f1a2b3c4d5 is at work on it", Hint: "finish it",
		HintKey: object.HintOperation}))
	hint, next := testProgram().hintOf(e)
	if hint != "finish it" || next != "mgmtctl operation show 65f1a2b3c4d5" {
		t.Errorf("got %q, %q", hint, next)
	}
}

// testProgram gives a program whose command line has no flags.
func testProgram() *program {
	p := &program{stderr: &console{}}
	newRoot(p)
	return p
}

// TestEveryCommandOfAHintExists finds the command of each template, and its flags.
func TestEveryCommandOfAHintExists(t *testing.T) {
	root := newRoot(&program{stderr: &console{}})
	check := func(text string) {
		for _, command := range commandTemplate.FindAllString(text, -1) {
			words := strings.Fields(strings.ReplaceAll(command, "KIND", kindRestore))[1:]
			cmd, _, err := root.Find(words)
			if err != nil || cmd.HasSubCommands() {
				t.Errorf("%q is no command: %v", command, err)
				continue
			}
			for _, w := range words {
				if flag, ok := strings.CutPrefix(w, "--"); ok && cmd.Flag(flag) == nil {
					t.Errorf("%q: there is no --%s", command, flag)
				}
			}
		}
		if rest := commandTemplate.ReplaceAllString(text, ""); strings.Contains(rest, "mgmtctl") {
			t.Errorf("%q: a command is not found", text)
		}
	}
	for _, text := range findingCommands {
		check(text)
	}
	for _, text := range overrideCommands {
		check(text)
	}
	for _, text := range errorCommands {
		check(text)
	}
}

// TestAFlagOfAHintComesWithItsCommand: a flag without a value that the command has.
func TestAFlagOfAHintComesWithItsCommand(t *testing.T) {
	p := testProgram()
	root := newRoot(p)
	cmd, args, err := root.Find([]string{"restore", "plan", "--source-is-gone"})
	if err == nil {
		err = cmd.ParseFlags(args)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.current = cmd
	f := &mgmtv1.Finding{Code: string(object.CodeKubeconfigExpired), Hint: "renew it",
		Severity: mgmtv1.Severity_SEVERITY_WARNING}
	want := "renew it (mgmtctl restore plan --renew-kubeconfigs --source-is-gone)"
	if p.completeHint(f); f.GetHint() != want {
		t.Errorf("got %q, want %q", f.GetHint(), want)
	}
}

// TestNoCommandOfAHintDeletesMoreThanSnapshots: see package object for the hints themselves.
func TestNoCommandOfAHintDeletesMoreThanSnapshots(t *testing.T) {
	for _, commands := range []map[object.Code]string{findingCommands, overrideCommands} {
		for code, text := range commands {
			rest := strings.ReplaceAll(text, "mgmtctl snapshot delete KEY --damaged", "")
			if strings.Contains(
				rest, "delete") {
				t.Errorf("%s: %s", code, text)
			}
		}
	}
}

// TestNextCommandIsComplete: the command after a refusal has the id and every flag that the person
// typed and that it knows, quoted for a shell.
func TestNextCommandIsComplete(t *testing.T) {
	const server = "--standalone --identity 'my id.txt' --store /s --trusted-key k " +
		"--target-kubeconfig t"
	typed := []string{"--standalone", "--identity", "my id.txt", "--store", "/s", "--trusted-key", "k",
		"--target-kubeconfig", "t", "-o", "json"}
	for _, tt := range []struct {
		name  string
		words []string
		e     service.Error
		want  string
	}{
		{"an operation that is named in the message", []string{"operation", "rollback", "latest"},
			service.Error{Message: "operation 65f1a2b3c4d5 is a restore: only a move can be rolled back",
				Hint: "resume it instead", HintKey: object.HintResume},
			"mgmtctl operation resume 65f1a2b3c4d5 " + server},
		{"a plan again", []string{"restore", "run", "--yes", "--source-is-gone", "--workload", "a/b",
			"--workload", "a/c", "--selector", "x in (y)", "--canary", "a/b"},
			service.Error{Message: "plan changed", Hint: "plan again", HintKey: object.HintPlan},
			"mgmtctl restore plan --selector 'x in (y)' --source-is-gone --workload a/b --workload a/c " +
				server},
		{"a list", []string{"restore", "plan", "--source", "prod", "--snapshot", "ffff"},
			service.Error{Message: "none", Hint: "see", HintKey: object.HintSnapshots},
			"mgmtctl snapshot list --source prod " + server},
		{"the same again with the flag that is missing", []string{"snapshot", "verify", "latest",
			"--level", "full"},
			service.Error{Message: "several", Hint: "name one", HintKey: object.HintSource},
			"mgmtctl snapshot verify latest --source NAME --level full " + server},
		{"the same again without the mirror", []string{"operation", "rollback", "1a2b"},
			service.Error{Message: "continue the mirror of operation 65f1a2b3c4d5: denied",
				Hint: "go on without the mirror", HintKey: object.HintGiveUpMirror},
			"mgmtctl operation rollback 1a2b --force no-mirror " + server},
		{"the same again without the store", []string{"operation", "rollback", "1a2b",
			"--without-target"}, service.Error{Message: "the store does not answer",
			Hint: "override it", HintKey: object.HintStoreAway},
			"mgmtctl operation rollback 1a2b --without-target --force store-away " + server},
		{"a flag that replaces the one that was typed", []string{"snapshot", "show", "1a2b"},
			service.Error{Message: "wrong", Hint: "another", HintKey: object.HintStoreURL},
			"mgmtctl snapshot show 1a2b --store URL --standalone --identity 'my id.txt' " +
				"--trusted-key k --target-kubeconfig t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hint, next := parsed(t, append(tt.words, typed...)).hintOf(&tt.e)
			if next != tt.want || !strings.HasPrefix(hint, tt.e.Hint) {
				t.Errorf("got %q, %q\nwant %q", hint, next, tt.want)
			}
		})
	}
}

// TestNextCommandRepeatsNoConsent: neither the consent nor the plan that is out of date. It has the
// file with the passphrase, without which it would ask, and the operation that was followed.
func TestNextCommandRepeatsNoConsent(t *testing.T) {
	words := []string{"restore", "run", "--yes", "--plan", "p.json", "--standalone", "--store", "/s",
		"--passphrase-file", "f"}
	const server = " --standalone --store /s --passphrase-file f"
	p := parsed(t, words)
	_, next := p.hintOf(&service.Error{Message: "several", Hint: "name one",
		HintKey: object.HintSource})
	if want := "mgmtctl restore run --source NAME" + server; next != want {
		t.Errorf("got %q, want %q", next, want)
	}
	p.operation = &mgmtv1.Operation{Id: "65f1a2b3c4d5"}
	_, next = p.hintOf(&service.Error{Message: "it failed", Hint: "go on",
		HintKey: object.HintResume})
	if want := "mgmtctl operation resume 65f1a2b3c4d5" + server; next != want {
		t.Errorf("got %q, want %q", next, want)
	}
}

// parsed gives a program that has parsed a command line.
func parsed(t *testing.T, words []string) *program {
	t.Helper()
	p := &program{stderr: &console{}}
	cmd, rest, err := newRoot(p).Find(words)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.remember(cmd, cmd.Flags().Args())
	return p
}

// TestFailedOperationNamesTheCommandsOfItsHint: the message of an operation that failed ends with a
// hint of the server. Its commands follow wherever the message is printed: in the operation, in its
// history, and in the progress of a command that waits for it.
func TestFailedOperationNamesTheCommandsOfItsHint(t *testing.T) {
	const message = "identity missing (give one)"
	want := message + " (" + errorCommands[object.HintIdentity] + ")\n"
	f := newFake()
	f.operation, f.events = testOperation(failed, 12, false), testEvents(failed)
	end := f.events[len(f.events)-1]
	f.operation.Message, f.operation.HintKey = message, string(object.HintIdentity)
	end.Message, end.HintKey = message, string(object.HintIdentity)
	r := runner{fake: f}.run(t, "operation show latest"+catalogFlags).want(t, 0)
	if !strings.Contains(r.stdout, want) {
		t.Errorf("the operation does not say %q:\n%s", want, r.stdout)
	}
	r = runner{fake: f}.run(t, "operation watch latest"+catalogFlags).want(t, 12)
	if !strings.Contains(r.stdout, "operation failed: "+want) {
		t.Errorf("the history does not say %q:\n%s", want, r.stdout)
	}
	runner{fake: f}.run(t, "restore run --yes"+readFlags).want(t, 12).
		stderrHas(t, "operation failed: "+want)
}

// TestBlockedPlanEndsWithTheCommandThatPlansAgain, with the flags that were typed.
func TestBlockedPlanEndsWithTheCommandThatPlansAgain(t *testing.T) {
	f := newFake()
	f.plan = testPlan()
	const again = "mgmtctl restore plan --source-is-gone --workload team-a/web --standalone " +
		"--store /s --plain --target-kubeconfig t\n"
	for _, verb := range []string{"plan", "run"} {
		f.plan[len(f.plan)-1].GetSummary().Blocked = true
		r := runner{fake: f, interactive: true}.run(t, "restore "+verb+
			" --source-is-gone --workload team-a/web"+readFlags).want(t, 3)
		if !strings.HasSuffix(r.stderr, "plan again:\n  "+again) {
			t.Errorf("%s: stderr does not end with %q:\n%s", verb, again, r.stderr)
		}
	}
}

// TestChangedPlanIsPlannedAgainIntoItsFile: the flags are those of the plan in the file.
func TestChangedPlanIsPlannedAgainIntoItsFile(t *testing.T) {
	f := newFake()
	f.plan = testPlan()
	header := f.plan[0].GetHeader()
	header.Spec = &mgmtv1.RestoreSpec{Snapshot: "1a2b", SourceIsGone: true, Target: "new",
		Selection:     &mgmtv1.Selection{Workloads: []string{"team-a/web"}},
		ManagedFields: mgmtv1.ManagedFields_MANAGED_FIELDS_APPLY}
	printed := runner{fake: f}.run(t, "restore plan -o json"+readFlags)
	file := filepath.Join(t.TempDir(), "my plan.json")
	if err := os.WriteFile(file, []byte(printed.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	f.begin = func(context.Context) error {
		return service.ToStatus(&service.Error{Reason: service.ReasonPlanChanged,
			Message: "plan changed", Hint: "plan again", HintKey: object.HintPlan})
	}
	f.operation = testOperation(running, 0, false)
	want := "hint: plan again\n  mgmtctl restore plan --target new --workload team-a/web " +
		"--snapshot 1a2b --source-is-gone" + readFlags + " -o json > '" + file + "'\n"
	r := runner{fake: f}.runWords(t, append([]string{"restore", "run", "--yes", "--plan", file},
		strings.Fields(readFlags)...)...).want(t, 3)
	if !strings.HasSuffix(r.stderr, want) {
		t.Errorf("stderr does not end with %q:\n%s", want, r.stderr)
	}
}

// TestNextCommandOfADaemonHasNoFlagOfStandalone: a daemon refuses them.
func TestNextCommandOfADaemonHasNoFlagOfStandalone(t *testing.T) {
	e := &service.Error{Message: "none", Hint: "check it", HintKey: object.HintStoreURL}
	if _, next := parsed(t, []string{"snapshot", "list"}).hintOf(e); next != "" {
		t.Errorf("got %q", next)
	}
	e = &service.Error{Message: "damaged", Hint: "verify it", HintKey: object.HintVerify}
	for snapshot, words := range map[string][]string{
		"latest": {"restore", "plan"}, "1a2b": {"restore", "plan", "--snapshot", "1a2b"}} {
		if _, next := parsed(t, words).hintOf(e); next != "mgmtctl snapshot verify "+snapshot {
			t.Errorf("got %q", next)
		}
	}
}

// TestACommandAboutOneSideHasItsKubeconfigAlone: with two of them it would be a usage error.
func TestACommandAboutOneSideHasItsKubeconfigAlone(t *testing.T) {
	const both = " --source-kubeconfig s --target-kubeconfig t --source-context c"
	for _, tt := range []struct {
		line string
		code object.Code
		want string
	}{
		{"restore plan --standalone --store /s --workload a/b" + both, object.CodeSourceAnswers,
			"mgmtctl mgmt fence --workload a/b --standalone --store /s --source-kubeconfig s " +
				"--source-context c"},
		{"restore plan --standalone --store /s" + both, object.CodeSourceAnswers,
			"mgmtctl mgmt fence --all --standalone --store /s --source-kubeconfig s --source-context c"},
		{"restore plan --source old --target new", object.CodeSourceAnswers, "mgmtctl mgmt fence old --all"},
		{"restore plan --standalone --store /s --target-kubeconfig t", object.CodeSourceAnswers,
			"mgmtctl mgmt fence --all --source-kubeconfig FILE --standalone --store /s"},
		{"move plan --namespace a --standalone --store /s" + both, object.CodeFencedHere,
			"mgmtctl mgmt fence --lift --workload a/b --standalone --store /s --target-kubeconfig t; " +
				"--force fenced-here when no other management cluster reconciles it"},
		{"restore plan --standalone --store /s --snapshot 1a2b" + both, object.CodeSourceAnswers,
			"mgmtctl mgmt fence --workload NAMESPACE/NAME --standalone --store /s --source-kubeconfig s " +
				"--source-context c"},
		{"operation watch 1a2b", object.CodeSourceAnswers,
			"mgmtctl mgmt fence NAME --workload NAMESPACE/NAME"},
		{"mgmt check old", object.CodeFenced, "mgmtctl mgmt fence old --lift --workload a/b"},
		{"mgmt check --standalone --target-kubeconfig t", object.CodeFenced,
			"mgmtctl mgmt fence --lift --workload a/b --standalone --target-kubeconfig t"},
		{"mgmt fence old --lift --all --yes", object.CodeNotFenced, "mgmtctl mgmt fence old --all --lift"},
	} {
		f := &mgmtv1.Finding{Code: string(tt.code), Hint: "do it",
			Severity: mgmtv1.Severity_SEVERITY_ERROR}
		if slices.Contains([]object.Code{object.CodeFencedHere, object.CodeFenced}, tt.code) {
			f.Unit = "a/b"
		}
		parsed(t, strings.Fields(tt.line)).completeHint(f)
		if want := "do it (" + tt.want + ")"; f.GetHint() != want {
			t.Errorf("%s: got %q, want %q", tt.line, f.GetHint(), want)
		}
	}
}
