package service

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// StoreOptions describe a store and the keys for it. Identities come with each request.
type StoreOptions struct {
	// URL in the form that location.Open reads.
	URL string
	// S3 is the alternative to URL.
	S3              *s3.Options
	Plain           bool
	Recipients      []string
	SigningKeyFile  string
	TrustedKeyFiles []string
	// ReadOnly: nothing is written there.
	ReadOnly bool
}

// Location is a store that requests can name.
type Location struct {
	// Name is empty for the only location of a standalone run. That location stands for any name in
	// the record of an operation that a daemon began.
	Name string
	// Default is true for the location of requests that name none.
	Default bool
	Store   StoreOptions
	// CopyTo is the name of the location to which a daemon copies this one; "" for none.
	CopyTo string
	// Retention are the rules of prunes of this location; nil for those of the configuration.
	Retention *retention.Policy
}

// Config of a Server.
type Config struct {
	CatalogFile string
	// Locations are the stores that requests can name. A request need not name the only one.
	Locations []Location
	// Sources and Targets are the management clusters that requests can name. A request need not
	// name the only one. A daemon has the same for both.
	Sources, Targets []kube.Options
	// Schedules begin with Start; their sources and locations are names of this configuration.
	Schedules []schedule.Schedule
	// Verify says how the daemon verifies the newest snapshots, after Start.
	Verify schedule.VerifyOptions
	// Retention holds the rules of prunes whose request has none.
	Retention Retention
	// Rows is what is known of kinds; nil is the built-in table.
	Rows *capi.Table
	// Metrics is where metrics are registered; nil means nowhere.
	Metrics prometheus.Registerer
	// CatalogSocket are further options of the server on the socket beside the catalog, such as those
	// that say who calls. The socket itself lets in only root and the user of this process.
	CatalogSocket []grpc.ServerOption
	// Daemon says that the configuration is a file, not the flags of mgmtctl.
	Daemon  bool
	Log     *slog.Logger
	Version string
}

// StoreFormat is the version of the storage format that this program writes.
const StoreFormat = store.Format

// errStopping is the cause with which operations end when they or the server are asked to stop.
var errStopping = &Error{Reason: ReasonInterrupted, Message: "stopped on request"}

// errDaemonEnds is the cause with which operations end when the daemon does. It resumes moves when
// it starts again: one in the middle leaves workload clusters paused.
var errDaemonEnds = &Error{Reason: ReasonInterrupted, Message: "stopped since the daemon ended"}

// Server carries the services. It opens catalog, stores and management clusters when a call first
// needs them.
type Server struct {
	cfg     Config
	ctx     context.Context // of the operations; ends with Stop
	stop    context.CancelCauseFunc
	running sync.WaitGroup // goroutines that Drain waits for
	runs    runTable
	metrics *metrics

	scheduler *schedule.Scheduler   // nil before Open
	verifier  *schedule.Verifier    // nil before Open
	copier    *schedule.Copier      // nil before Open
	runCache  *incremental.RunCache // nil in a process that takes one snapshot
	fences    *fenceWatch
	envelopes *store.EnvelopeCache

	mu      sync.Mutex // guards what follows
	catalog *catalog.Catalog
	socket  *catalogSocket
	holder  *catalogHolder
	buckets map[string]bucket.Bucket // by location: a bucket holds connections
	prunes  map[string]pruneState    // by location
	copying map[string]bool          // by location of the copy: a run is going
}

// New makes a server. It opens nothing.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, runs: newRunTable(), metrics: newMetrics(cfg.Metrics, cfg.Version),
		buckets: map[string]bucket.Bucket{}, prunes: map[string]pruneState{},
		copying: map[string]bool{}, envelopes: &store.EnvelopeCache{}}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.fences = newFenceWatch(s)
	register(cfg.Metrics, newPausedUnits(s))
	kinds := &kube.KindCache{}
	s.cfg.Sources, s.cfg.Targets = slices.Clone(cfg.Sources), slices.Clone(cfg.Targets)
	for _, side := range [][]kube.Options{s.cfg.Sources, s.cfg.Targets} {
		for i := range side {
			side[i].KindCache = kinds
		}
	}
	if cfg.Daemon {
		s.runCache = &incremental.RunCache{}
	}
	return s
}

// Register adds the services to a gRPC server, which must have been made with ServerOptions.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	mgmtv1.RegisterSnapshotServiceServer(r, &snapshotService{s: s})
	mgmtv1.RegisterPruneServiceServer(r, &pruneService{s: s})
	mgmtv1.RegisterStoreServiceServer(r, &storeService{s: s})
	mgmtv1.RegisterStoreRepairServiceServer(r, &repairService{s: s})
	mgmtv1.RegisterRestoreServiceServer(r, &restoreService{s: s})
	mgmtv1.RegisterMoveServiceServer(r, &moveService{s: s})
	mgmtv1.RegisterOperationServiceServer(r, &operationService{s: s})
	mgmtv1.RegisterScheduleServiceServer(r, &scheduleService{s: s})
	mgmtv1.RegisterMgmtServiceServer(r, &mgmtService{s: s})
	mgmtv1.RegisterCatalogServiceServer(r, &catalogService{s: s})
}

// Stop ends running operations between two steps, and begins no more snapshots of schedules. It
// returns at once and may be called twice.
func (s *Server) Stop() {
	if s.cfg.Daemon {
		s.stop(errDaemonEnds)
		return
	}
	s.stop(errStopping)
}

// Drain waits until no operation runs and no schedule begins one. Call it after Stop.
func (s *Server) Drain() { s.running.Wait() }

// Failed returns a channel with the error after which the server is of no use: its catalog could
// not be written.
func (s *Server) Failed() <-chan error { return s.runs.failed }

// Close stops the operations, waits until they have ended, and closes the catalog.
func (s *Server) Close() error {
	s.Stop()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.socket != nil {
		s.socket.close()
	}
	if s.holder != nil {
		errs = append(errs, s.holder.conn.Close())
	}
	if s.catalog != nil {
		errs = append(errs, s.catalog.Close())
	}
	return errors.Join(errs...)
}

// Keygen writes an encryption identity, protected by the passphrase unless that is empty, and a
// signing key to dir. It replaces nothing.
func Keygen(dir string, passphrase []byte) error {
	_, err := store.KeygenProtected(dir, time.Now(), passphrase)
	return err
}

// ReadIdentities reads identity files into the form that requests carry. It calls ask for each file
// that is protected by a passphrase, and exposed for each that is not and that everybody can read.
func ReadIdentities(files []string, ask func(file string) ([]byte, error),
	exposed func(file, who string)) ([]byte, error) {
	return store.ReadIdentities(files, func(file string) (store.Secret, error) { return ask(file) },
		exposed)
}

// ExposedKey says who can read or replace a key file that should not; empty for nobody, and for a
// file that cannot be looked at.
func ExposedKey(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	return store.ExposedFile(info)
}
