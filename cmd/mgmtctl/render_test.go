package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func serveOn(t *testing.T, f *fake, listener net.Listener) {
	t.Helper()
	s := grpc.NewServer(service.ServerOptions()...)
	f.Register(s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(listener) }()
	t.Cleanup(func() { s.Stop(); <-done })
}

func testSnapshots() []*mgmtv1.Snapshot {
	return []*mgmtv1.Snapshot{
		{
			Id: "1a2b3c4d5e6f", SourceUid: "7d1f", Source: "prod", Time: ago(5 * time.Minute),
			ResourceVersion: "123456", Sequence: 8, Objects: 20412, Units: 103,
			Missing: 2, StoredBytes: 44_000_000, Trust: mgmtv1.Trust_TRUST_TRUSTED,
			TrustDetail: "key 0F1E2D", Recipients: []string{"0f1e2d3c4b5a6978"},
			Key: "snapshots/7d1f/20260301T115500Z-1a2b3c4d5e6f.json",
			Verified: &mgmtv1.Verification{Time: ago(2 * time.Minute),
				Level: mgmtv1.VerifyLevel_VERIFY_LEVEL_STRUCTURE, Result: mgmtv1.VerifyResult_VERIFY_RESULT_OK},
		},
		{
			Id: "0a2b3c4d5e6f", SourceUid: "7d1f", Source: "prod", Time: ago(26 * time.Hour), Sequence: 7,
			Objects: 12, Units: 1, StoredBytes: 900,
			Trust: mgmtv1.Trust_TRUST_STRANGER, Partial: true,
			NotInCut: []string{"IPAddress.ipam.cluster.x-k8s.io"},
			Verified: &mgmtv1.Verification{Time: ago(time.Hour), Level: mgmtv1.VerifyLevel_VERIFY_LEVEL_FULL,
				Result: mgmtv1.VerifyResult_VERIFY_RESULT_DAMAGED},
		},
		{Id: "00ffffffffff", SourceUid: "7d1f", Trust: mgmtv1.Trust_TRUST_DAMAGED,
			TrustDetail: "bytes do not fit their hash"},
	}
}

func testUnits() []*mgmtv1.UnitSummary {
	return []*mgmtv1.UnitSummary{
		{SharedNamespace: "team-a", Objects: 4},
		{Name: "team-a/api", WorkloadId: "9e2d", Objects: 40, Machines: 5, Paused: true},
		{Name: "team-a/web", WorkloadId: "8c1b", Objects: 61, Machines: 9,
			Missing: []*mgmtv1.Ref{{Kind: "Secret", Namespace: "team-a", Name: "cloud"}}},
	}
}

func ref(group, kind, namespace, name string) *mgmtv1.Ref {
	return &mgmtv1.Ref{Group: group, Kind: kind, Namespace: namespace, Name: name}
}

const clusterAPI = "cluster.x-k8s.io"

func testCoverage(missing bool) []*mgmtv1.ExplainCoverageResponse {
	all := []*mgmtv1.ExplainCoverageResponse{
		{Ref: ref(clusterAPI, "Cluster", "team-a", "web"), Coverage: mgmtv1.Coverage_COVERAGE_INCLUDED,
			Reason: "kind of a provider", Unit: "team-a/web"},
		{Ref: ref("acme.example.org", "Report", "team-a", "of-web"),
			Coverage: mgmtv1.Coverage_COVERAGE_INCLUDED, Unit: "team-a/web", CapturedOnly: true,
			Reason: "owned by the Cluster; it is not restored: nothing is known of its kind"},
		{Ref: ref("", "Secret", "team-a", "other"), Coverage: mgmtv1.Coverage_COVERAGE_LEFT_OUT,
			Reason: "nothing names it"},
	}
	if missing {
		need := func(name, unit, by, field string) {
			all = append(all, &mgmtv1.ExplainCoverageResponse{Ref: ref("", "Secret", "team-a", name),
				Coverage: mgmtv1.Coverage_COVERAGE_MISSING, Reason: "it is needed", Unit: unit,
				NeededBy: ref(clusterAPI, "Machine", "team-a", by), Field: field})
		}
		need("cloud", "team-a/web", "web-1", "spec.identityRef")
		need("token", "team-a/web", "web-1", "spec.bootstrap.dataSecretName")
		need("cloud", "", "lost", "spec.identityRef")
	}
	return all
}

func testFindings() []*mgmtv1.Finding {
	return []*mgmtv1.Finding{
		{Severity: mgmtv1.Severity_SEVERITY_INFO, Code: "runs-code",
			Message: "ClusterResourceSet.addons.cluster.x-k8s.io (2): they apply objects"},
		{Severity: mgmtv1.Severity_SEVERITY_ERROR, Code: "owner-missing", Unit: "team-a/web",
			Ref:     ref(clusterAPI, "MachineSet", "team-a", "web-2"),
			Message: "owner MachineDeployment web is neither in the snapshot nor on the target",
			Hint:    "restore or create the owner first, or leave out the reference"},
		{Severity: mgmtv1.Severity_SEVERITY_ERROR, Code: "owner-missing", Unit: "team-a/web",
			Ref:     ref(clusterAPI, "MachineSet", "team-a", "web-1"),
			Message: "owner MachineDeployment web is neither in the snapshot nor on the target",
			Hint:    "restore or create the owner first, or leave out the reference"},
		{Severity: mgmtv1.Severity_SEVERITY_WARNING, Code: "not-newest",
			Message: "a newer snapshot of this source is in the store"},
	}
}

// testPlan is a plan with one unit that can run and one that is blocked.
func testPlan() []*mgmtv1.PlanRestoreResponse {
	plan := []*mgmtv1.PlanRestoreResponse{
		{Item: &mgmtv1.PlanRestoreResponse_Header{Header: &mgmtv1.PlanHeader{Snapshot: testSnapshots()[0],
			Target: "new", TargetUid: "aa11",
			Spec: &mgmtv1.RestoreSpec{Snapshot: "1a2b3c4d5e6f", SourceIsGone: true,
				DropOwners: []string{"A.b/c/d"}, ManagedFields: mgmtv1.ManagedFields_MANAGED_FIELDS_APPLY}}}},
	}
	for _, u := range []*mgmtv1.PlanUnit{
		{Objects: 4}, {Name: "team-a/api", Objects: 40, Machines: 5, StaysPaused: true},
		{Name: "team-a/db", Objects: 40, Machines: 5},
		{Name: "team-a/web", Objects: 61, Machines: 9, Blocked: true},
	} {
		plan = append(plan, &mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Unit{Unit: u}})
	}
	for _, o := range []*mgmtv1.PlanObject{
		{Ref: ref("", "Namespace", "", "team-a"), Action: mgmtv1.PlanAction_PLAN_ACTION_ADOPT},
		{Ref: ref(clusterAPI, "Cluster", "team-a", "db"), Unit: "team-a/db", Wave: 1,
			Action: mgmtv1.PlanAction_PLAN_ACTION_CREATE},
		{Ref: ref(clusterAPI, "Machine", "team-a", "db-1"), Unit: "team-a/db", Wave: 2,
			Action: mgmtv1.PlanAction_PLAN_ACTION_CREATE,
			Owners: []*mgmtv1.Ref{ref(clusterAPI, "Cluster", "team-a", "db")}},
		{Ref: ref(clusterAPI, "Machine", "team-a", "web-1"), Unit: "team-a/web", Wave: 2,
			Action: mgmtv1.PlanAction_PLAN_ACTION_SKIP, Reason: "its unit is blocked"},
	} {
		plan = append(plan, &mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Object{
			Object: o}})
	}
	for _, f := range testFindings() {
		plan = append(plan, &mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Finding{
			Finding: f}})
	}
	return append(plan, &mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Summary{
		Summary: &mgmtv1.PlanSummary{
			Digest: "d1ge57", Create: 2, Adopt: 1, Skip: 1, BlockedUnits: 1}}})
}

// testPrunePlan is a plan that removes one of two snapshots.
func testPrunePlan() []*mgmtv1.PlanPruneResponse {
	retained := testSnapshots()[0]
	retained.Pinned = true
	return []*mgmtv1.PlanPruneResponse{
		{Item: &mgmtv1.PlanPruneResponse_Snapshot{Snapshot: &mgmtv1.PrunedSnapshot{Snapshot: retained,
			Keep: []string{"newest", "pinned: before the upgrade"}}}},
		{Item: &mgmtv1.PlanPruneResponse_Snapshot{Snapshot: &mgmtv1.PrunedSnapshot{
			Snapshot: testSnapshots()[1]}}},
		{Item: &mgmtv1.PlanPruneResponse_Finding{Finding: &mgmtv1.Finding{Code: "clock",
			Severity: mgmtv1.Severity_SEVERITY_WARNING,
			Message:  "the clock of the storage and that of this host are 3m0s apart"}}},
		{Item: &mgmtv1.PlanPruneResponse_Summary{Summary: &mgmtv1.PruneSummary{Kept: 1, Removed: 1,
			Frees: &mgmtv1.PruneAmount{Keys: 7, Bytes: 900}, Waits: &mgmtv1.PruneAmount{Keys: 2, Bytes: 80},
			Time: timestamppb.New(now), Grace: durationpb.New(6 * time.Hour),
			Retention: &mgmtv1.Retention{KeepDaily: 7, KeepWithin: durationpb.New(48 * time.Hour)}}}},
	}
}

// testBlockedPrunePlan is a plan that removes no content, because an envelope cannot be read.
func testBlockedPrunePlan() []*mgmtv1.PlanPruneResponse {
	return []*mgmtv1.PlanPruneResponse{
		{Item: &mgmtv1.PlanPruneResponse_Finding{Finding: &mgmtv1.Finding{Code: "envelope-unreadable",
			Severity: mgmtv1.Severity_SEVERITY_ERROR, Message: "what it needs is not known"}}},
		{Item: &mgmtv1.PlanPruneResponse_Summary{Summary: &mgmtv1.PruneSummary{Kept: 1, Blocked: true,
			Time: timestamppb.New(now), Grace: durationpb.New(6 * time.Hour)}}},
	}
}

func testPrune(state mgmtv1.OperationState) *mgmtv1.Operation {
	return &mgmtv1.Operation{Id: "65f1a2b3c4d5", Kind: kindPrune, State: state, Location: "vault",
		CreateTime: ago(10 * time.Minute), UpdateTime: ago(8 * time.Minute),
		Message: "1 snapshot removed"}
}

func summaryOf(plan []*mgmtv1.PlanRestoreResponse) *mgmtv1.PlanSummary {
	return plan[len(plan)-1].GetSummary()
}

func testOperation(state mgmtv1.OperationState, exitCode int32, changed bool) *mgmtv1.Operation {
	return &mgmtv1.Operation{
		Id: "65f1a2b3c4d5", Kind: "restore", State: state, CreateTime: ago(10 * time.Minute),
		UpdateTime: ago(8 * time.Minute), Source: "prod", Target: "new",
		SnapshotId: "1a2b3c4d5e6f", Units: map[string]string{"team-a/api": "released",
			"team-a/db": "released", "team-a/web": "pending"},
		ExitCode: exitCode, Changed: changed,
	}
}

const (
	running   = mgmtv1.OperationState_OPERATION_STATE_RUNNING
	succeeded = mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED
	stopped   = mgmtv1.OperationState_OPERATION_STATE_STOPPED
	failed    = mgmtv1.OperationState_OPERATION_STATE_FAILED
)

func stateEvent(state mgmtv1.OperationState) *mgmtv1.Event {
	return &mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_OPERATION, State: state}
}

// testEvents is a history that ends in state.
func testEvents(state mgmtv1.OperationState) []*mgmtv1.Event {
	events := []*mgmtv1.Event{
		stateEvent(mgmtv1.OperationState_OPERATION_STATE_PLANNED),
		stateEvent(running),
		{Type: mgmtv1.EventType_EVENT_TYPE_STEP, Step: "create/1", StepState: "begun", Unit: "team-a/db"},
		{Type: mgmtv1.EventType_EVENT_TYPE_PROGRESS, Progress: "objects created", Done: 1, Total: 2},
		{Type: mgmtv1.EventType_EVENT_TYPE_PROGRESS, Progress: "objects created", Done: 2, Total: 2},
		{Type: mgmtv1.EventType_EVENT_TYPE_STEP, Step: "create/1", StepState: "done", Unit: "team-a/db"},
		{Type: mgmtv1.EventType_EVENT_TYPE_STEP, Step: "create/1", StepState: "failed",
			Unit: "team-a/web", Message: "create Machine: denied"},
		{Type: mgmtv1.EventType_EVENT_TYPE_UNIT, Unit: "team-a/db", UnitState: "released"},
		{Type: mgmtv1.EventType_EVENT_TYPE_UNIT, Unit: "team-a/web", UnitState: "blocked"},
		{Type: mgmtv1.EventType_EVENT_TYPE_MESSAGE, Message: "watching the target"},
	}
	for _, f := range testFindings() {
		events = append(events, &mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_FINDING, Finding: f})
	}
	events = append(events, stateEvent(state))
	for i, e := range events {
		e.Time = ago(time.Duration(600-i) * time.Second)
		if e.GetType() != mgmtv1.EventType_EVENT_TYPE_PROGRESS {
			e.Seq = int64(i + 1)
		}
	}
	return events
}

const (
	readFlags    = " --standalone --store /s --plain --target-kubeconfig t"
	writeFlags   = " --standalone --store /s --plain --source-kubeconfig s"
	storeFlags   = " --standalone --store /s --plain"
	catalogFlags = " --standalone"
)

// TestResultsInEveryFormat compares each result, in each format of its own, with a golden file.
func TestResultsInEveryFormat(t *testing.T) {
	tests := []struct {
		name string
		line string
		code int
		fake func(*fake)
	}{
		{"snapshot_list", "snapshot list" + readFlags, 0,
			func(f *fake) { f.snapshots = testSnapshots() }},
		{"snapshot_list_json", "snapshot list -o json" + readFlags, 0,
			func(f *fake) { f.snapshots = testSnapshots() }},
		{"snapshot_show", "snapshot show latest" + readFlags, 0, func(f *fake) {
			f.snapshots,
				f.units = testSnapshots(), testUnits()
		}},
		{"snapshot_show_yaml", "snapshot show 1a -o yaml" + readFlags, 0, func(f *fake) {
			f.snapshots,
				f.units = testSnapshots(), testUnits()
		}},
		{"snapshot_coverage", "snapshot coverage" + writeFlags, 3,
			func(f *fake) { f.coverage = testCoverage(true) }},
		{"snapshot_coverage_complete", "snapshot coverage" + writeFlags, 0,
			func(f *fake) { f.coverage = testCoverage(false) }},
		{"snapshot_coverage_json", "snapshot coverage -o json" + writeFlags, 3,
			func(f *fake) { f.coverage = testCoverage(true) }},
		{"snapshot_ls", "snapshot ls" + readFlags, 0,
			func(f *fake) { f.objects = testObjects() }},
		{"snapshot_ls_name", "snapshot ls latest team-a -o name" + readFlags, 0,
			func(f *fake) { f.objects = testObjects() }},
		{"snapshot_ls_json", "snapshot ls -o json" + readFlags, 0,
			func(f *fake) { f.objects = testObjects() }},
		{"snapshot_cat", "snapshot cat latest secret team-a/cloud" + readFlags, 0,
			func(f *fake) { f.object = testObject() }},
		{"snapshot_cat_json", "snapshot cat latest secret team-a/cloud -o json" + readFlags, 0,
			func(f *fake) { f.object = testObject() }},
		{"snapshot_extract", "snapshot extract latest" + readFlags, 0,
			func(f *fake) { f.extract = testExtract() }},
		{"snapshot_extract_json", "snapshot extract latest -o json" + readFlags, 0,
			func(f *fake) { f.extract = testExtract() }},
		{"snapshot_find", "snapshot find cluster team-a/web" + readFlags, 3,
			func(f *fake) { f.found = testFound() }},
		{"snapshot_find_json", "snapshot find cluster team-a/web --changes -o json" + readFlags, 0,
			func(f *fake) { f.found = testFound()[:1] }},
		{"restore_plan", "restore plan" + readFlags, 3, func(f *fake) { f.plan = testPlan() }},
		{"restore_plan_json", "restore plan -o json" + readFlags, 3,
			func(f *fake) { f.plan = testPlan() }},
		{"restore_plan_yaml", "restore plan -o yaml" + readFlags, 3,
			func(f *fake) { f.plan = testPlan() }},
		{"operation_list", "operation list" + catalogFlags, 0,
			func(f *fake) { f.operation = testOperation(failed, 4, true) }},
		{"operation_show", "operation show latest" + catalogFlags, 0,
			func(f *fake) { f.operation = testOperation(failed, 4, true) }},
		{"operation_show_json", "operation show latest -o json" + catalogFlags, 0,
			func(f *fake) { f.operation = testOperation(failed, 4, true) }},
		{"operation_watch", "operation watch latest" + catalogFlags, 4, func(f *fake) {
			f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
		}},
		{"operation_watch_json", "operation watch latest -o json" + catalogFlags, 0, func(f *fake) {
			f.operation, f.events = testOperation(succeeded, 0, true), testEvents(succeeded)[:3]
		}},
		{"restore_run", "restore run --yes" + readFlags, 4, func(f *fake) {
			f.operation, f.events = testOperation(failed, 4, true), testEvents(failed)
		}},
		{"snapshot_verify", "snapshot verify latest" + readFlags, 0, func(f *fake) {
			f.operation = &mgmtv1.Operation{Id: "65f1a2b3c4d5", Kind: "verify", State: succeeded,
				SnapshotId: "1a2b3c4d5e6f", Source: "prod"}
		}},
		{"prune_plan", "prune plan" + storeFlags, 0, func(f *fake) { f.prunePlan = testPrunePlan() }},
		{"prune_plan_json", "prune plan -o json" + storeFlags, 0,
			func(f *fake) { f.prunePlan = testPrunePlan() }},
		{"prune_plan_blocked", "prune plan" + storeFlags, 3,
			func(f *fake) { f.prunePlan = testBlockedPrunePlan() }},
		{"keygen_check", "keygen check" + readFlags, 12, func(f *fake) {
			f.keyCheck = testKeyCheck(keyFinding(mgmtv1.Severity_SEVERITY_ERROR, "identity-wrong"),
				keyFinding(mgmtv1.Severity_SEVERITY_ERROR, "recipient-missing"))
		}},
		{"keygen_check_json", "keygen check -o json" + readFlags, 0,
			func(f *fake) { f.keyCheck = testKeyCheck() }},
		{"store_list", "store list" + storeFlags, 0,
			func(f *fake) { f.locations = testLocations() }},
		{"store_list_json", "store list -o json" + storeFlags, 0,
			func(f *fake) { f.locations = testLocations() }},
		{"store_stats", "store stats" + storeFlags, 0,
			func(f *fake) { f.stats = testStats(false) }},
		{"store_stats_unreadable", "store stats --snapshots --days 3" + storeFlags, 3,
			func(f *fake) { f.stats = testStats(true) }},
		{"store_stats_json", "store stats -o json" + storeFlags, 3,
			func(f *fake) { f.stats = testStats(true) }},
		{"prune_run", "prune run --yes" + storeFlags, 0, func(f *fake) {
			f.operation = testPrune(succeeded)
			f.events = testEvents(succeeded)[:2]
		}},
		{"prune_run_left", "prune run --yes" + storeFlags, 4, func(f *fake) {
			f.operation = testPrune(failed)
			f.operation.ExitCode, f.operation.Changed = 4, true
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			tt.fake(f)
			r := runner{fake: f}.run(t, tt.line).want(t, tt.code)
			golden(t, tt.name, r.stdout)
			if !f.closed {
				t.Error("the service was not closed")
			}
			for _, line := range strings.Split(r.stdout, "\n") {
				if strings.TrimRight(line, " ") != line {
					t.Errorf("line ends in spaces: %q", line)
				}
			}
		})
		t.Run(tt.name+" through a daemon", func(t *testing.T) {
			r, f := daemonRunner(t)
			tt.fake(f)
			line, _, _ := strings.Cut(tt.line, " --standalone")
			golden(t, tt.name, r.run(t, line).want(t, tt.code).stdout)
		})
	}
}
