package main

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func (f *fake) DiffSnapshots(req *mgmtv1.DiffSnapshotsRequest,
	_ grpc.ServerStreamingServer[mgmtv1.DiffSnapshotsResponse]) error {
	f.saw(req)
	return nil
}

func (f *fake) PinSnapshot(_ context.Context, req *mgmtv1.PinSnapshotRequest) (
	*mgmtv1.PinSnapshotResponse, error) {
	f.saw(req)
	return &mgmtv1.PinSnapshotResponse{}, nil
}

func (f *fake) UnpinSnapshot(_ context.Context, req *mgmtv1.UnpinSnapshotRequest) (
	*mgmtv1.UnpinSnapshotResponse, error) {
	f.saw(req)
	return &mgmtv1.UnpinSnapshotResponse{}, nil
}

// TestScopeOfLatestIsInTheRequest of each command that takes the newest snapshot.
func TestScopeOfLatestIsInTheRequest(t *testing.T) {
	const pinFlags = " --standalone --store s --plain"
	for line, flags := range map[string]string{
		"snapshot diff latest 1a2b": readFlags,
		"snapshot graph":            readFlags,
		"snapshot pin latest":       pinFlags,
		"snapshot unpin latest":     pinFlags,
	} {
		f := newFake()
		runner{fake: f}.run(t, line+" --scope team-a"+flags).want(t, 0)
		req, ok := requestOf[proto.Message](t, f).(interface{ GetScope() string })
		if !ok || req.GetScope() != "team-a" {
			t.Errorf("%s: request %v", line, req)
		}
	}
}
