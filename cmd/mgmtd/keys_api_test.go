//go:build api

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const keysConfig = `apiVersion: mgmtd.dev/v1alpha1
kind: Config
spec:
  managementClusters:
  - {name: a, kubeconfigFile: %s}
  - {name: b, kubeconfigFile: %s}
  catalog: catalog.db
  recipients: [%s]
  signingKeyFile: signing.key
  listen: {unix: mgmtd.sock}
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: disk}
spec: {provider: mgmtd.dev/directory, config: {path: store}}
---
apiVersion: velero.io/v1
kind: Schedule
metadata: {name: hourly, annotations: {mgmtd.dev/management-cluster: a}}
spec: {schedule: "@every 1h", template: {}}
`

// asked are requests that read the content of a snapshot, with an identity or without.
type asked struct {
	snapshots  mgmtv1.SnapshotServiceClient
	restores   mgmtv1.RestoreServiceClient
	operations mgmtv1.OperationServiceClient
	schedules  mgmtv1.ScheduleServiceClient
	mgmts      mgmtv1.MgmtServiceClient
	spec       *mgmtv1.RestoreSpec
}

func ask(p *process) *asked {
	return &asked{
		mgmtv1.NewSnapshotServiceClient(p.conn), mgmtv1.NewRestoreServiceClient(p.conn),
		mgmtv1.NewOperationServiceClient(p.conn), mgmtv1.NewScheduleServiceClient(p.conn),
		mgmtv1.NewMgmtServiceClient(p.conn),
		&mgmtv1.RestoreSpec{Target: "b", ForceCodes: []string{"fence-unacknowledged"}},
	}
}

// drain reads a stream to its end.
func drain[T any](stream grpc.ServerStreamingClient[T], err error) error {
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// operation waits until an operation has ended, and gives its error.
func (a *asked) operation(ctx context.Context, op *mgmtv1.Operation, err error) error {
	if err != nil {
		return err
	}
	if err := drain(a.operations.WatchOperation(ctx,
		&mgmtv1.WatchOperationRequest{Id: op.GetId()})); err != nil {
		return err
	}
	resp, err := a.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: op.GetId()})
	const succeeded = mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED
	if err == nil && resp.GetOperation().GetState() != succeeded {
		err = fmt.Errorf("%s: %s", resp.GetOperation().GetState(), resp.GetOperation().GetMessage())
	}
	return err
}

// content are all requests that read what is encrypted, but for those that begin a restore.
func (a *asked) content(ctx context.Context, identity []byte) map[string]error {
	errs := map[string]error{}
	for _, level := range []mgmtv1.VerifyLevel{mgmtv1.VerifyLevel_VERIFY_LEVEL_SAMPLE,
		mgmtv1.VerifyLevel_VERIFY_LEVEL_FULL} {
		resp, err := a.snapshots.VerifySnapshot(ctx, &mgmtv1.VerifySnapshotRequest{Id: "latest",
			Level: level, Identity: identity})
		errs[level.String()] = a.operation(ctx, resp.GetOperation(), err)
	}
	errs["diff"] = drain(a.snapshots.DiffSnapshots(ctx, &mgmtv1.DiffSnapshotsRequest{From: "latest",
		To: "latest", Identity: identity}))
	errs["diff with the live source"] = drain(a.snapshots.DiffSnapshots(ctx,
		&mgmtv1.DiffSnapshotsRequest{From: "latest", Live: true, Source: "a", Identity: identity}))
	errs["graph"] = drain(a.snapshots.GraphSnapshot(ctx, &mgmtv1.GraphSnapshotRequest{Id: "latest",
		Identity: identity}))
	errs["ls"] = drain(a.snapshots.ListObjects(ctx, &mgmtv1.ListObjectsRequest{Id: "latest",
		Identity: identity}))
	_, errs["cat"] = a.snapshots.GetObject(ctx, &mgmtv1.GetObjectRequest{Id: "latest",
		Kind: "Secret", Namespace: "keys-team-0000", Name: "w-00000-ca", Identity: identity})
	errs["extract"] = drain(a.snapshots.ExtractObjects(ctx, &mgmtv1.ExtractObjectsRequest{
		Id: "latest", Identity: identity}))
	errs["find"] = drain(a.snapshots.FindObject(ctx, &mgmtv1.FindObjectRequest{Kind: "Secret",
		Namespace: "keys-team-0000", Name: "w-00000-ca", Identity: identity}))
	errs["plan"] = drain(a.restores.PlanRestore(ctx, &mgmtv1.PlanRestoreRequest{Spec: a.spec,
		Identity: identity}))
	return errs
}

// refused wants that a request found no identity.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if e := service.FromStatus(err); e == nil || e.Reason != service.ReasonIdentity {
		t.Errorf("%s without an identity: %v", what, err)
	}
}

// blind wants that the daemon reads nothing when it is given no identity, and all it needs for a
// snapshot.
func blind(t *testing.T, a *asked) {
	t.Helper()
	for what, err := range a.content(t.Context(), nil) {
		refused(t, what, err)
	}
	_, err := a.restores.RunRestore(t.Context(), &mgmtv1.RunRestoreRequest{Spec: a.spec})
	refused(t, "restore", err)
	shown, err := a.snapshots.GetSnapshot(t.Context(), &mgmtv1.GetSnapshotRequest{Id: "latest"})
	if err != nil || len(shown.GetUnits()) > 0 || shown.GetSnapshot().GetObjects() == 0 {
		t.Errorf("show without an identity: %v, %v", shown, err)
	}
	verified, err := a.snapshots.VerifySnapshot(t.Context(),
		&mgmtv1.VerifySnapshotRequest{Id: "latest", Level: mgmtv1.VerifyLevel_VERIFY_LEVEL_STRUCTURE})
	if err := a.operation(t.Context(), verified.GetOperation(), err); err != nil {
		t.Errorf("verify of the structure without an identity: %v", err)
	}
}

// TestAPIDaemonCannotReadWhatItWrote: a daemon with recipients and a signing key takes snapshots
// by schedule, the second from what changed, and can read neither of them but for the one request
// that carries an identity, which exists nowhere but in this test. A restore that it died in waits
// for one.
func TestAPIDaemonCannotReadWhatItWrote(t *testing.T) {
	servers.Clear(t)
	servers.Fleet(t, 0, "--namespace-prefix", "keys-", "--workloads", "2", "--machines", "2", "--fast")
	bin, dir := programs(t), shortDir(t)
	identity, recipient := newKeys(t, dir)
	config := fmt.Sprintf(keysConfig, servers.Options(0).KubeconfigFile,
		servers.Options(1).KubeconfigFile, recipient)
	write(t, dir, "mgmtd.yaml", config)
	p := startProcess(t, bin, dir)
	a := ask(p)
	taken := func() []*mgmtv1.Snapshot {
		list, err := a.snapshots.ListSnapshots(t.Context(), &mgmtv1.ListSnapshotsRequest{})
		if err != nil && service.FromStatus(err).Reason != service.ReasonStoreMissing {
			t.Fatal(err)
		}
		return list.GetSnapshots()
	}
	wait(t, dir, "the schedule took a snapshot", func() bool { return len(taken()) == 1 })
	var run *mgmtv1.RunScheduleResponse
	var err error
	wait(t, dir, "the schedule runs again, after the end of its first run", func() bool {
		run, err = a.schedules.RunSchedule(t.Context(), &mgmtv1.RunScheduleRequest{Name: "hourly"})
		return err == nil
	})
	if err := a.operation(t.Context(), run.GetOperation(), err); err != nil || len(taken()) != 2 {
		t.Fatalf("%d snapshots, %v", len(taken()), err)
	}

	blind(t, a)
	for what, err := range a.content(t.Context(), identity) {
		if err != nil {
			t.Errorf("%s with the identity: %v", what, err)
		}
	}
	shown, err := a.snapshots.GetSnapshot(t.Context(), &mgmtv1.GetSnapshotRequest{Id: "latest",
		Identity: identity})
	if err != nil || len(shown.GetUnits()) == 0 {
		t.Errorf("show with the identity: %v, %v", shown, err)
	}
	blind(t, a) // what a request brought is not there for the next one

	// The source answers, so it is fenced. No controllers acknowledge that there. Nor do any on the
	// target: the restore waits for them until the daemon is killed.
	if _, err := a.mgmts.FenceMgmt(t.Context(), &mgmtv1.FenceMgmtRequest{Name: "a", All: true,
		Wait: durationpb.New(time.Second)}); err != nil {
		t.Fatal(err)
	}
	begun, err := a.restores.RunRestore(t.Context(), &mgmtv1.RunRestoreRequest{Spec: a.spec,
		Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	id := begun.GetOperation().GetId()
	watch, err := a.operations.WatchOperation(t.Context(), &mgmtv1.WatchOperationRequest{Id: id})
	for restored := false; err == nil && !restored; {
		var resp *mgmtv1.WatchOperationResponse
		resp, err = watch.Recv()
		restored = resp.GetEvent().GetProgress() == "objects restored" &&
			resp.GetEvent().GetDone() == resp.GetEvent().GetTotal()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.end(t, dir, syscall.SIGKILL)

	// An identity of the configuration is for what the daemon begins by itself.
	write(t, dir, "configured.txt", string(identity))
	write(t, dir, "mgmtd.yaml", strings.Replace(config, "  catalog:",
		"  identityFile: configured.txt\n  catalog:", 1))
	p = startProcess(t, bin, dir)
	blind(t, ask(p))
	p.end(t, dir, syscall.SIGTERM)
	if err := os.Remove(filepath.Join(dir, "configured.txt")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "mgmtd.yaml", config)
	a = ask(startProcess(t, bin, dir))
	state := func() mgmtv1.OperationState {
		resp, err := a.operations.GetOperation(t.Context(), &mgmtv1.GetOperationRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetOperation().GetState()
	}
	if got := state(); got != mgmtv1.OperationState_OPERATION_STATE_NEEDS_IDENTITY {
		t.Errorf("the restore is %s", got)
	}
	_, err = a.operations.ResumeOperation(t.Context(), &mgmtv1.ResumeOperationRequest{Id: id})
	refused(t, "resume", err)
	if got := state(); got != mgmtv1.OperationState_OPERATION_STATE_NEEDS_IDENTITY {
		t.Errorf("after a resume without an identity the restore is %s", got)
	}
	servers.Acknowledge(t, 1)
	resumed, err := a.operations.ResumeOperation(t.Context(), &mgmtv1.ResumeOperationRequest{Id: id,
		Identity: identity})
	if err := a.operation(t.Context(), resumed.GetOperation(), err); err != nil {
		t.Error(err)
	}
	blind(t, a)
	notIn(t, dir, identity)
}

// notIn wants that no file of a folder holds the secret part of an identity.
func notIn(t *testing.T, dir string, identity []byte) {
	t.Helper()
	secret := identity[bytes.Index(identity, []byte("AGE-SECRET-KEY-")):][:40]
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, secret) {
			t.Errorf("%s holds the identity", path)
		}
		files++
		return err
	})
	if err != nil || files < 8 {
		t.Errorf("%d files, %v", files, err)
	}
}
