package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func testMarksPlan() *mgmtv1.PlanRollbackFromMarksResponse {
	return &mgmtv1.PlanRollbackFromMarksResponse{Target: "new", TargetUid: "9f8e", Digest: "d1",
		Units: []*mgmtv1.MarkedUnit{
			{Name: "team-a/db", Objects: 41, Machines: 3, Blocked: true,
				Operations: []string{"65f1a2b3c4d5"}},
			{Name: "team-a/web", Objects: 57, Machines: 5, Operations: []string{"65f1a2b3c4d5"}},
			{Objects: 4}},
		Findings: []*mgmtv1.Finding{{Severity: mgmtv1.Severity_SEVERITY_ERROR, Code: "copy-at-work",
			Unit: "team-a/db", Message: "it is not paused", Hint: "find out who has it"}}}
}

// TestRollbackFromMarksAsksAndShowsThePlan: what is seen is what is carried out, and nothing is
// begun without a yes, by a dry run, or when there is nothing to remove.
func TestRollbackFromMarksAsksAndShowsThePlan(t *testing.T) {
	const standalone = " --standalone --store /s --target-kubeconfig new.kubeconfig"
	for _, tt := range []struct {
		name, line, answer string
		change             func(*mgmtv1.PlanRollbackFromMarksResponse)
		code               int
		runs               bool
		stdout, stderr     string
	}{
		{"confirmed", "operation rollback --from-marks", "yes\n", nil, 0, true, "",
			"Remove the copies of 1 workload cluster (61 objects) from new?"},
		{"refused", "operation rollback --from-marks", "no\n", nil, 2, false, "", "not confirmed"},
		{"without a question", "operation rollback --from-marks --yes", "", nil, 0, true, "", ""},
		{"a dry run", "operation rollback --from-marks --dry-run", "", nil, 0, false,
			"team-a/db         41       3         65f1a2b3c4d5  leaves it", ""},
		{"a dry run as JSON", "operation rollback --from-marks --dry-run -o json", "", nil, 0, false,
			`"digest": "d1"`, ""},
		{"blocked", "operation rollback --from-marks --yes", "",
			func(p *mgmtv1.PlanRollbackFromMarksResponse) { p.Blocked = true }, 3, false, "",
			"it is not paused"},
		{"nothing to do", "operation rollback --from-marks --yes", "",
			func(p *mgmtv1.PlanRollbackFromMarksResponse) { p.Units, p.Findings = nil, nil }, 0, false,
			"no workload cluster there has the mark", ""},
		{"an operation is named", "operation rollback --from-marks latest --yes", "", nil, 2, false, "",
			"it takes no argument"},
		{"a flag without its meaning", "operation rollback latest --dry-run", "", nil, 2, false, "",
			"--dry-run needs --from-marks"},
		{"another work's override", "operation rollback --from-marks --force locked --yes", "", nil, 2,
			false, "", "owners-unread"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.marksPlan = testMarksPlan()
			f.operation = testOperation(mgmtv1.OperationState_OPERATION_STATE_ROLLED_BACK, 0, true)
			if tt.change != nil {
				tt.change(f.marksPlan)
			}
			r := runner{fake: f, interactive: true, stdin: strings.NewReader(tt.answer)}.run(t,
				tt.line+standalone)
			r.want(t, tt.code).stderrHas(t, tt.stderr)
			if !strings.Contains(r.stdout, tt.stdout) {
				t.Errorf("stdout: %s", r.stdout)
			}
			runs := false
			for _, req := range f.requests {
				if run, ok := req.(*mgmtv1.RollbackFromMarksRequest); ok {
					runs = run.GetPlanDigest() == "d1"
				}
			}
			if runs != tt.runs {
				t.Errorf("runs: %v", runs)
			}
		})
	}
	runner{fake: newFake()}.run(t, "operation rollback --from-marks"+standalone).want(t, 2).
		stderrHas(t, "confirmation missing")
	runner{fake: newFake()}.run(t, "operation rollback --from-marks --yes --standalone --store /s").
		want(t, 2).stderrHas(t, "--target-kubeconfig")
}

func TestRollbackFromMarksSendsWhatWasSelected(t *testing.T) {
	r, f := daemonRunner(t)
	f.marksPlan = testMarksPlan()
	r.run(t, "operation rollback --from-marks --dry-run --workload team-a/web "+
		"--force owners-unread --location vault --target new").want(t, 0)
	want := &mgmtv1.PlanRollbackFromMarksRequest{Spec: &mgmtv1.MarksSpec{Target: "new",
		Location: "vault", ForceCodes: []string{"owners-unread"},
		Selection: &mgmtv1.Selection{Workloads: []string{"team-a/web"}}}}
	if got := requestOf[*mgmtv1.PlanRollbackFromMarksRequest](t, f); !proto.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
