package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/location"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

// openCatalog opens the catalog on first use, and classifies the operations that a dead process
// left running.
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
			err = s.classifyInterrupted(ctx, c, op)
		}
	}
	if err == nil {
		s.socket, err = serveCatalogSocket(s, s.cfg.CatalogFile)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.catalog = c
	return c, nil
}

// location returns the location of this name; without a name the only one, or the default.
func (s *Server) location(name string) (*Location, error) {
	var names []string
	for i := range s.cfg.Locations {
		l := &s.cfg.Locations[i]
		alone := len(s.cfg.Locations) == 1 && (name == "" || l.Name == "")
		if alone || name != "" && l.Name == name || name == "" && l.Default {
			return l, nil
		}
		names = append(names, l.Name)
	}
	switch {
	case len(names) == 0 && s.cfg.Daemon:
		return nil, &Error{Reason: ReasonUsage, Message: "the configuration has no storage location",
			Hint: "add a BackupStorageLocation document to it"}
	case len(names) == 0:
		return nil, &Error{Reason: ReasonUsage, Message: "no store is named",
			Hint: "name one", HintKey: object.HintStoreURL}
	case name == "":
		return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf(
			"%d storage locations are known and none is the default", len(names)),
			Hint: "name one of " + strings.Join(names, ", "), HintKey: object.HintLocation}
	}
	return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("no storage location is named %q",
		name), Hint: "there are " + strings.Join(names, ", ")}
}

// openStore opens the store of a location with the keys of the configuration and the identity of a
// request, if it has one.
func (s *Server) openStore(ctx context.Context, location string, identity []byte) (*store.Store,
	error) {
	l, err := s.location(location)
	if err != nil {
		return nil, err
	}
	return s.openLocation(ctx, l, identity, false)
}

// openLocation opens the store of a location; create makes it when there was none yet. It does not
// use the location's own identity, which is only for verifies that the daemon begins by itself. A
// store that is not the one that this daemon found there before is an *Error, and one that it found
// there before and that is gone a *goneError: no other one is made in a folder that is not mounted.
// store.ErrStoreMissing: there was none yet, as far as it knows.
func (s *Server) openLocation(ctx context.Context, l *Location, identity []byte, create bool) (
	*store.Store, error) {
	if create {
		if err := s.refuseCopyTarget(l.Name); err != nil {
			return nil, err
		}
	}
	// A daemon looks what is there before it makes a store; others remember nothing.
	st, err := s.openAnyStore(ctx, l, identity, create && !s.cfg.Daemon)
	if errors.Is(err, store.ErrStoreMissing) {
		err = s.checkMissing(ctx, l, err)
	}
	if create && errors.Is(err, store.ErrStoreMissing) {
		st, err = s.openAnyStore(ctx, l, identity, true)
	}
	if err == nil {
		err = s.checkPlace(ctx, l, st)
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// openAnyStore is openLocation for whichever store is there.
func (s *Server) openAnyStore(ctx context.Context, l *Location, identity []byte, create bool) (
	*store.Store, error) {
	bucket, err := s.bucket(l)
	if err != nil {
		return nil, err
	}
	o := l.Store
	k := store.KeyOptions{Recipients: o.Recipients, SigningKeyFile: o.SigningKeyFile,
		TrustedKeyFiles: o.TrustedKeyFiles}
	if len(identity) > 0 {
		k.Identities = []store.Secret{identity}
	}
	keys, err := store.LoadKeys(k)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, store.Options{Bucket: bucket, Keys: keys, Plain: o.Plain, Create: create,
		ReadOnly: o.ReadOnly, Epochs: epochMemory{s}})
}

// openStoreOf opens the store of an operation. name is that of its location on the host that began
// it; on another host the store may have another name, and is recognised by its id. When none of
// those that answer is the store, the error is that of one that does not.
func (s *Server) openStoreOf(ctx context.Context, op catalog.Operation, name string,
	identity []byte) (*Location, *store.Store, error) {
	l, missing := s.location(name)
	if missing == nil {
		st, err := s.openLocation(ctx, l, identity, false)
		if err != nil || op.Store == "" || st.ID() == op.Store {
			return l, st, err
		}
	}
	var away error
	for i := range s.cfg.Locations {
		st, err := s.openLocation(ctx, &s.cfg.Locations[i], identity, false)
		if err == nil && st.ID() == op.Store {
			return &s.cfg.Locations[i], st, nil
		}
		if away == nil && errors.Is(err, store.ErrUnreachable) {
			away = err
		}
	}
	if away != nil {
		return nil, nil, fmt.Errorf("find the store %s of operation %s, which its host calls %q: %w",
			op.Store, op.ID, name, away)
	}
	e := &Error{Reason: ReasonUsage, Message: fmt.Sprintf("operation %s works with the store %s, "+
		"which its host calls %q, and no location here is that store", op.ID, op.Store, name),
		Hint: "name the store that it was started with", err: missing}
	if s.cfg.Daemon {
		e.Hint = "add a BackupStorageLocation of that store to the configuration, under any name"
	}
	return nil, nil, e
}

// bucket returns the bucket of a location, the same one each time.
func (s *Server) bucket(l *Location) (bucket.Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[l.Name]; b != nil {
		return b, nil
	}
	b, err := newBucket(l.Store)
	if err == nil {
		s.buckets[l.Name] = b
	}
	return b, err
}

func newBucket(o StoreOptions) (bucket.Bucket, error) {
	if o.S3 != nil {
		return s3.New(*o.S3)
	}
	if o.URL == "" {
		return nil, &Error{Reason: ReasonUsage, Message: "no store is named",
			Hint: "name one", HintKey: object.HintStoreURL}
	}
	return location.Open(o.URL)
}

// The sides of an operation, as messages call them.
const (
	sourceSide = "source"
	targetSide = "target"
)

// hintOfSide are the keys of the hints to name a management cluster of a side, and its kubeconfig.
var hintOfSide = map[string]struct{ name, kubeconfig object.HintKey }{
	sourceSide: {object.HintSource, object.HintSourceKubeconfig},
	targetSide: {object.HintTarget, object.HintTargetKubeconfig},
}

// connect connects to the management cluster of this name on one side.
func (s *Server) connect(ctx context.Context, side, name string) (*kube.Mgmt, error) {
	o, err := s.mgmtOptions(side, name)
	if err != nil {
		return nil, err
	}
	return kube.Connect(ctx, o)
}

// mgmtOptions returns the options of the management cluster of this name on one side; without a
// name, of the only one.
func (s *Server) mgmtOptions(side, name string) (kube.Options, error) {
	options := s.cfg.Sources
	if side == targetSide {
		options = s.cfg.Targets
	}
	var names []string
	for _, o := range options {
		alone := len(options) == 1 && (name == "" || o.Name == "")
		if alone || name != "" && o.Name == name {
			return o, nil
		}
		names = append(names, o.Name)
	}
	e := &Error{Reason: ReasonNotFound, Message: fmt.Sprintf("no management cluster is named %q",
		name), Hint: "there are " + strings.Join(names, ", ")}
	switch {
	case len(options) == 0 && s.cfg.Daemon:
		e = &Error{Reason: ReasonUsage, Message: "the configuration has no management cluster",
			Hint: "add one to spec.managementClusters"}
	case len(options) == 0:
		e = &Error{Reason: ReasonUsage, Message: "no " + side + " management cluster is named",
			Hint: "name its kubeconfig", HintKey: hintOfSide[side].kubeconfig}
	case name == "":
		e = &Error{Reason: ReasonAmbiguous, Message: fmt.Sprintf("%d management clusters are known",
			len(options)), Hint: "name one of " + strings.Join(names, ", "), HintKey: hintOfSide[side].name}
	}
	return kube.Options{}, e
}

// refuseCopyTarget returns an error for a location to which the configuration copies another one.
// A store that a snapshot or a move makes there would be one of its own, and could never become
// the copy; a store there that says that it is no copy is not the one that the copy runs made.
func (s *Server) refuseCopyTarget(name string) error {
	for _, l := range s.cfg.Locations {
		if name != "" && l.CopyTo == name {
			return &Error{Reason: ReasonUsage, Message: "location " + name + " is for the copy of " +
				"location " + l.Name + " (copyTo): it takes neither snapshots nor moves"}
		}
	}
	return nil
}
