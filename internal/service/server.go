package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/snapshot/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// StoreOptions say where the store is and with which keys it is used. Identities come with each request.
type StoreOptions struct {
	URL             string
	Plain           bool
	Recipients      []string
	SigningKeyFile  string
	TrustedKeyFiles []string
}

// Config of a Server.
type Config struct {
	CatalogFile string
	Store       StoreOptions
	// Sources and Targets are the management clusters that requests can name; one that is alone need not be named.
	Sources, Targets []mgmt.Options
	Log              *slog.Logger
	Version          string
}

// StoreFormat is the version of the storage format that this program writes.
const StoreFormat = store.Format

// errStopping is the cause with which operations end when the server stops.
var errStopping = &Error{Reason: ReasonInterrupted, Message: "stopped on request"}

// Server carries the services. It opens catalog, store and management clusters when a call first needs them.
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
}

// New makes a server. It opens nothing.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg}
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

// openCatalog opens the catalog on first use. Operations that a dead process left running are moved to stopped.
func (s *Server) openCatalog(ctx context.Context) (*catalog.Catalog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.catalog != nil {
		return s.catalog, nil
	}
	c, err := catalog.Open(ctx, s.cfg.CatalogFile, catalog.Options{})
	if err != nil {
		return nil, err
	}
	left, err := c.Interrupted(ctx)
	for _, op := range left {
		if err == nil {
			_, err = c.SetState(ctx, op.ID, catalog.Stopped, catalog.Outcome{Message: "the process at work on it died", Code: string(ReasonIncomplete)})
		}
	}
	if err == nil {
		s.beside, err = serveBeside(s, s.cfg.CatalogFile)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.catalog = c
	return c, nil
}

// openStore opens the store with the keys of the configuration and the identity of a request.
func (s *Server) openStore(ctx context.Context, identity []byte, create bool) (*store.Store, error) {
	o := s.cfg.Store
	if o.URL == "" {
		return nil, &Error{Reason: ReasonUsage, Message: "no store is named", Hint: "name one with --store"}
	}
	u, err := store.ParseURL(o.URL)
	if err != nil {
		return nil, err
	}
	k := store.KeyOptions{Recipients: o.Recipients, SigningKeyFile: o.SigningKeyFile, TrustedKeyFiles: o.TrustedKeyFiles}
	if len(identity) > 0 {
		k.Identities = []store.Secret{identity}
	}
	keys, err := store.LoadKeys(k)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, store.Options{Bucket: u.Bucket(), Keys: keys, Plain: o.Plain, Create: create})
}

// connect reaches the management cluster of that name among those of one side.
func connect(ctx context.Context, side string, options []mgmt.Options, name string) (*mgmt.Mgmt, error) {
	switch {
	case len(options) == 0:
		return nil, &Error{Reason: ReasonUsage, Message: "no " + side + " management cluster is named", Hint: "name one with --" + side + "-kubeconfig"}
	case len(options) == 1 && (name == "" || options[0].Name == "" || options[0].Name == name):
		return mgmt.Connect(ctx, options[0])
	case name == "":
		return nil, &Error{Reason: ReasonAmbiguous, Message: fmt.Sprintf("%d management clusters are known", len(options)), Hint: "name one with --" + side}
	}
	for _, o := range options {
		if o.Name == name {
			return mgmt.Connect(ctx, o)
		}
	}
	return nil, &Error{Reason: ReasonNotFound, Message: fmt.Sprintf("no management cluster is named %q", name)}
}

// start begins the run of an operation in the background and returns it as running. run's error decides the state in which it ends.
func (s *Server) start(c *catalog.Catalog, id catalog.OperationID, run func(ctx context.Context, j *catalog.Journal) error) (*mgmtv1.Operation, error) {
	op, err := c.SetState(s.ctx, id, catalog.Running, catalog.Outcome{})
	if err != nil {
		return nil, err
	}
	j := c.Journal(id, catalog.JournalOptions{})
	s.running.Go(func() {
		err := run(s.ctx, j)
		state, why := s.outcome(c, id, err)
		s.recordEnd(c, id, state, why)
	})
	return operationToProto(op), nil
}

// recordEnd tries for a while to record how an operation ended. When the catalog takes it no more, closing it ends the watchers, who would wait for ever; the
// next process finds the operation interrupted.
func (s *Server) recordEnd(c *catalog.Catalog, id catalog.OperationID, state catalog.State, why catalog.Outcome) {
	const tries = 5
	var err error
	for range tries {
		if _, err = c.SetState(s.ctx, id, state, why); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.mu.Lock()
	s.lost = map[catalog.OperationID]error{id: err}
	s.mu.Unlock()
	_ = c.Close()
}

// ended gives, for the error with which a closed catalog answers about an operation, the reason why it was closed.
func (s *Server) ended(id catalog.OperationID, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost := s.lost[id]; lost != nil && errors.Is(err, catalog.ErrClosed) {
		return lost
	}
	return err
}

// outcome says in which state an operation ends. An error in the middle, whatever it is, leaves work to do once something was changed.
func (s *Server) outcome(c *catalog.Catalog, id catalog.OperationID, err error) (catalog.State, catalog.Outcome) {
	if err == nil {
		return catalog.Succeeded, catalog.Outcome{}
	}
	e := classify(err)
	changed := false
	if op, lookErr := c.Operation(context.Background(), id); lookErr == nil {
		changed = op.Changed
	}
	state := catalog.Failed
	message := e.Message
	if s.ctx.Err() != nil {
		state, e.Reason, message = catalog.Stopped, ReasonInterrupted, errStopping.Message
	}
	switch {
	case changed:
		e.Reason = ReasonIncomplete
	case e.Reason == ReasonIncomplete:
		e.Reason = ReasonFindings // all there was to do is blocked
	}
	if e.Hint != "" {
		message += " (" + e.Hint + ")"
	}
	return state, catalog.Outcome{Message: message, Code: string(e.Reason)}
}
