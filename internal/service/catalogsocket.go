package service

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mgmtd/mgmtd/internal/catalog"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// catalogSocketSuffix is added to the path of a catalog. Only one process can open a catalog; it
// serves the others on this socket, for example a second mgmtctl that watches.
const catalogSocketSuffix = ".sock"

// catalogSocket serves the operations of the process that holds the catalog.
type catalogSocket struct {
	server *grpc.Server
	path   string
}

// serveCatalogSocket listens on the socket. The caller holds the catalog, so an existing socket is
// that of a dead process.
func serveCatalogSocket(s *Server, catalogFile string) (*catalogSocket, error) {
	path := catalogFile + catalogSocketSuffix
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := ListenSocket(s.ctx, path)
	if err != nil {
		// The path of a socket is limited to 108 bytes on Linux. Operations run without a socket
		// too; other processes then cannot watch them.
		s.cfg.Log.Warn("serve catalog socket", "path", path, "error", err)
		return nil, nil
	}
	b := &catalogSocket{server: grpc.NewServer(slices.Concat(ServerOptions(), s.Recover(),
		s.cfg.CatalogSocket)...), path: path}
	mgmtv1.RegisterOperationServiceServer(b.server, &operationService{s: s})
	go func() { _ = b.server.Serve(l) }() // ends with close
	return b, nil
}

// close stops the server. Watchers have two seconds to read the end of their operation.
func (b *catalogSocket) close() {
	done := time.AfterFunc(2*time.Second, b.server.Stop)
	b.server.GracefulStop()
	done.Stop()
	_ = os.Remove(b.path)
}

// catalogHolder is the process that holds the catalog.
type catalogHolder struct {
	conn   *grpc.ClientConn
	client mgmtv1.OperationServiceClient
}

// dialCatalogHolder connects to the process that holds the catalog. It returns the error locked
// when no process answers.
func (s *Server) dialCatalogHolder(ctx context.Context, locked error) (
	mgmtv1.OperationServiceClient,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil {
		return s.holder.client, nil
	}
	path := s.cfg.CatalogFile + catalogSocketSuffix
	probe, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, locked
	}
	_ = probe.Close()
	// The socket has mode 0600: no credentials are needed.
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, errors.Join(locked, err)
	}
	s.holder = &catalogHolder{conn: conn, client: mgmtv1.NewOperationServiceClient(conn)}
	return s.holder.client, ctx.Err()
}

// catalogOrHolder returns the catalog, or a client of the process that holds it.
func (s *Server) catalogOrHolder(ctx context.Context) (*catalog.Catalog,
	mgmtv1.OperationServiceClient, error) {
	s.mu.Lock()
	known := s.holder
	s.mu.Unlock()
	if known != nil {
		return nil, known.client, nil
	}
	c, err := s.openCatalog(ctx)
	if as[*catalog.LockedError](err) {
		client, err := s.dialCatalogHolder(ctx, err)
		return nil, client, err
	}
	return c, nil, err
}
