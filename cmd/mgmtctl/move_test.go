package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const moveStandalone = " --standalone --store /s --plain --source-kubeconfig s " +
	"--target-kubeconfig t"

// daemonRunner gives a runner whose mgmtctl finds a daemon, and the service of that daemon.
func daemonRunner(t *testing.T) (runner, *fake) {
	t.Helper()
	dir, listener := listenShort(t)
	f := newFake()
	serveOn(t, f, listener)
	return runner{fake: newFake(), getenv: map[string]string{"XDG_RUNTIME_DIR": dir}}, f
}

// testMovePlan is testPlan as the plan of a move.
func testMovePlan() []*mgmtv1.PlanMoveResponse {
	plan := []*mgmtv1.PlanMoveResponse{{Item: &mgmtv1.PlanMoveResponse_Header{
		Header: &mgmtv1.MoveHeader{Source: "prod", SourceUid: "7d1f", Target: "new",
			TargetUid: "aa11", Spec: &mgmtv1.MoveSpec{Source: "prod", Target: "new", NoFence: true,
				Location: "vault"}}}}}
	for _, piece := range testPlan()[1:] {
		resp := &mgmtv1.PlanMoveResponse{}
		switch item := piece.GetItem().(type) {
		case *mgmtv1.PlanRestoreResponse_Unit:
			resp.Item = &mgmtv1.PlanMoveResponse_Unit{Unit: item.Unit}
		case *mgmtv1.PlanRestoreResponse_Object:
			resp.Item = &mgmtv1.PlanMoveResponse_Object{Object: item.Object}
		case *mgmtv1.PlanRestoreResponse_Finding:
			resp.Item = &mgmtv1.PlanMoveResponse_Finding{Finding: item.Finding}
		case *mgmtv1.PlanRestoreResponse_Summary:
			resp.Item = &mgmtv1.PlanMoveResponse_Summary{Summary: item.Summary}
		}
		plan = append(plan, resp)
	}
	return plan
}

func testMove(state mgmtv1.OperationState, exitCode int32,
	units map[string]string) *mgmtv1.Operation {
	op := testOperation(state, exitCode, true)
	op.Kind, op.Units, op.Location = kindMove, units, "vault"
	return op
}

func testSchedules() []*mgmtv1.Schedule {
	return []*mgmtv1.Schedule{
		{Name: "hourly", Cron: "@every 1h", Source: "prod", Location: "vault",
			NextTime: timestamppb.New(now.Add(25 * time.Minute)), LastTime: ago(35 * time.Minute),
			LastOperation: "65f1a2b3c4d5", LastSuccessTime: ago(95 * time.Minute),
			NewestTime: ago(95 * time.Minute),
			LastError:  "reach management cluster prod: refused", Skipped: 2, Overdue: true},
		{Name: "nightly", Cron: "0 1 * * *", Source: "prod", Location: "vault",
			Namespaces: []string{"team-a", "team-b"}, Paused: true},
	}
}

func testMgmts() []*mgmtv1.Mgmt {
	return []*mgmtv1.Mgmt{
		{Name: "prod", Uid: "7d1f", KubernetesVersion: "v1.35.1", WorkloadClusters: 103,
			Providers: []*mgmtv1.Provider{
				{Name: "cluster-api", Version: "v1.14.0", Namespace: "capi-system"},
				{Name: "infrastructure-docker", Version: "v1.14.0", Namespace: "capd-system"},
			}},
		{Name: "west", Error: "connection refused"},
	}
}

// TestDaemonResultsInEveryFormat compares each result that needs a daemon, or a move, with a golden
// file.
func TestDaemonResultsInEveryFormat(t *testing.T) {
	tests := []struct {
		name string
		line string
		code int
		fake func(*fake)
	}{
		{"move_plan", "move plan", 3, func(f *fake) { f.movePlan = testMovePlan() }},
		{"move_plan_json", "move plan -o json", 3, func(f *fake) { f.movePlan = testMovePlan() }},
		{"move_run", "move run --yes", 4, func(f *fake) {
			f.operation = testMove(failed, 4, map[string]string{"": "copied", "team-a/api": "retired",
				"team-a/db": "released", "team-a/web": "paused"})
			f.events = testEvents(failed)
		}},
		{"move_show", "operation show latest", 0, func(f *fake) {
			f.operation = testMove(running, 0, map[string]string{"": "copied", "team-a/api": "handed-over",
				"team-a/db": "paused"})
			f.operation.PausedSince = map[string]*timestamppb.Timestamp{
				"team-a/api": ago(9 * time.Minute), "team-a/db": ago(8 * time.Minute)}
		}},
		{"operation_accept", "operation accept latest team-a/web", 0, func(f *fake) {
			f.operation = testMove(failed, 4, map[string]string{"team-a/api": "retired",
				"team-a/web": "handed-over"})
		}},
		{"operation_rollback", "operation rollback latest", 0, func(f *fake) {
			f.operation = testMove(mgmtv1.OperationState_OPERATION_STATE_ROLLED_BACK, 0,
				map[string]string{"team-a/api": "rolled-back"})
		}},
		{"operation_stop", "operation stop latest", 0, func(f *fake) {
			f.operation = testMove(running, 0,
				map[string]string{"team-a/api": "paused"})
		}},
		{"operation_show_schedule", "operation show latest", 0, func(f *fake) {
			f.operation = &mgmtv1.Operation{Id: "65f1a2b3c4d5", Kind: "snapshot", State: succeeded,
				Source: "prod", Schedule: "hourly", Location: "vault"}
		}},
		{"schedule_list", "schedule list", 0, func(f *fake) { f.schedules = testSchedules() }},
		{"schedule_list_yaml", "schedule list -o yaml", 0,
			func(f *fake) { f.schedules = testSchedules() }},
		{"schedule_list_none", "schedule list -o json", 0, func(*fake) {}},
		{"schedule_pause", "schedule pause nightly", 0, func(f *fake) { f.schedules = testSchedules() }},
		{"schedule_resume", "schedule resume hourly", 0, func(f *fake) { f.schedules = testSchedules() }},
		{"mgmt_list", "mgmt list", 0, func(f *fake) { f.mgmts = testMgmts() }},
		{"mgmt_list_json", "mgmt list -o json", 0, func(f *fake) { f.mgmts = testMgmts() }},
		{"mgmt_check", "mgmt check prod", 3, func(f *fake) {
			f.mgmts, f.findings = testMgmts(),
				testFindings()
		}},
		{"mgmt_check_well", "mgmt check", 0, func(f *fake) {
			f.mgmts, f.findings = testMgmts(),
				testFindings()[:1]
		}},
		{"mgmt_check_json", "mgmt check -o json", 0, func(f *fake) { f.mgmts = testMgmts() }},
		{"catalog_rebuild", "catalog rebuild", 0, func(f *fake) {
			f.rebuilt = []*mgmtv1.RebuiltLocation{{Location: "east", Snapshots: 8, Added: 8},
				{Location: "vault", Snapshots: 2, Dropped: 1,
					Damaged: []string{"snapshots/7d1f/20260301T115500Z-1a2b3c4d5e6f.json: bytes do not " +
						"fit their hash"}}}
		}},
		{"catalog_rebuild_json", "catalog rebuild -o json", 0,
			func(f *fake) { f.rebuilt = []*mgmtv1.RebuiltLocation{{Snapshots: 1}} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, f := daemonRunner(t)
			tt.fake(f)
			golden(t, tt.name, r.run(t, tt.line).want(t, tt.code).stdout)
		})
	}
}

// TestMoveRequestHasEveryFlag asserts that every flag is in the request.
func TestMoveRequestHasEveryFlag(t *testing.T) {
	r, f := daemonRunner(t)
	f.operation, f.events = testMove(succeeded, 0, nil), testEvents(succeeded)
	file, text := modifiersOf(t)
	r.run(t, "move run --yes --resource-modifiers "+file+" --source prod --target new --namespace a --namespace b --workload c/d "+
		"--selector tier=gold --force locked --no-fence --suspend-gitops --location vault"+
		" --drop-owner Machine.cluster.x-k8s.io/a/b --accept-difference Machine.b:spec.a "+
		"--managed-fields all --concurrency 3 --canary c/d "+
		"--max-failures 2 --max-pause 0 --observe 90s --post-flight-timeout 9m").want(t, 0)
	raw, err := rawJSON(requestOf[*mgmtv1.RunMoveRequest](t, f))
	if err != nil {
		t.Fatal(err)
	}
	var req map[string]any
	if err := json.Unmarshal(raw, &req); err != nil {
		t.Fatal(err)
	}
	want := `{"planDigest":"","resourceModifiers":"` + base64.StdEncoding.EncodeToString(text) +
		`","spec":{"acceptDifferences":["Machine.b:spec.a"],` +
		`"dropOwners":["Machine.cluster.x-k8s.io/a/b"],"forceCodes":["locked"],"location":"vault",` +
		`"managedFields":"MANAGED_FIELDS_ALL","noFence":true,` +
		`"selection":{"namespaces":["a","b"],"selector":"tier=gold","workloads":["c/d"]},` +
		`"source":"prod","suspendGitops":true,"target":"new"},` +
		`"tuning":{"canary":"c/d","concurrency":3,"maxFailures":2,"maxPause":"0s","observe":"90s",` +
		`"postFlightTimeout":"540s"}}`
	if sorted, _ := json.Marshal(req); string(sorted) != want {
		t.Errorf("got  %s\nwant %s", sorted, want)
	}
}

// TestMoveStandaloneNamesBothSides asserts that the service in this process gets the names of both
// sides.
func TestMoveStandaloneNamesBothSides(t *testing.T) {
	f := newFake()
	f.movePlan = testMovePlan()
	runner{fake: f}.run(t, "move plan --source prod --target new"+moveStandalone).want(t, 3)
	if f.flags.sourceName != "prod" || f.flags.targetName != "new" {
		t.Errorf("names of the sides: %+v", f.flags)
	}
}

// TestMoveRunsThePlanOfAFile runs the output of "move plan". A plan of a restore is refused, as is
// that of a move for a restore.
func TestMoveRunsThePlanOfAFile(t *testing.T) {
	f := newFake()
	f.movePlan, f.plan, f.operation, f.events = testMovePlan(), testPlan(),
		testMove(succeeded, 0, nil), testEvents(succeeded)
	dir := t.TempDir()
	write := func(name, line string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(runner{fake: f}.run(t, line).want(t, 3).stdout),
			0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	move, restore := write("move.yaml", "move plan -o yaml"+moveStandalone),
		write("restore.json", "restore plan -o json"+readFlags)

	r := runner{fake: f, interactive: true, stdin: strings.NewReader("yes\n")}
	r.run(t, "move run --plan "+move+moveStandalone).want(t, 0).stderrHas(t, "Move this?", "fence: ")
	req := requestOf[*mgmtv1.RunMoveRequest](t, f)
	if s := req.GetSpec(); s.GetSource() != "prod" || !s.GetNoFence() || s.GetLocation() != "vault" ||
		req.GetPlanDigest() != "d1ge57" {
		t.Errorf("not the plan's: %v", req)
	}
	runner{fake: f}.run(t, "move run --yes --plan "+restore+moveStandalone).want(t, 2).
		stderrHas(t, "it is the plan of a restore", "hint: give a file that \"mgmtctl move plan -o "+
			"json\" has printed")
	runner{fake: f}.run(t, "restore run --yes --plan "+move+readFlags).want(t, 2).stderrHas(t,
		"it is the plan of a move")
}

// TestIncompleteMovePrintsHowToGoOn also prints how to undo the move while that is possible.
func TestIncompleteMovePrintsHowToGoOn(t *testing.T) {
	const resume, rollback = "mgmtctl operation resume 65f1a2b3c4d5\n",
		"mgmtctl operation rollback 65f1a2b3c4d5\n"
	tests := []struct {
		name              string
		units             map[string]string
		resumes, rollback bool
	}{
		{"paused", map[string]string{"": "copied", "a/b": "paused", "a/c": "pending"}, true, true},
		{"blocked and copied", map[string]string{"": "copied", "a/b": "blocked", "a/c": "copied"}, true,
			true},
		{"one handed over", map[string]string{"a/b": "handed-over", "a/c": "paused"}, true, false},
		{"one not retired", map[string]string{"a/b": "released", "a/c": "retired"}, true, false},
		{"one blocked, the others done", map[string]string{"": "copied", "a/b": "blocked",
			"a/c": "retired"}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, f := daemonRunner(t)
			f.operation, f.events = testMove(failed, 4, tt.units), testEvents(failed)
			got := r.run(t, "move run --yes").want(t, 4)
			if strings.Contains(got.stderr, resume) != tt.resumes ||
				strings.Contains(got.stderr, rollback) != tt.rollback {
				t.Errorf("want resume %v, rollback %v:\n%s", tt.resumes, tt.rollback, got.stderr)
			}
			if !tt.resumes {
				got.stderrHas(t, "plan the move again and run it: it adopts what is there\n  mgmtctl move "+
					"plan\n")
			}
		})
	}
}

// TestNeededIdentityIsAskedFor asserts that the command to give it is printed.
func TestNeededIdentityIsAskedFor(t *testing.T) {
	r, f := daemonRunner(t)
	f.operation, f.events = testOperation(mgmtv1.OperationState_OPERATION_STATE_NEEDS_IDENTITY, 12,
		true), testEvents(failed)
	r.run(t, "operation watch latest").want(t, 12).stderrHas(t, "mgmtctl operation resume "+
		"65f1a2b3c4d5 --identity FILE\n")
}

// TestResumedMoveNeedsItsFlags asserts that resume and rollback ask for the flags of a move once
// the operation is known to be one.
func TestResumedMoveNeedsItsFlags(t *testing.T) {
	f := newFake()
	f.operation, f.events = testMove(stopped, 4, nil), testEvents(succeeded)
	runner{fake: f}.run(t, "operation resume latest --standalone --store /s").want(t, 2).
		stderrHas(t, "needs --recipient (or --plain), --signing-key (or --plain), "+
			"--source-kubeconfig, --target-kubeconfig")
	runner{fake: f}.run(t, "operation rollback latest --standalone --store /s").want(t, 2).
		stderrHas(t, "needs --recipient (or --plain), --signing-key (or --plain), "+
			"--source-kubeconfig, --target-kubeconfig")
	runner{fake: f}.run(t, "operation rollback latest"+moveStandalone).want(t, 4)
	if got := requestOf[*mgmtv1.RollbackOperationRequest](t, f).GetId(); got != "65f1a2b3c4d5" {
		t.Errorf("rolls back %q, want the whole id", got)
	}
}

// TestLatestIsTheNewestMoveOrRestore for a resume and a rollback: a daemon begins other operations
// by itself.
func TestLatestIsTheNewestMoveOrRestore(t *testing.T) {
	for _, command := range []string{"resume", "rollback"} {
		f := newFake()
		f.operation = testMove(stopped, 4, nil)
		runner{fake: f}.run(t, "operation "+command+" latest --standalone --store /s").want(t, 2)
		got := requestOf[*mgmtv1.GetOperationRequest](t, f).GetKinds()
		if len(got) != 2 || got[0] != "move" || got[1] != "restore" {
			t.Errorf("%s: latest is the newest operation of %v", command, got)
		}
	}
}

// TestRollbackWithoutTarget needs the store and the kubeconfig of the source, and prints how to
// remove the copies once the target answers.
func TestRollbackWithoutTarget(t *testing.T) {
	f := newFake()
	f.operation, f.events = testMove(failed, 4, map[string]string{"a/b": "given-back",
		"a/c": "rolled-back"}), testEvents(failed)
	const line = "operation rollback latest --without-target --standalone --store s"
	runner{fake: f}.run(t, line).want(t, 2).stderrHas(t, "this needs --source-kubeconfig")
	got := runner{fake: f}.run(t, line+" --source-kubeconfig s").want(t, 4)
	got.stderrHas(t, "copies on new stay paused: once it answers, this removes them:\n"+
		"  mgmtctl operation rollback 65f1a2b3c4d5 --standalone --store s --source-kubeconfig s\n")
	if !requestOf[*mgmtv1.RollbackOperationRequest](t, f).GetWithoutTarget() {
		t.Error("it is rolled back with the target")
	}
	f.operation.Units["a/c"] = "handed-over"
	runner{fake: f}.run(t, line+" --source-kubeconfig s").want(t, 4).
		stderrHas(t, "mgmtctl operation resume 65f1a2b3c4d5")
	runner{fake: f}.run(t, "operation rollback --from-marks --without-target").want(t, 2).
		stderrHas(t, "exclude each other")
}

// TestResumeWithoutSource needs what a restore needs, and prints how to retire the rest.
func TestResumeWithoutSource(t *testing.T) {
	f := newFake()
	f.operation, f.events = testMove(failed, 4, map[string]string{"a/b": "released"}),
		testEvents(failed)
	const line = "operation resume latest --without-source --standalone --store s"
	runner{fake: f}.run(t, line).want(t, 2).stderrHas(t, "this needs --identity (or --plain)")
	keys := t.TempDir()
	runner{fake: newFake()}.run(t, "keygen --out "+keys+"/k").want(t, 0)
	runner{fake: f}.run(t, line+" --target-kubeconfig t --recipient age1x --signing-key s --identity "+
		keys+"/k/identity.txt").want(t, 4).
		stderrHas(t, "mgmtctl operation resume 65f1a2b3c4d5 --standalone")
	if !requestOf[*mgmtv1.ResumeOperationRequest](t, f).GetWithoutSource() {
		t.Error("it is resumed with the source")
	}
}

// TestStopOfAnEndedOperationSaysSo says that there was nothing to stop.
func TestStopOfAnEndedOperationSaysSo(t *testing.T) {
	r, f := daemonRunner(t)
	f.operation = testMove(succeeded, 0, nil)
	r.run(t, "operation stop 65").want(t, 0).stderrHas(t, "at work no more: succeeded")
	if got := requestOf[*mgmtv1.StopOperationRequest](t, f).GetId(); got != "65" {
		t.Errorf("stops %q", got)
	}
}

// TestScheduleRunFollowsItsSnapshot follows the snapshot of a schedule, and names a schedule that
// does not exist.
func TestScheduleRunFollowsItsSnapshot(t *testing.T) {
	r, f := daemonRunner(t)
	f.schedules, f.operation, f.events = testSchedules(), testOperation(succeeded, 0, true),
		testEvents(succeeded)
	r.run(t, "schedule run hourly").want(t, 0).stderrHas(t, "operation 65f1a2b3c4d5",
		"operation succeeded")
	for _, verb := range []string{"run", "pause", "resume"} {
		r.run(t, "schedule "+verb+" weekly").want(t, 1).stderrHas(t, `no schedule is named "weekly"`)
	}
}

func TestAcceptNeedsAnOperationAndAWorkloadCluster(t *testing.T) {
	r, f := daemonRunner(t)
	f.operation = testMove(failed, 4, map[string]string{"team-a/api": "paused",
		"team-a/db": "released", "team-a/web": "handed-over"})
	r.run(t, "operation accept").want(t, 2).stderrHas(t, "argument missing")
	r.run(t, "operation accept latest").want(t, 2).stderrHas(t, "NAMESPACE/NAME")
	r.run(t, "operation accept latest web").want(t, 2)
	r.run(t, "operation accept latest a/b c/d").want(t, 2).stderrHas(t, "takes two arguments")
	r.run(t, "operation accept latest team-a/web").want(t, 0).stderrHas(t,
		"operation resume 65f1a2b3c4d5")
	if req := requestOf[*mgmtv1.AcceptUnitRequest](t, f); req.GetId() != "latest" ||
		req.GetUnit() != "team-a/web" {
		t.Errorf("request %v", req)
	}
	if got := r.complete(t, "operation accept latest"); !strings.HasPrefix(got,
		"team-a/db\nteam-a/web\n:") {
		t.Errorf("completes %q", got)
	}
}

// TestCompletionAsksTheDaemon completes names of a daemon, and none without one.
func TestCompletionAsksTheDaemon(t *testing.T) {
	r, f := daemonRunner(t)
	f.schedules, f.mgmts, f.operation = testSchedules(), testMgmts(), testOperation(succeeded, 0, true)
	f.locations = testLocations()
	const locations = "archive\tfile:///archive\nmain\ts3://mgmt/prod\noffsite\ts3://mgmt-copy/prod\n"
	for line, want := range map[string]string{
		"schedule pause":     "hourly\t@every 1h\nnightly\t0 1 * * *\n",
		"mgmt check":         "prod\nwest\n",
		"move run --source":  "prod\nwest\n",
		"operation rollback": "latest\n65f1a2b3c4d5\trestore succeeded\n",
		"operation accept":   "latest\n65f1a2b3c4d5\trestore succeeded\n",

		"snapshot list --location": locations,
		"store copy --to-location": locations,
	} {
		if got := r.complete(t, line); !strings.HasPrefix(got, want+":") {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
		silent := runner{fake: newFake(), getenv: map[string]string{
			"MGMTCTL_ADDRESS": "unix:///nobody/there"}}.complete(t, line)
		if strings.Contains(silent, "prod") || strings.Contains(silent, "hourly") ||
			strings.Contains(silent, "65f1") || strings.Contains(silent, "archive") {
			t.Errorf("%s: without a daemon %q", line, silent)
		}
	}
}

// TestAMoveWhoseSideIsAwayPrintsTheWayWithoutIt: at the end of the run, not only after a resume or
// a rollback that fails for the same reason.
func TestAMoveWhoseSideIsAwayPrintsTheWayWithoutIt(t *testing.T) {
	const key = " --standalone --store /s --recipient age1x --signing-key k --source-kubeconfig s" +
		" --target-kubeconfig t"
	for _, tt := range []struct {
		code  object.Code
		state string
		want  string
	}{
		{object.CodeTargetAway, "paused", "gives back to prod what is not handed over:\n  " +
			"mgmtctl operation rollback 65f1a2b3c4d5 --without-target"},
		{object.CodeSourceAway, "handed-over", "releases on new what is handed over:\n  " +
			"mgmtctl operation resume 65f1a2b3c4d5 --without-source --identity FILE"},
		{object.CodeObserve, "paused", "nothing is handed over yet; to undo it instead:\n  " +
			"mgmtctl operation rollback 65f1a2b3c4d5 --standalone"},
	} {
		f := newFake()
		f.operation = testMove(failed, 4, map[string]string{"a/b": tt.state})
		f.operation.Source, f.operation.Target = "prod", "new"
		f.events = []*mgmtv1.Event{stateEvent(running), {Type: mgmtv1.EventType_EVENT_TYPE_FINDING,
			Finding: &mgmtv1.Finding{Code: string(tt.code), Message: "it does not answer", Hint: "do"}},
			stateEvent(failed)}
		runner{fake: f}.run(t, "move run --yes"+key).want(t, 4).stderrHas(t, tt.want)
	}
}
