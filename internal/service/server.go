package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/snapshot/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// StoreOptions say where a store is and with which keys it is used. Identities come with each request.
type StoreOptions struct {
	// URL in the form that store.ParseURL reads.
	URL             string
	Plain           bool
	Recipients      []string
	SigningKeyFile  string
	TrustedKeyFiles []string
}

// Location is a store that requests can name.
type Location struct {
	// Name is empty for the only one of a standalone run, which stands for whatever name an operation of a daemon remembers.
	Name string
	// Default is true for the one that is meant when a request names none.
	Default bool
	Store   StoreOptions
}

// Config of a Server.
type Config struct {
	CatalogFile string
	// Locations are the stores that requests can name; one that is alone need not be named.
	Locations []Location
	// Sources and Targets are the management clusters that requests can name; one that is alone need not be named. A daemon has the same for both.
	Sources, Targets []mgmt.Options
	// Daemon says that the configuration is a file, not the flags of mgmtctl: hints name what the operator can change.
	Daemon  bool
	Log     *slog.Logger
	Version string
}

// StoreFormat is the version of the storage format that this program writes.
const StoreFormat = store.Format

// errStopping is the cause with which operations end when they or the server are asked to stop.
var errStopping = &Error{Reason: ReasonInterrupted, Message: "stopped on request"}

// Server carries the services. It opens catalog, stores and management clusters when a call first needs them.
type Server struct {
	cfg     Config
	ctx     context.Context // of the operations; ends with Stop
	stop    context.CancelCauseFunc
	running sync.WaitGroup

	mu      sync.Mutex
	catalog *catalog.Catalog
	peer    *peer
	beside  *beside
	lost    map[catalog.OperationID]error // operations whose end the catalog could not record, and why

	runsMu sync.Mutex // held while an operation goes into running, so that runs and the catalog agree
	runs   map[catalog.OperationID]context.CancelCauseFunc
}

// New makes a server. It opens nothing.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, lost: map[catalog.OperationID]error{}, runs: map[catalog.OperationID]context.CancelCauseFunc{}}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// Register adds the services to a gRPC server, which must have been made with ServerOptions.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	mgmtv1.RegisterSnapshotServiceServer(r, &snapshotService{s: s})
	mgmtv1.RegisterRestoreServiceServer(r, &restoreService{s: s})
	mgmtv1.RegisterOperationServiceServer(r, &operationService{s: s})
}

// Stop makes running operations end between two steps. It returns at once and may be called twice.
func (s *Server) Stop() { s.stop(errStopping) }

// Close stops the operations, waits until they have ended, and closes the catalog.
func (s *Server) Close() error {
	s.Stop()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.beside != nil {
		s.beside.close()
	}
	if s.peer != nil {
		errs = append(errs, s.peer.conn.Close())
	}
	if s.catalog != nil {
		errs = append(errs, s.catalog.Close())
	}
	return errors.Join(errs...)
}

// Keygen makes an encryption identity and a signing key in dir. It replaces nothing.
func Keygen(dir string) error {
	_, err := store.Keygen(dir, time.Now())
	return err
}
