package object

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestForcedReadsStoredPlansOfOlderVersions(t *testing.T) {
	all := ForceAll()
	for text, want := range map[string]Forced{
		`{}`:                          nil,
		`{"force":false}`:             nil,
		`{"force":null}`:              nil,
		`{"force":true}`:              all,
		`{"force":["held","locked"]}`: {CodeHeld, CodeLocked},
	} {
		var spec struct {
			Force Forced `json:"force,omitempty"`
		}
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if !slices.Equal(spec.Force, want) {
			t.Errorf("%s: got %v, want %v", text, spec.Force, want)
		}
	}
	if err := json.Unmarshal([]byte(`"held"`), &Forced{}); err == nil {
		t.Error("a string was read as a set of codes")
	}
}

func TestForceAllHasOnlyWhatTheRegistryAllows(t *testing.T) {
	all := ForceAll()
	for _, d := range Definitions() {
		if all.Has(d.Code) != d.Forceable {
			t.Errorf("%s: forced %v, want %v", d.Code, all.Has(d.Code), d.Forceable)
		}
	}
}
