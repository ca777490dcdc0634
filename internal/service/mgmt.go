package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// mgmtService reads management clusters. Only FenceMgmt holds something that can write to one (I7).
type mgmtService struct {
	mgmtv1.UnimplementedMgmtServiceServer
	s *Server
}

// mgmtRequests is how many requests one call sends to one API server at once.
const mgmtRequests = 16

// ListMgmts implements the API. A management cluster that does not answer is in the list, with its
// error.
func (m *mgmtService) ListMgmts(ctx context.Context, _ *mgmtv1.ListMgmtsRequest) (
	*mgmtv1.ListMgmtsResponse, error) {
	options := slices.Clone(m.s.cfg.Sources)
	for _, o := range m.s.cfg.Targets {
		if !slices.Contains(options, o) {
			options = append(options, o)
		}
	}
	list := make([]*mgmtv1.Mgmt, len(options))
	var g task.Group
	g.SetLimit(mgmtRequests)
	for i, o := range options {
		g.Go(func() error {
			v, _ := readMgmt(ctx, o) // the error is in the list
			list[i] = v.proto
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b *mgmtv1.Mgmt) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	return &mgmtv1.ListMgmtsResponse{Mgmts: list}, ctx.Err()
}

// mgmtView is what was read of a management cluster, and clients of it that cannot write.
type mgmtView struct {
	proto     *mgmtv1.Mgmt
	providers []kube.Provider
	reader    *kube.Reader
	prober    *kube.Prober
	kinds     []kube.Kind
	workloads []workload
}

// workload is a Cluster object.
type workload struct {
	ref    object.Ref
	id     string // of the workload cluster, the same wherever it is
	paused bool
	// operation is the id of the operation that locks it (a move), or whose copy it is and that has
	// not released it (a restore).
	operation string
	annotated bool // an annotation names the operation, not a field manager
	fenced    bool
}

// readMgmt connects to a management cluster and reads what is in it. With an error, the view holds
// what was read before, and the error as well.
func readMgmt(ctx context.Context, o kube.Options) (v mgmtView, err error) {
	v.proto = &mgmtv1.Mgmt{Name: o.Name}
	defer func() {
		if err != nil {
			v.proto.Error = err.Error()
		}
	}()
	m, err := kube.Connect(ctx, o)
	if err != nil {
		return v, err
	}
	v.proto.Name, v.proto.Uid, v.proto.KubernetesVersion = m.Name(), m.UID(), m.KubernetesVersion()
	v.reader, v.prober = m.Reader(), m.Prober()
	if v.kinds, err = v.reader.Kinds(ctx); err != nil {
		return v, err
	}
	if v.providers, err = m.Providers(ctx, v.kinds); err != nil {
		return v, err
	}
	for _, p := range v.providers {
		v.proto.Providers = append(v.proto.Providers, &mgmtv1.Provider{Name: p.Name, Version: p.Version,
			Namespace: p.Namespace})
	}
	v.workloads, err = listWorkloads(ctx, v.reader, v.kinds)
	v.proto.WorkloadClusters = int64(len(v.workloads))
	return v, err
}

func listWorkloads(ctx context.Context, r *kube.Reader, kinds []kube.Kind) ([]workload, error) {
	kind, ok := kube.FindKind(kinds, capi.Cluster)
	if !ok {
		return nil, nil
	}
	var list []workload
	_, err := r.List(ctx, kind, kube.ListOptions{}, func(raw []byte) error {
		w, err := decodeWorkload(kind, raw)
		list = append(list, w)
		return err
	})
	return list, err
}

func decodeWorkload(kind kube.Kind, raw []byte) (workload, error) {
	var c struct {
		Metadata struct {
			Namespace, Name, UID string
			Annotations          map[string]string
			ManagedFields        []struct{ Manager, Operation string }
		}
		Spec struct{ Paused bool }
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return workload{}, fmt.Errorf("decode Cluster: %w", err)
	}
	w := workload{ref: object.Ref{Group: kind.Group, Kind: kind.Kind,
		Namespace: c.Metadata.Namespace, Name: c.Metadata.Name}, paused: c.Spec.Paused,
		id: cmp.Or(c.Metadata.Annotations[capi.AnnotationWorkloadID], c.Metadata.UID)}
	w.operation, _, _ = strings.Cut(c.Metadata.Annotations[capi.AnnotationOperation], "/")
	w.annotated = w.operation != ""
	_, w.fenced = c.Metadata.Annotations[capi.AnnotationFenced]
	if _, copied := c.Metadata.Annotations[capi.AnnotationWasPaused]; !copied || w.annotated ||
		w.fenced {
		return w, nil // the mark stays on a released copy, where it says nothing
	}
	for _, entry := range c.Metadata.ManagedFields {
		id, ok := strings.CutPrefix(entry.Manager, kube.MarkPrefix)
		if _, err := catalog.ParseOperationID(id); ok && err == nil && entry.Operation == "Update" {
			w.operation = id
		}
	}
	return w, nil
}

// CheckMgmt implements the API.
func (m *mgmtService) CheckMgmt(ctx context.Context, req *mgmtv1.CheckMgmtRequest) (
	*mgmtv1.CheckMgmtResponse, error) {
	o, err := m.s.anyMgmt(req.GetName())
	if err != nil {
		return nil, err
	}
	st, away := m.s.ownersStore(ctx, req.GetLocation())
	if away != nil && !isStoreAway(away) {
		return nil, away
	}
	v, err := readMgmt(ctx, o)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	findings := []object.Finding{{Severity: object.Error, Code: object.CodeUnreachable}}
	if err != nil {
		findings[0].Message, findings[0].Hint = err.Error(), hint(err)
	} else if findings, err = m.s.checkMgmt(ctx, v, st, away); err != nil {
		return nil, err
	}
	resp := &mgmtv1.CheckMgmtResponse{Mgmt: v.proto}
	for _, f := range findings {
		resp.Findings = append(resp.Findings, findingToProto(f))
	}
	return resp, nil
}

// checkMgmt runs the checks of one management cluster and returns the findings, the worst first.
// away says why the store of the ownership records cannot be used.
func (s *Server) checkMgmt(ctx context.Context, v mgmtView, st *store.Store, away error) (
	[]object.Finding, error) {
	c, _, err := s.catalogOrHolder(ctx)
	if err != nil {
		return nil, err
	}
	k := &mgmtCheck{mgmtView: v, store: st, away: away, catalog: c, rows: s.cfg.Rows}
	if last, ok := s.fences.last(v.proto.GetName()); ok {
		k.cameBack = &last
	}
	if err := preflight.Run(ctx, mgmtChecks, k); err != nil {
		return nil, err
	}
	slices.SortStableFunc(k.findings, func(a, b object.Finding) int {
		if a.Severity != b.Severity {
			return int(b.Severity) - int(a.Severity)
		}
		return strings.Compare(string(a.Code)+a.Message, string(b.Code)+b.Message)
	})
	return k.findings, nil
}

// anyMgmt finds a management cluster on either side.
func (s *Server) anyMgmt(name string) (kube.Options, error) {
	o, err := s.mgmtOptions(sourceSide, name)
	if err != nil && !s.cfg.Daemon {
		if other, otherErr := s.mgmtOptions(targetSide, name); otherErr == nil {
			return other, nil
		}
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Reason == ReasonAmbiguous {
		named := *e
		named.HintKey = object.HintMgmtName
		err = &named
	}
	return o, err
}

// ownersStore opens the store of the ownership records. It returns nil when a request names none
// and there is none, or none yet.
func (s *Server) ownersStore(ctx context.Context, location string) (*store.Store, error) {
	if location == "" {
		if l, err := s.location(""); err != nil || l.Store.URL == "" && l.Store.S3 == nil {
			return nil, nil
		}
	}
	st, err := s.openStore(ctx, location, nil)
	if errors.Is(err, store.ErrStoreMissing) {
		return nil, nil
	}
	return st, err
}

// ownersStores opens the stores whose ownership records count before a workload cluster is given
// back: all of a daemon, also when a request names one, since a record in any of them may say that
// it belongs elsewhere. A location that never had a store has no records, unless it is the one that
// is named. Without a daemon the location is the store that the command names.
func (s *Server) ownersStores(ctx context.Context, location string) ([]*store.Store, error) {
	if location != "" {
		if _, err := s.location(location); err != nil {
			return nil, err
		}
	}
	names := []string{location}
	if location == "" || s.cfg.Daemon {
		names = nil
		for i := range s.cfg.Locations {
			if l := &s.cfg.Locations[i]; l.Store.URL != "" || l.Store.S3 != nil {
				names = append(names, l.Name)
			}
		}
	}
	var stores []*store.Store
	for _, name := range names {
		st, err := s.openStore(ctx, name, nil)
		switch {
		case errors.Is(err, store.ErrStoreMissing) && name != location && s.cfg.Daemon:
		case err != nil:
			return nil, err
		default:
			stores = append(stores, st)
		}
	}
	return stores, nil
}

// mgmtCheck gathers findings about one management cluster.
type mgmtCheck struct {
	mgmtView
	store   *store.Store     // nil when there is none
	away    error            // why the store cannot be used; nil when it can, or there is none
	catalog *catalog.Catalog // nil when another process holds it
	rows    *capi.Table
	// cameBack is the last time that this daemon fenced workload clusters there; nil for never.
	cameBack *cameBack

	mu       sync.Mutex
	findings []object.Finding
}

func (k *mgmtCheck) add(f object.Finding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.findings = append(k.findings, f)
}
