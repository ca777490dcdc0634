package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestAConnectionHasALimitOfOpenCalls(t *testing.T) {
	dir := setup(t, "{unix: s}")
	start(t, dir)
	conn := dial(t, "unix:"+filepath.Join(dir, "s"), insecure.NewCredentials())
	var endLast context.CancelFunc
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		endLast = cancel
		stream, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := listOperations(ctx, conn); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("call 101 does not wait: %v", err)
	}
	other := dial(t, "unix:"+filepath.Join(dir, "s"), insecure.NewCredentials())
	if err := listOperations(t.Context(), other); err != nil {
		t.Errorf("another connection: %v", err)
	}
	endLast()
	if err := listOperations(t.Context(), conn); err != nil {
		t.Errorf("once a call has ended: %v", err)
	}
}
