package main

import (
	"context"
	"errors"
	"net"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	// maxAnswer is more than the 4 MiB of grpc: an operation lists its units, and there may be
	// thousands.
	maxAnswer = 64 << 20
	// pipeSize is how much the in-memory pipe holds; a plan is streamed in small messages.
	pipeSize = 1 << 20
)

// connection has the clients of a server, in this process or another.
type connection struct {
	snapshots  mgmtv1.SnapshotServiceClient
	restores   mgmtv1.RestoreServiceClient
	moves      mgmtv1.MoveServiceClient
	operations mgmtv1.OperationServiceClient
	schedules  mgmtv1.ScheduleServiceClient
	prunes     mgmtv1.PruneServiceClient
	stores     mgmtv1.StoreServiceClient
	repairs    mgmtv1.StoreRepairServiceClient
	mgmts      mgmtv1.MgmtServiceClient
	catalog    mgmtv1.CatalogServiceClient
	// stop makes operations end between two steps; nil for a daemon, whose operations go on.
	stop  func()
	close func() error
}

func newConnection(conn *grpc.ClientConn, err error) (*connection, error) {
	if err != nil {
		return nil, err
	}
	return &connection{
		snapshots:  mgmtv1.NewSnapshotServiceClient(conn),
		restores:   mgmtv1.NewRestoreServiceClient(conn),
		moves:      mgmtv1.NewMoveServiceClient(conn),
		operations: mgmtv1.NewOperationServiceClient(conn),
		schedules:  mgmtv1.NewScheduleServiceClient(conn),
		prunes:     mgmtv1.NewPruneServiceClient(conn),
		stores:     mgmtv1.NewStoreServiceClient(conn),
		repairs:    mgmtv1.NewStoreRepairServiceClient(conn),
		mgmts:      mgmtv1.NewMgmtServiceClient(conn),
		catalog:    mgmtv1.NewCatalogServiceClient(conn),
		close:      conn.Close,
	}, nil
}

// withServer checks that standalone has what the command needs, and calls do with a server.
func (p *program) withServer(cmd *cobra.Command, needs []need, do func(context.Context,
	*connection) error) error {
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
	// With --address this was refused before. Without it, only now is it known that there is no
	// daemon.
	if err := p.refuseStandaloneFlags(cmd); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// connectInside serves the service in this process, over a pipe in memory.
func (p *program) connectInside() (*connection, error) {
	p.warnOfSigningKey()
	server, err := p.serve(p.standalone, p)
	if err != nil {
		return nil, err
	}
	pipe := bufconn.Listen(pipeSize)
	grpcServer := grpc.NewServer(service.ServerOptions()...)
	server.Register(grpcServer)
	served := make(chan error, 1)
	go func() { served <- grpcServer.Serve(pipe) }()
	conn, err := dial("passthrough:///standalone", insecure.NewCredentials(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
			error) {
			return pipe.DialContext(ctx)
		}))
	c, err := newConnection(conn, err)
	if err != nil {
		grpcServer.Stop()
		return nil, errors.Join(err, <-served, server.Close())
	}
	c.stop = server.Stop
	c.close = func() error {
		server.Stop()
		err := conn.Close()
		grpcServer.GracefulStop()
		return errors.Join(err, <-served, server.Close())
	}
	return c, nil
}
