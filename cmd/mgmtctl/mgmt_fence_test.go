package main

import (
	"strings"
	"testing"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestFenceAsksAndSaysWhatIsLeft: the question comes with what would be paused, and the exit code
// says whether something is left.
func TestFenceAsksAndSaysWhatIsLeft(t *testing.T) {
	const standalone = " --standalone --source-kubeconfig prod.kubeconfig"
	unacknowledged := []*mgmtv1.Finding{{Severity: mgmtv1.Severity_SEVERITY_ERROR,
		Code: "fence-unacknowledged", Unit: "team-a/web", Message: "its controllers are dead"}}
	for _, tt := range []struct {
		name, line, answer string
		fenced             []string
		findings           []*mgmtv1.Finding
		code, requests     int
		stderr             string
	}{
		{"confirmed", "mgmt fence prod", "yes\n", []string{"team-a/web"}, nil, 0, 2,
			"Fence 1 workload clusters on prod?"},
		{"refused", "mgmt fence prod", "no\n", []string{"team-a/web"}, nil, 2, 1, "not confirmed"},
		{"nothing to ask", "mgmt fence prod", "", nil, nil, 0, 2, ""},
		{"not acknowledged", "mgmt fence prod --all --yes", "", []string{"team-a/web"}, unacknowledged, 4,
			1, ""},
		{"nothing was changed", "mgmt fence prod --yes", "", nil, unacknowledged, 3, 1, ""},
		{"all and a selection", "mgmt fence prod --all --namespace a --yes", "", nil, nil, 2, 0,
			"--all and a selection exclude each other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.fenced, f.findings = tt.fenced, tt.findings
			r := runner{fake: f, interactive: true, stdin: strings.NewReader(tt.answer)}.run(t,
				tt.line+standalone)
			r.want(t, tt.code).stderrHas(t, tt.stderr)
			if len(f.requests) != tt.requests {
				t.Errorf("%d requests, want %d", len(f.requests), tt.requests)
			}
			for i, req := range f.requests {
				want := i == 0 && !strings.Contains(tt.line, "--yes")
				if dry := req.(*mgmtv1.FenceMgmtRequest).GetDryRun(); dry != want {
					t.Errorf("request %d: dry run %v", i, dry)
				}
			}
		})
	}
	f := newFake() // a user has paused it: a fence writes its mark
	f.already = []string{"team-a/web"}
	runner{fake: f, interactive: true, stdin: strings.NewReader("no\n")}.run(t,
		"mgmt fence prod --all"+standalone).want(t, 2).stderrHas(t, "Fence 1 workload clusters on prod?")
	runner{fake: newFake()}.run(t, "mgmt fence prod"+standalone).want(t, 2).stderrHas(t,
		"confirmation missing")
}
