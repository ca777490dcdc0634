package restore

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestI1RestoreAsksForProofThatTheSourceIsGone: which finding the plan has about the source, and
// whether it blocks.
func TestI1RestoreAsksForProofThatTheSourceIsGone(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name     string
		spec     Spec
		same     bool          // the target is the source
		age      time.Duration // of the newest snapshot; the schedule takes one every hour
		code     object.Code
		severity object.Severity
	}{
		{"nobody says anything", Spec{}, false, 24 * time.Hour, object.CodeSourceNotGone, object.Fatal},
		{"gone", Spec{SourceIsGone: true}, false, 24 * time.Hour, object.CodeSourceMayReturn,
			object.Warning},
		{"gone, seen just now", Spec{SourceIsGone: true}, false, 2 * time.Hour,
			object.CodeSourceSeenRecently,
			object.Fatal},
		{"gone, seen just now, forced", Spec{SourceIsGone: true, Force: object.Forced{
			object.CodeSourceSeenRecently: ""}}, false, 2 * time.Hour,
			object.CodeSourceSeenRecently, object.Warning},
		{"gone, seen just now, forced for another reason", Spec{SourceIsGone: true, Force: object.Forced{
			object.CodeHeld: ""}}, false, 2 * time.Hour, object.CodeSourceSeenRecently, object.Fatal},
		{"everything stays paused", Spec{NoRelease: true}, false, time.Minute, object.CodeSourceMayReturn,
			object.Warning},
		{"into the source itself", Spec{}, true, time.Minute, object.CodeSameMgmt, object.Info},
		{"a move", Spec{SourceAtWork: true}, false, time.Minute, "", 0},
		{"a move into the source itself", Spec{SourceAtWork: true}, true, time.Minute,
			object.CodeSameMgmt,
			object.Fatal},
	} {
		p := &planner{Input: Input{Spec: tt.spec, Source: Snapshot{Source: object.Side{UID: "a"}},
			Target: object.Side{UID: "b"}, Newer: now.Add(-tt.age), Now: func() time.Time { return now },
			Snapshot: &snapshot.Snapshot{Envelope: store.Envelope{Interval: 3600}}}}
		if tt.same {
			p.Target.UID = "a"
		}
		if err := checkSource(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		switch {
		case tt.code == "" && len(p.findings) > 0:
			t.Errorf("%s: %v", tt.name, p.findings)
		case tt.code != "" && (len(p.findings) == 0 || p.findings[0].Code != tt.code ||
			p.findings[0].Severity != tt.severity):
			t.Errorf("%s: %v, want %s %s", tt.name, p.findings, tt.severity, tt.code)
		}
	}
}

// TestFindingsBlockTheirUnitOrEverything: an error blocks its unit, an error without a unit or a
// fatal finding blocks the plan, and so do errors in all units.
func TestFindingsBlockTheirUnitOrEverything(t *testing.T) {
	for _, tt := range []struct {
		name     string
		findings []object.Finding
		blocked  []string // units
		all      bool
	}{
		{"warnings", []object.Finding{{Severity: object.Warning, Unit: "n/a"}, {Severity: object.Info}},
			nil,
			false},
		{"an error of a unit", []object.Finding{{Severity: object.Error, Unit: "n/a"}}, []string{"n/a"},
			false},
		{"errors of all units", []object.Finding{{Severity: object.Error, Unit: "n/a"},
			{Severity: object.Error, Unit: "n/b"}}, []string{"n/a", "n/b"}, true},
		{"an error of none", []object.Finding{{Severity: object.Error}}, nil, true},
		{"fatal", []object.Finding{{Severity: object.Fatal, Unit: "n/a"}}, nil, true},
	} {
		p := &Plan{Units: []Unit{{Name: "n/a"}, {Name: "n/b"}}, Findings: tt.findings}
		p.decide()
		var blocked []string
		for _, u := range p.Units {
			if u.Blocked {
				blocked = append(blocked, u.Name)
			}
		}
		if !slices.Equal(blocked, tt.blocked) || p.Blocked != tt.all {
			t.Errorf("%s: blocked %v, all %v", tt.name, blocked, p.Blocked)
		}
	}
}

func TestABlockedOrUnknownCanaryIsRefused(t *testing.T) {
	p := &Plan{Units: []Unit{{Name: "n/a"}, {Name: "n/b", Blocked: true}},
		Findings: []object.Finding{{Severity: object.Error, Code: object.CodeCAMissing, Unit: "n/b"}}}
	for canary, refused := range map[string]bool{"": false, "n/a": false, "n/b": true, "n/c": true} {
		if err := p.CheckCanary(canary); (err != nil) != refused {
			t.Errorf("canary %q: %v", canary, err)
		}
	}
	var findings *FindingsError
	if err := p.CheckCanary("n/b"); !errors.As(err, &findings) ||
		!strings.Contains(err.Error(), "n/b") {
		t.Errorf("the blocked canary: %v", err)
	}
}

// TestI1APlanIsAnotherOneAfterAClaim: an operator who overrides the owner that a plan shows does
// not override the one that came after it.
func TestI1APlanIsAnotherOneAfterAClaim(t *testing.T) {
	plan := func(epoch int64) *Plan {
		return &Plan{Spec: Spec{Force: object.Forced{object.CodeOwnedElsewhere: "b"}},
			Units:  []Unit{{Name: "n/a", WorkloadID: "w"}},
			Epochs: map[string]int64{"w": epoch}}
	}
	if plan(5).Digest() == plan(6).Digest() {
		t.Error("the record was replaced since the plan was read, and the digest is the same")
	}
	seen, same := plan(5), plan(5)
	if seen.Digest() != same.Digest() {
		t.Error("two equal plans have different digests")
	}
}

// TestPlansOfVersion03AreReadable: such a plan has a boolean for force, "move" for a source at
// work, and no epochs, by which a resume knows it.
func TestPlansOfVersion03AreReadable(t *testing.T) {
	const stored = `{"snapshot":{"storeID":"s","id":"i","key":"k","source":{"name":"a",
		"uid":"ua"},"time":"2026-11-22T12:00:00Z"},
		"target":{"name":"b","uid":"ub"},"spec":{"selection":{},"force":true,"move":true,"only":["n/a"]},
		"shared":{"name":"","objects":null},"units":[{"name":"n/a","workloadID":"w",
		"objects":[{"kind":"Secret","name":"x","version":"v1","wave":1,"action":"create"}]}],
		"findings":[{"severity":2,"code":"snapshot-age","message":"m"}],"blocked":false}`
	var p Plan
	if err := json.Unmarshal([]byte(stored), &p); err != nil {
		t.Fatal(err)
	}
	if !p.Spec.SourceAtWork || !p.Spec.Force.Has(object.CodeHeld) || p.Epochs != nil ||
		p.Snapshot.Source != (object.Side{Name: "a", UID: "ua"}) || p.Target.UID != "ub" ||
		p.Units[0].Objects[0].Action != Create || p.Findings[0].Severity != object.Warning {
		t.Errorf("read %+v", p)
	}
}
