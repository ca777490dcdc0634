package restore

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/preflight"
)

// TestI1RestoreAsksForProofThatTheSourceIsGone: which finding the plan has about the source, and
// whether it blocks. Package preflight tests what counts as proof.
func TestI1RestoreAsksForProofThatTheSourceIsGone(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	alive := preflight.Dial{Answers: true, Clusters: map[string]preflight.ClusterState{"n/w": {}}}
	for _, tt := range []struct {
		name string
		spec Spec
		same bool // the target is the source
		dial preflight.Dial
		want string // the findings
	}{
		{"nobody says anything", Spec{}, false, preflight.Dial{}, "warning source-last-seen, " +
			"fatal source-not-gone"},
		{"gone", Spec{SourceIsGone: true}, false, preflight.Dial{Silent: "a: timeout"},
			"info source-last-seen, fatal source-seen-recently, warning source-may-return"},
		{"gone, forced", Spec{SourceIsGone: true, Force: object.Forced{
			object.CodeSourceSeenRecently: ""}}, false, preflight.Dial{Silent: "a: timeout"},
			"info source-last-seen, warning source-seen-recently, warning source-may-return"},
		{"gone, and answers", Spec{SourceIsGone: true, Force: object.Forced{
			object.CodeSourceSeenRecently: ""}}, false, alive, "fatal source-answers"},
		{"everything stays paused", Spec{NoRelease: true}, false, alive, "warning source-answers"},
		{"into the source itself", Spec{}, true, alive, "warning same-management-cluster"},
		{"a move", Spec{SourceAtWork: true}, false, alive, ""},
		{"a move into the source itself", Spec{SourceAtWork: true}, true, alive,
			"fatal same-management-cluster"},
	} {
		p := &planner{Input: Input{Spec: tt.spec, Source: Snapshot{Source: object.Side{UID: "a"}},
			Target: object.Side{UID: "b"}, Now: func() time.Time { return now },
			Evidence: preflight.Source{Dial: tt.dial, Seen: now.Add(-time.Minute)}}}
		p.nodes = []*graph.Node{{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: "n", Name: "w"}, Unit: "n/w"}}
		if tt.same {
			p.Target.UID = "a"
		}
		if err := checkSource(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range p.findings {
			got = append(got, f.Severity.String()+" "+string(f.Code))
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
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
