package service

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/task"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// quoted stands for what a document held that a bug panics with.
const quoted = "s3cr3t"

// panicServer is a server whose log can be read.
func panicServer(t *testing.T) (*Server, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s := New(Config{CatalogFile: filepath.Join(t.TempDir(), "catalog.db"), Daemon: true,
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, &log
}

// counted checks that a number of panics were counted and logged, with a stack and no contents.
func counted(t *testing.T, s *Server, log *bytes.Buffer, want float64) {
	t.Helper()
	if got := testutil.ToFloat64(s.metrics.panics); got != want {
		t.Errorf("%v panics are counted, want %v", got, want)
	}
	if text := log.String(); !strings.Contains(text, "panics_test.go") ||
		!strings.Contains(text, "stack=") || strings.Contains(text, quoted) {
		t.Errorf("log: %s", text)
	}
}

type panicking struct {
	mgmtv1.UnimplementedOperationServiceServer
}

func (panicking) ListOperations(context.Context, *mgmtv1.ListOperationsRequest) (
	*mgmtv1.ListOperationsResponse, error) {
	panic(quoted)
}

func (panicking) WatchOperation(*mgmtv1.WatchOperationRequest,
	grpc.ServerStreamingServer[mgmtv1.WatchOperationResponse]) error {
	panic(quoted)
}

// TestPanicInAHandlerFailsItsRequestOnly: the process goes on, and the error holds no contents.
func TestPanicInAHandlerFailsItsRequestOnly(t *testing.T) {
	s, log := panicServer(t)
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(append(ServerOptions(), s.Recover()...)...)
	mgmtv1.RegisterOperationServiceServer(server, panicking{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///test",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := mgmtv1.NewOperationServiceClient(conn)
	_, unary := client.ListOperations(t.Context(), &mgmtv1.ListOperationsRequest{})
	stream, streamed := client.WatchOperation(t.Context(), &mgmtv1.WatchOperationRequest{})
	if streamed == nil {
		_, streamed = stream.Recv()
	}
	for name, err := range map[string]error{"unary call": unary, "stream": streamed} {
		got := FromStatus(err)
		if got.Reason != ReasonInternal || !strings.Contains(got.Message, "a bug ended this") ||
			strings.Contains(got.Message, quoted) || got.Hint == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	server.Stop()
	counted(t, s, log, 2)
}

// TestPanicInAnOperationFailsIt: it ends as failed with its reason in the journal, also when it
// panics in a goroutine of its own, and the next operation runs.
func TestPanicInAnOperationFailsIt(t *testing.T) {
	s, log := panicServer(t)
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(f func() error) (catalog.Operation, error) {
		t.Helper()
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindVerify})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.start(t.Context(), c, op.ID, func(context.Context, *catalog.Journal) error {
			return f()
		})
		if err != nil {
			t.Fatal(err)
		}
		failed := r.Wait()
		if op, err = c.Operation(t.Context(), op.ID); err != nil {
			t.Fatal(err)
		}
		return op, failed
	}
	for name, f := range map[string]func() error{
		"here": func() error { panic(quoted) },
		"in a group": func() error {
			g, _ := task.WithContext(t.Context())
			g.Go(func() error { panic(quoted) })
			return g.Wait()
		},
	} {
		op, err := run(f)
		if err == nil || op.State != catalog.Failed || !strings.Contains(op.Message, "panics_test.go:") ||
			strings.Contains(op.Message, quoted) {
			t.Errorf("%s: %v, %s: %s", name, err, op.State, op.Message)
		}
		ended := false
		for e, err := range c.Events(t.Context(), op.ID, 0) {
			ended = ended || err == nil && strings.Contains(e.Message, "a bug ended this")
		}
		if !ended {
			t.Errorf("%s: no event says so", name)
		}
	}
	if op, err := run(func() error { return nil }); err != nil || op.State != catalog.Succeeded {
		t.Errorf("the next one: %v, %s", err, op.State)
	}
	counted(t, s, log, 2)
}

// TestWhatADaemonDoesByItselfBeginsAgainAfterAPanic: it would look well and do nothing.
func TestWhatADaemonDoesByItselfBeginsAgainAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := New(Config{Daemon: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
		runs := 0
		s.background("test", func(ctx context.Context) {
			if runs++; runs < 3 {
				panic(quoted)
			}
			<-ctx.Done()
		})
		time.Sleep(3 * panicPause)
		synctest.Wait()
		if runs != 3 {
			t.Errorf("it ran %d times", runs)
		}
		s.Stop()
		s.Drain()
		counted(t, s, &log, 2)
	})
}

// TestAliveDoesNotReturnWhileALockHangs: the watchdog of systemd ends the process then.
func TestAliveDoesNotReturnWhileALockHangs(t *testing.T) {
	s, _ := panicServer(t)
	if err := s.Alive(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, mu := range map[string]*sync.Mutex{"runs": &s.runs.mu, "server": &s.mu} {
		mu.Lock()
		returned := make(chan error)
		go func() { returned <- s.Alive(t.Context()) }()
		select {
		case err := <-returned:
			t.Errorf("%s: it returned %v", name, err)
		case <-time.After(50 * time.Millisecond): // any time: it would return at once
		}
		mu.Unlock()
		if err := <-returned; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.catalog.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Alive(t.Context()); err == nil {
		t.Error("it is alive with a closed catalog")
	}
}
