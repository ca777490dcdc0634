package main

import (
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
	for _, code := range object.ForceAll() {
		if overrideCommands[code] == "" {
			t.Errorf("%s can be forced, and its hint does not say how", code)
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
		{object.CodeProvisioning, errorSeverity, "wait", "wait (--force takes the risk)"},
		{object.CodeProvisioning, warning, "wait", "wait"}, // forced already
		{object.CodeCAMissing, errorSeverity, "", ""},
		{"code-of-a-newer-server", errorSeverity, "wait", "wait"},
	} {
		f := &mgmtv1.Finding{Code: string(tt.code), Severity: tt.severity, Hint: tt.hint}
		if completeHint(f); f.GetHint() != tt.want {
			t.Errorf("%s: got %q, want %q", tt.code, f.GetHint(), tt.want)
		}
	}
	e := service.FromStatus(service.ToStatus(&service.Error{Reason: service.ReasonLocked,
		Hint: "finish it", HintKey: object.HintOperation}))
	if got, want := hintOf(e), "finish it (mgmtctl operation show ID)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
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
