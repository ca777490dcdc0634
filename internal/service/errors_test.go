package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestReasonsCrossTheWire sends each reason through a status and back.
func TestReasonsCrossTheWire(t *testing.T) {
	seen := map[Reason]bool{}
	for _, row := range reasons {
		if seen[row.reason] {
			t.Errorf("reason %s is in the table twice", row.reason)
		}
		seen[row.reason] = true
		sent := fmt.Errorf("outer: %w", &Error{Reason: row.reason, Message: "inner", Hint: "do this"})
		wire := ToStatus(sent)
		if got := status.Code(wire); got != row.code {
			t.Errorf("%s: gRPC code %s, want %s", row.reason, got, row.code)
		}
		got := FromStatus(wire)
		if got.Reason != row.reason || got.Message != "outer: inner" || got.Hint != "do this" {
			t.Errorf("%s: came back as %+v", row.reason, got)
		}
		if local := FromStatus(sent); local.Reason != got.Reason || local.Message != got.Message ||
			local.Hint != got.Hint {
			t.Errorf("%s: %+v without the wire, %+v with it", row.reason, local, got)
		}
		if ExitCode(wire) != row.exit || ExitCode(sent) != row.exit {
			t.Errorf("%s: exit codes %d and %d, want %d", row.reason, ExitCode(wire), ExitCode(sent),
				row.exit)
		}
	}
}

// TestEachReasonHasItsExitCode pins the documented codes.
func TestEachReasonHasItsExitCode(t *testing.T) {
	for reason, want := range map[Reason]int{
		ReasonInternal: 1, ReasonUnreachable: 1, ReasonNoSpace: 1, ReasonNotFound: 1, ReasonTimeout: 1,
		ReasonDamaged: 1, ReasonUnsupported: 1, ReasonDenied: 1,
		ReasonUsage: 2, ReasonKubeconfig: 2, ReasonAmbiguous: 2,
		ReasonFindings: 3, ReasonPlanChanged: 3,
		ReasonIncomplete:   4,
		ReasonStoreMissing: 10, ReasonStoreDenied: 10, ReasonStoreUnreachable: 10,
		ReasonLocked: 11, ReasonOwned: 11, ReasonFenced: 11,
		ReasonIdentity: 12, ReasonSignature: 12,
		ReasonInterrupted: 130,
		"NEVER_HEARD_OF":  1,
	} {
		if got := (&Error{Reason: reason}).ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d", reason, got, want)
		}
	}
	for state, want := range map[catalog.State]int32{
		catalog.Planned: 0, catalog.Running: 0, catalog.Succeeded: 0, catalog.RolledBack: 0,
		catalog.Stopped: ExitError, catalog.Failed: ExitError, catalog.NeedsIdentity: ExitError,
	} {
		if got := operationToProto(catalog.Operation{State: state}).GetExitCode(); got != want {
			t.Errorf("operation that is %s, for no reason: %d", state, got)
		}
	}
	if got := ExitCode(nil); got != 0 {
		t.Errorf("no error: exit code %d, want 0", got)
	}
}

// TestStatusWithoutReasonGetsOneByItsCode reads statuses that do not come from our table.
func TestStatusWithoutReasonGetsOneByItsCode(t *testing.T) {
	for code, want := range map[codes.Code]Reason{
		codes.Unavailable:        ReasonUnreachable,
		codes.Canceled:           ReasonInterrupted,
		codes.DeadlineExceeded:   ReasonTimeout,
		codes.Unimplemented:      ReasonUnsupported,
		codes.InvalidArgument:    ReasonUsage,
		codes.FailedPrecondition: ReasonInternal,
		codes.PermissionDenied:   ReasonDenied,
		codes.ResourceExhausted:  ReasonInternal,
		codes.Unknown:            ReasonInternal,
	} {
		if got := FromStatus(status.Error(code, "text")); got.Reason != want || got.Message != "text" {
			t.Errorf("%s: %+v, want reason %s", code, got, want)
		}
	}
}

func TestErrorsOfPackagesHaveReasons(t *testing.T) {
	tests := []struct {
		name     string
		err      error
		reason   Reason
		wantHint bool
	}{
		{"kubeconfig", fmt.Errorf("open target: %w", &kube.KubeconfigError{File: "f",
			Err: fs.ErrNotExist}), ReasonKubeconfig, true},
		{"unreachable", &kube.UnreachableError{Name: "n", Host: "h", Err: errors.New("refused")},
			ReasonUnreachable, true},
		{"unreachable by its own deadline", &kube.UnreachableError{Err: context.DeadlineExceeded},
			ReasonUnreachable, true},
		{"interrupted while reaching", &kube.UnreachableError{Err: context.Canceled}, ReasonInterrupted,
			true},
		{"deadline", fmt.Errorf("read: %w", os.ErrDeadlineExceeded), ReasonInternal, false},
		{"context deadline", fmt.Errorf("read: %w", context.DeadlineExceeded), ReasonTimeout, false},
		{"other ends", fmt.Errorf("resume: %w", &move.OtherEndsError{}), ReasonUsage, true},
		{"a prune whose record is gone", fmt.Errorf("prunes/p: %w", store.ErrRecordGone), ReasonDamaged,
			true},
		{"anything else", errors.New("boom"), ReasonInternal, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := FromStatus(ToStatus(tt.err))
			if got.Reason != tt.reason || got.Message != tt.err.Error() || (got.Hint != "") != tt.wantHint {
				t.Errorf("got %+v, want reason %s", got, tt.reason)
			}
		})
	}
}

// TestReasonSurvivesTextThatIsNotUTF8, with its hint: an error may quote a file name or an
// answer in any encoding.
func TestReasonSurvivesTextThatIsNotUTF8(t *testing.T) {
	got := FromStatus(ToStatus(&Error{Reason: ReasonIdentity, Message: "open \xff", Hint: "see \xff"}))
	if got.Reason != ReasonIdentity || got.Message != "open \uFFFD" || got.Hint != "see \uFFFD" {
		t.Errorf("got %+v", got)
	}
}

// TestErrorAroundAStatusRetainsItsReason: the reason of the error wins over that of its cause.
func TestErrorAroundAStatusRetainsItsReason(t *testing.T) {
	got := FromStatus(ToStatus(&Error{Reason: ReasonLocked, Message: "m",
		err: status.Error(codes.NotFound, "cause")}))
	if got.Reason != ReasonLocked {
		t.Errorf("got %+v", got)
	}
}

// TestServerOptionsConvertErrorsToStatuses shows that handlers may return errors as they are.
func TestServerOptionsConvertErrorsToStatuses(t *testing.T) {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(ServerOptions()...)
	mgmtv1.RegisterOperationServiceServer(server, rawErrors{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///test",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
			error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := mgmtv1.NewOperationServiceClient(conn)

	_, err = client.ListOperations(t.Context(), &mgmtv1.ListOperationsRequest{})
	if got := FromStatus(err); got.Reason != ReasonKubeconfig || got.Hint == "" {
		t.Errorf("unary call: %+v", got)
	}
	stream, err := client.WatchOperation(t.Context(), &mgmtv1.WatchOperationRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if got := FromStatus(err); got.Reason != ReasonKubeconfig || got.Hint == "" {
		t.Errorf("stream: %+v", got)
	}
}

type rawErrors struct {
	mgmtv1.UnimplementedOperationServiceServer
}

func (rawErrors) ListOperations(context.Context, *mgmtv1.ListOperationsRequest) (
	*mgmtv1.ListOperationsResponse, error) {
	return nil, &kube.KubeconfigError{File: "f", Err: fs.ErrNotExist}
}

func (rawErrors) WatchOperation(*mgmtv1.WatchOperationRequest,
	grpc.ServerStreamingServer[mgmtv1.WatchOperationResponse]) error {
	return &kube.KubeconfigError{File: "f", Err: fs.ErrNotExist}
}

// TestHintKeyOfAWrappedErrorCrossesTheWire: mgmtctl adds its commands by this key.
func TestHintKeyOfAWrappedErrorCrossesTheWire(t *testing.T) {
	err := fmt.Errorf("restore unit: %w", &restore.OperationAtWorkError{Operation: "65f1a2b3c4d5"})
	if got := FromStatus(ToStatus(err)); got.HintKey != object.HintOperation || got.Hint == "" {
		t.Errorf("hint %q with the key %q", got.Hint, got.HintKey)
	}
}
