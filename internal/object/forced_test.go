package object

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

func TestForcedReadsStoredPlansOfOlderVersions(t *testing.T) {
	all := forceAll()
	for text, want := range map[string]Forced{
		`{}`:                                nil,
		`{"force":false}`:                   nil,
		`{"force":null}`:                    nil,
		`{"force":true}`:                    all,
		`{"force":["held","locked"]}`:       {CodeHeld: "", CodeLocked: ""},
		`{"force":["owned-elsewhere=b=c"]}`: {CodeOwnedElsewhere: "b=c"},
	} {
		var spec struct {
			Force Forced `json:"force,omitempty"`
		}
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if !maps.Equal(spec.Force, want) {
			t.Errorf("%s: got %v, want %v", text, spec.Force, want)
		}
	}
	if err := json.Unmarshal([]byte(`"held"`), &Forced{}); err == nil {
		t.Error("a string was read as a set of codes")
	}
}

// TestForcedIsStoredInOneOrder: the digest of a plan has it.
func TestForcedIsStoredInOneOrder(t *testing.T) {
	forced := Forced{CodeOwnedElsewhere: "b", CodeProviderOlder: "", CodeHeld: ""}
	for range 20 {
		text, err := json.Marshal(forced)
		if err != nil || string(text) != `["held","owned-elsewhere=b","provider-older"]` {
			t.Fatalf("%s, %v", text, err)
		}
	}
	if text, err := json.Marshal(struct {
		Force Forced `json:"force,omitempty"`
	}{}); err != nil || string(text) != "{}" {
		t.Errorf("%s, %v", text, err)
	}
}

// TestForceNamesOnlyWhatTheRegistryAllowsInItsWork: a restore does not take what only a move can
// override, and the refusal lists what it takes.
func TestForceNamesOnlyWhatTheRegistryAllowsInItsWork(t *testing.T) {
	for _, tt := range []struct {
		work    Work
		texts   string // separated by a space
		want    Forced
		refused string // a part of the error
	}{
		{Restores, "", nil, ""},
		{Restores, "provider-older held", Forced{CodeProviderOlder: "", CodeHeld: ""}, ""},
		{Restores, "held held", Forced{CodeHeld: ""}, ""},
		{Restores, "owned-elsewhere=b", Forced{CodeOwnedElsewhere: "b"}, ""},
		{Moves, "owned-elsewhere=b locked", Forced{CodeOwnedElsewhere: "b", CodeLocked: ""}, ""},
		{Restores, "owned-elsewhere", nil, `override "owned-elsewhere": want owned-elsewhere=NAME`},
		{Restores, "owned-elsewhere=", nil, "want owned-elsewhere=NAME"},
		{Restores, "owned-elsewhere=b owned-elsewhere=c", nil, "b and c exclude each other"},
		{Restores, "held=b", nil, "want held"},
		{Restores, "locked", nil, `override "locked": a restore can override `},
		{Moves, "held", nil, `override "held": a move can override `},
		{Marks, "owners-unread", Forced{CodeOwnersUnread: ""}, ""},
		{Marks, "held", nil, "a rollback from marks can override owners-unread"},
		{Returns, "no-mirror store-away", Forced{CodeNoMirror: "", CodeStoreAway: ""}, ""},
		{Resumes, "store-away", nil, "a resume can override no-mirror"},
		{Rollbacks, "no-mirror", Forced{CodeNoMirror: ""}, ""},
		{Rollbacks, "store-away", nil, `override "store-away": a rollback can override no-mirror`},
		{Restores, "owners-unread", nil, "a restore can override "},
		{Restores, "ca-missing", nil, "owned-elsewhere=NAME, "},
		{Restores, "no-such-code", nil, `override "no-such-code": a restore can override `},
	} {
		got, err := ParseForced(tt.work, strings.Fields(tt.texts))
		if tt.refused == "" && (err != nil || !maps.Equal(got, tt.want)) {
			t.Errorf("%s %q: %v, %v", tt.work, tt.texts, got, err)
		}
		if tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("%s %q: %v, want %s", tt.work, tt.texts, err, tt.refused)
		}
	}
	for _, d := range Definitions() {
		if d.Forceable != (d.ForceableIn(Restores) || d.ForceableIn(Moves) || d.ForceableIn(Resumes) ||
			d.ForceableIn(Forgets) || d.ForceableIn(Marks) || d.ForceableIn(Returns)) {
			t.Errorf("%s can be overridden, and in no work", d.Code)
		}
		if forceAll().Has(d.Code) != d.Forceable {
			t.Errorf("%s: a plan of version 0.3 overrides it, or should", d.Code)
		}
	}
}

func TestForceOfAnOwnerIsForTheOneThatItNames(t *testing.T) {
	b := Side{Name: "b", UID: "uid-b"}
	for name, want := range map[string]bool{"b": true, "uid-b": true, "c": false, "uid-c": false,
		"": true} {
		if got := (Forced{CodeOwnedElsewhere: name}).HasFor(CodeOwnedElsewhere, b); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	if (Forced{CodeHeld: ""}).HasFor(CodeOwnedElsewhere, b) {
		t.Error("another code overrides it")
	}
}

func TestForceTurnsExactlyTheNamedErrorsIntoWarnings(t *testing.T) {
	forced := Forced{CodeHeld: "", CodeOwnedElsewhere: "b", CodeCAMissing: ""}
	for _, tt := range []struct {
		code     Code
		severity Severity
		want     Severity
	}{
		{CodeHeld, Error, Warning}, {CodeHeld, Info, Info}, {CodeProviderOlder, Error, Error},
		{CodeOwnedElsewhere, Error, Error}, // its check knows the name
		{CodeCAMissing, Error, Error},      // the registry does not allow it
	} {
		got := forced.Override(Finding{Code: tt.code, Severity: tt.severity, Message: "m"})
		if got.Severity != tt.want || (got.Message != "m") != (tt.severity != tt.want) {
			t.Errorf("%s: %v", tt.code, got)
		}
	}
}
