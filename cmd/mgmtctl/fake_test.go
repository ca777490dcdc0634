package main

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/retry"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// now is when all tests run.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

// fake is the service, with the answers of a test. What a test leaves nil is UNIMPLEMENTED.
type fake struct {
	mgmtv1.UnimplementedSnapshotServiceServer
	mgmtv1.UnimplementedRestoreServiceServer
	mgmtv1.UnimplementedOperationServiceServer
	mgmtv1.UnimplementedMoveServiceServer
	mgmtv1.UnimplementedScheduleServiceServer
	mgmtv1.UnimplementedMgmtServiceServer
	mgmtv1.UnimplementedCatalogServiceServer
	mgmtv1.UnimplementedPruneServiceServer
	mgmtv1.UnimplementedStoreServiceServer
	mgmtv1.UnimplementedStoreRepairServiceServer

	flags standaloneFlags // as given to serve

	snapshots  []*mgmtv1.Snapshot
	pageSize   int // of lists of snapshots; 0: it knows no pages
	units      []*mgmtv1.UnitSummary
	coverage   []*mgmtv1.ExplainCoverageResponse
	graph      []*mgmtv1.GraphSnapshotResponse
	objects    []*mgmtv1.ListObjectsResponse
	object     *mgmtv1.GetObjectResponse
	extract    []*mgmtv1.ExtractObjectsResponse
	found      []*mgmtv1.FindObjectResponse
	plan       []*mgmtv1.PlanRestoreResponse
	movePlan   []*mgmtv1.PlanMoveResponse
	prunePlan  []*mgmtv1.PlanPruneResponse
	stats      []*mgmtv1.GetStatsResponse
	repairPlan []*mgmtv1.PlanRepairResponse
	repaired   []*mgmtv1.RunRepairResponse
	keyCheck   *mgmtv1.CheckKeysResponse
	locations  []*mgmtv1.Location
	marksPlan  *mgmtv1.PlanRollbackFromMarksResponse
	schedules  []*mgmtv1.Schedule
	mgmts      []*mgmtv1.Mgmt
	fenced     []string
	already    []string
	findings   []*mgmtv1.Finding
	rebuilt    []*mgmtv1.RebuiltLocation
	operation  *mgmtv1.Operation // what GetOperation gives, once the watch has ended
	events     []*mgmtv1.Event
	// begin answers the calls that begin an operation; nil gives the operation, running.
	begin func(ctx context.Context) error
	// untilStop makes WatchOperation wait, after the events, for Stop, and then send the last
	// event.
	untilStop bool
	watching  chan struct{} // closed when WatchOperation waits
	watchErr  error
	// breakAfter is after how many events a stream breaks, as when the connection ends; 0: never.
	breakAfter int

	mu       sync.Mutex
	requests []any
	stopOnce sync.Once
	stopped  chan struct{}
	closed   bool
}

func newFake() *fake {
	return &fake{stopped: make(chan struct{}), watching: make(chan struct{})}
}

func (f *fake) Register(r grpc.ServiceRegistrar) {
	mgmtv1.RegisterSnapshotServiceServer(r, f)
	mgmtv1.RegisterRestoreServiceServer(r, f)
	mgmtv1.RegisterOperationServiceServer(r, f)
	mgmtv1.RegisterMoveServiceServer(r, f)
	mgmtv1.RegisterScheduleServiceServer(r, f)
	mgmtv1.RegisterMgmtServiceServer(r, f)
	mgmtv1.RegisterCatalogServiceServer(r, f)
	mgmtv1.RegisterPruneServiceServer(r, f)
	mgmtv1.RegisterStoreServiceServer(r, f)
	mgmtv1.RegisterStoreRepairServiceServer(r, f)
}

func (f *fake) Stop() { f.stopOnce.Do(func() { close(f.stopped) }) }

func (f *fake) Close() error {
	f.closed = true
	return nil
}

func (f *fake) saw(req any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, req)
}

func (f *fake) start(ctx context.Context, req any) (*mgmtv1.Operation, error) {
	f.saw(req)
	if f.begin != nil {
		if err := f.begin(ctx); err != nil {
			return nil, err
		}
	}
	return &mgmtv1.Operation{Id: f.operation.GetId(), Kind: f.operation.GetKind(),
		State: mgmtv1.OperationState_OPERATION_STATE_RUNNING}, nil
}

func (f *fake) CreateSnapshot(ctx context.Context, req *mgmtv1.CreateSnapshotRequest) (
	*mgmtv1.CreateSnapshotResponse, error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.CreateSnapshotResponse{Operation: op}, err
}

func (f *fake) VerifySnapshot(ctx context.Context, req *mgmtv1.VerifySnapshotRequest) (
	*mgmtv1.VerifySnapshotResponse, error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.VerifySnapshotResponse{Operation: op}, err
}

func (f *fake) RunRestore(ctx context.Context, req *mgmtv1.RunRestoreRequest) (
	*mgmtv1.RunRestoreResponse, error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.RunRestoreResponse{Operation: op}, err
}

func (f *fake) ResumeOperation(ctx context.Context, req *mgmtv1.ResumeOperationRequest) (
	*mgmtv1.ResumeOperationResponse, error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.ResumeOperationResponse{Operation: op}, err
}

func (f *fake) ListSnapshots(_ context.Context, req *mgmtv1.ListSnapshotsRequest) (
	*mgmtv1.ListSnapshotsResponse, error) {
	f.saw(proto.Clone(req))
	if f.pageSize == 0 {
		return &mgmtv1.ListSnapshotsResponse{Snapshots: f.snapshots}, nil
	}
	list, resp := f.snapshots, &mgmtv1.ListSnapshotsResponse{}
	for len(list) > 0 && req.GetPageToken() != "" {
		last := list[0].GetKey()
		if list = list[1:]; last == req.GetPageToken() {
			break
		}
	}
	size := f.pageSize
	if n := int(req.GetPageSize()); n > 0 {
		size = min(size, n)
	}
	resp.Snapshots = list[:min(size, len(list))]
	if size < len(list) {
		resp.NextPageToken = list[size-1].GetKey()
	}
	return resp, nil
}

func (f *fake) GetSnapshot(_ context.Context, req *mgmtv1.GetSnapshotRequest) (
	*mgmtv1.GetSnapshotResponse, error) {
	f.saw(req)
	return &mgmtv1.GetSnapshotResponse{Snapshot: f.snapshots[0], Units: f.units}, nil
}

func (f *fake) ExplainCoverage(req *mgmtv1.ExplainCoverageRequest,
	stream grpc.ServerStreamingServer[mgmtv1.ExplainCoverageResponse]) error {
	f.saw(req)
	return sendAll(stream, f.coverage)
}

func (f *fake) GraphSnapshot(req *mgmtv1.GraphSnapshotRequest,
	stream grpc.ServerStreamingServer[mgmtv1.GraphSnapshotResponse]) error {
	f.saw(req)
	return sendAll(stream, f.graph)
}

func (f *fake) ListObjects(req *mgmtv1.ListObjectsRequest,
	stream grpc.ServerStreamingServer[mgmtv1.ListObjectsResponse]) error {
	f.saw(req)
	return sendAll(stream, f.objects)
}

func (f *fake) GetObject(_ context.Context, req *mgmtv1.GetObjectRequest) (
	*mgmtv1.GetObjectResponse, error) {
	f.saw(req)
	return f.object, nil
}

func (f *fake) ExtractObjects(req *mgmtv1.ExtractObjectsRequest,
	stream grpc.ServerStreamingServer[mgmtv1.ExtractObjectsResponse]) error {
	f.saw(req)
	return sendAll(stream, f.extract)
}

func (f *fake) FindObject(req *mgmtv1.FindObjectRequest,
	stream grpc.ServerStreamingServer[mgmtv1.FindObjectResponse]) error {
	f.saw(req)
	return sendAll(stream, f.found)
}

func (f *fake) PlanRestore(req *mgmtv1.PlanRestoreRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanRestoreResponse]) error {
	f.saw(req)
	return sendAll(stream, f.plan)
}

func (f *fake) PlanPrune(req *mgmtv1.PlanPruneRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanPruneResponse]) error {
	f.saw(req)
	return sendAll(stream, f.prunePlan)
}

func (f *fake) GetStats(req *mgmtv1.GetStatsRequest,
	stream grpc.ServerStreamingServer[mgmtv1.GetStatsResponse]) error {
	f.saw(req)
	return sendAll(stream, f.stats)
}

func (f *fake) PlanRepair(req *mgmtv1.PlanRepairRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanRepairResponse]) error {
	f.saw(req)
	return sendAll(stream, f.repairPlan)
}

func (f *fake) RunRepair(req *mgmtv1.RunRepairRequest,
	stream grpc.ServerStreamingServer[mgmtv1.RunRepairResponse]) error {
	f.saw(req)
	return sendAll(stream, f.repaired)
}

func (f *fake) CopyStore(ctx context.Context, req *mgmtv1.CopyStoreRequest) (
	*mgmtv1.CopyStoreResponse, error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.CopyStoreResponse{Operation: op}, err
}

func (f *fake) ListLocations(_ context.Context, req *mgmtv1.ListLocationsRequest) (
	*mgmtv1.ListLocationsResponse, error) {
	f.saw(req)
	return &mgmtv1.ListLocationsResponse{Locations: f.locations}, nil
}

func (f *fake) CheckKeys(_ context.Context, req *mgmtv1.CheckKeysRequest) (
	*mgmtv1.CheckKeysResponse, error) {
	f.saw(req)
	return f.keyCheck, nil
}

func (f *fake) RunPrune(ctx context.Context, req *mgmtv1.RunPruneRequest) (
	*mgmtv1.RunPruneResponse, error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.RunPruneResponse{Operation: op}, err
}

func (f *fake) ListOperations(_ context.Context, req *mgmtv1.ListOperationsRequest) (
	*mgmtv1.ListOperationsResponse, error) {
	f.saw(req)
	return &mgmtv1.ListOperationsResponse{Operations: []*mgmtv1.Operation{f.operation}}, nil
}

func (f *fake) GetOperation(_ context.Context, req *mgmtv1.GetOperationRequest) (
	*mgmtv1.GetOperationResponse, error) {
	f.saw(req)
	return &mgmtv1.GetOperationResponse{Operation: f.operation}, nil
}

func (f *fake) WatchOperation(req *mgmtv1.WatchOperationRequest,
	stream grpc.ServerStreamingServer[mgmtv1.WatchOperationResponse]) error {
	f.saw(req)
	sent := 0
	for i, e := range f.events {
		if int64(i+1) <= req.GetAfterSeq() { // what has no number is progress, and not repeated
			continue
		}
		if sent++; f.breakAfter > 0 && sent > f.breakAfter {
			return status.Error(codes.Unavailable, "error reading from server: EOF")
		}
		if f.untilStop && i+1 == len(f.events) {
			close(f.watching)
			select {
			case <-f.stopped:
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
		if err := stream.Send(&mgmtv1.WatchOperationResponse{Event: e}); err != nil {
			return err
		}
	}
	return f.watchErr
}

func sendAll[M any](stream grpc.ServerStreamingServer[M], messages []*M) error {
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// requestOf gives the one request of a type that the fake has seen.
func requestOf[R any](t *testing.T, f *fake) R {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []R
	for _, req := range f.requests {
		if r, ok := req.(R); ok {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d requests of type %T, want 1", len(found), *new(R))
	}
	return found[0]
}

// result is what a run gave.
type result struct {
	code           int
	stdout, stderr string
}

// runner runs mgmtctl against a fake, or against inside when it is set.
type runner struct {
	fake        *fake
	inside      server
	stdin       io.Reader
	interactive bool
	signals     chan os.Signal
	getenv      map[string]string
}

// run runs one command line; words are split at spaces.
func (r runner) run(t *testing.T, line string) result {
	t.Helper()
	return r.runWords(t, strings.Fields(line)...)
}

// complete gives what the shell offers after a command line and a space.
func (r runner) complete(t *testing.T, line string) string {
	t.Helper()
	return r.runWords(t, append(append([]string{cobra.ShellCompRequestCmd}, strings.Fields(line)...),
		"")...).want(t, 0).stdout
}

func (r runner) runWords(t *testing.T, words ...string) result {
	t.Helper()
	var stdout, stderr lockedBuffer // a program that was interrupted twice may write later
	if r.stdin == nil {
		r.stdin = strings.NewReader("")
	}
	p := &program{
		stdin:       r.stdin,
		stdout:      &stdout,
		stderr:      &console{w: &stderr},
		getenv:      func(name string) string { return r.getenv[name] },
		environ:     environ(r.getenv),
		now:         func() time.Time { return now },
		signals:     r.signals,
		interactive: r.interactive,
		backoff:     retry.Backoff{First: time.Millisecond, Longest: time.Millisecond},
		serve: func(flags standaloneFlags, _ *program) (server, error) {
			if r.inside != nil {
				return r.inside, nil
			}
			r.fake.flags = flags
			return r.fake, nil
		},
	}
	code := p.run(t.Context(), words)
	return result{code, stdout.String(), stderr.String()}
}

// environ gives variables as os.Environ does.
func environ(variables map[string]string) []string {
	var list []string
	for name, value := range variables {
		list = append(list, name+"="+value)
	}
	return list
}

// golden compares with a file in testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), -update rewrites it:\n%s", file, diff)
	}
}

// want checks the exit code.
func (r result) want(t *testing.T, code int) result {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

func (r result) stderrHas(t *testing.T, texts ...string) result {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr does not have %q:\n%s", text, r.stderr)
		}
	}
	return r
}
