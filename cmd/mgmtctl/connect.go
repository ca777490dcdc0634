package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	// maxAnswer is more than the 4 MiB of grpc: an operation lists its units, and there may be thousands.
	maxAnswer = 64 << 20
	// pipeSize is how much the in-memory pipe holds; a plan is streamed in small messages.
	pipeSize = 1 << 20
	// socketTimeout is how long a daemon on this host may take to accept.
	socketTimeout = time.Second
	// lastSocket is where a daemon of the system listens.
	lastSocket = "/run/mgmtd.sock"
)

// connection is the way to a server, in this process or another.
type connection struct {
	snapshots  mgmtv1.SnapshotServiceClient
	restores   mgmtv1.RestoreServiceClient
	operations mgmtv1.OperationServiceClient
	// stop makes operations end between two steps; nil when they are not ours to stop.
	stop  func()
	close func() error
}

func newConnection(conn *grpc.ClientConn) *connection {
	return &connection{
		snapshots:  mgmtv1.NewSnapshotServiceClient(conn),
		restores:   mgmtv1.NewRestoreServiceClient(conn),
		operations: mgmtv1.NewOperationServiceClient(conn),
		close:      conn.Close,
	}
}

// withServer checks that standalone has what the command needs, and calls do with a server.
func (p *program) withServer(cmd *cobra.Command, needs []need, do func(context.Context, *connection) error) error {
	if err := p.check(cmd, needs); err != nil {
		return err
	}
	c, err := p.connect(cmd)
	if err != nil {
		return err
	}
	err = do(cmd.Context(), c)
	if closeErr := c.close(); err == nil {
		return closeErr
	} else if closeErr != nil {
		p.say("mgmtctl: close: %v", closeErr)
	}
	return err
}

func (p *program) connect(cmd *cobra.Command) (*connection, error) {
	if p.standalone.enabled {
		return p.connectInside()
	}
	c, err := p.connectDaemon(cmd.Context())
	if err != nil {
		return nil, err
	}
	for _, name := range serverFlags {
		if p.given(name) {
			return nil, errors.Join(usageError(cmd, "--%s needs --standalone: a daemon goes by its own config", name), c.close())
		}
	}
	return c, nil
}

// serverFlags decide what a service works with; a daemon has its own.
var serverFlags = []string{"store", "catalog", "recipient", "signing-key", "plain", "trusted-key", "source-kubeconfig", "source-context", "target-kubeconfig",
	"target-context"}

// connectInside serves the service in this process, over a pipe in memory.
func (p *program) connectInside() (*connection, error) {
	server, err := p.serve(p.standalone, p)
	if err != nil {
		return nil, err
	}
	pipe := bufconn.Listen(pipeSize)
	grpcServer := grpc.NewServer(service.ServerOptions()...)
	server.Register(grpcServer)
	served := make(chan error, 1)
	go func() { served <- grpcServer.Serve(pipe) }()
	conn, err := dial("passthrough:///standalone", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		grpcServer.Stop()
		return nil, errors.Join(err, <-served, server.Close())
	}
	c := newConnection(conn)
	c.stop = server.Stop
	c.close = func() error {
		server.Stop()
		err := conn.Close()
		grpcServer.GracefulStop()
		return errors.Join(err, <-served, server.Close())
	}
	return c, nil
}

// connectDaemon dials the daemon of this host: the user's, then the system's.
func (p *program) connectDaemon(ctx context.Context) (*connection, error) {
	sockets := []string{lastSocket}
	if dir := p.getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		sockets = []string{filepath.Join(dir, "mgmtd.sock"), lastSocket}
	}
	for _, socket := range sockets {
		if !answers(ctx, socket) {
			continue
		}
		conn, err := dial("unix://" + socket)
		if err != nil {
			return nil, err
		}
		return newConnection(conn), nil
	}
	return nil, &service.Error{
		Reason:  service.ReasonUnreachable,
		Message: fmt.Sprintf("reach mgmtd: no daemon answers at %s", strings.Join(sockets, " or ")),
		Hint:    "start mgmtd, or give --standalone to work without it",
	}
}

// answers reports whether something accepts at a socket. grpc itself would wait and retry, which helps nobody who asks whether a daemon is there.
func answers(ctx context.Context, socket string) bool {
	d := net.Dialer{Timeout: socketTimeout}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func dial(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return conn, nil
}
