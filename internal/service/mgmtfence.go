package service

import (
	"context"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// fencing is a management cluster whose workload clusters are fenced.
type fencing struct {
	mgmt     *kube.Mgmt
	clusters []fence.Cluster
	owners   fence.Owners
	fence    *fence.Fence
}

// openFencing connects to a management cluster, lists its Clusters and reads the ownership records
// of a store, which may be nil.
func (s *Server) openFencing(ctx context.Context, o kube.Options, st *store.Store) (*fencing,
	error) {
	m, err := kube.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	f, err := s.newFencing(ctx, m)
	if err != nil || st == nil {
		return f, err
	}
	f.owners, err = readOwnersIn(ctx, st, m)
	return f, err
}

// ownersIn returns ownership records of a store, for the Clusters of a management cluster.
func ownersIn(st *store.Store, m *kube.Mgmt, records map[string]ownership.Record) fence.Owners {
	return fence.Owners{StoreID: st.OriginID(), UID: m.UID(), Records: records}
}

func readOwnersIn(ctx context.Context, st *store.Store, m *kube.Mgmt) (fence.Owners, error) {
	records, err := ownership.Owners(ctx, st)
	return ownersIn(st, m, records), err
}

// recordsOf reads the ownership records of one workload cluster, of each store.
func recordsOf(ctx context.Context, stores []*store.Store, m *kube.Mgmt, id string) (
	[]fence.Owners, error) {
	var owners []fence.Owners
	for _, st := range stores {
		records, err := ownership.Of(ctx, st, []string{id})
		if err != nil {
			return nil, err
		}
		owners = append(owners, ownersIn(st, m, records))
	}
	return owners, nil
}

// newFencing lists the Clusters of a management cluster. It reads no ownership records.
func (s *Server) newFencing(ctx context.Context, m *kube.Mgmt) (*fencing, error) {
	kinds, err := m.Reader().Kinds(ctx)
	if err != nil {
		return nil, err
	}
	f := &fencing{mgmt: m, owners: fence.Owners{UID: m.UID()},
		fence: &fence.Fence{
			Policy: &fence.Policy{Reader: m.Reader(), Writer: m.Writer(), Prober: m.Prober(),
				Kinds: kinds},
			Pauser: fence.NewPauser(m.Reader(), m.Writer(), kinds, s.cfg.Rows),
			Capture: func(ctx context.Context) (*graph.Graph, error) {
				options := snapshot.OptionsFor(m, s.cfg.Rows)
				options.WithoutRelated = true
				captured, _, err := snapshot.CaptureInMemory(ctx, options)
				if err != nil {
					return nil, err
				}
				return captured.Graph, nil
			}}}
	f.clusters, err = fence.Clusters(ctx, m.Reader(), kinds)
	return f, err
}

// FenceMgmt implements the API.
func (m *mgmtService) FenceMgmt(ctx context.Context, req *mgmtv1.FenceMgmtRequest) (
	*mgmtv1.FenceMgmtResponse, error) {
	selection, err := selectionFromProto(req.GetSelection())
	if err != nil {
		return nil, err
	}
	o, err := m.s.anyMgmt(req.GetName())
	if err != nil {
		return nil, err
	}
	if req.GetLift() {
		return m.liftMgmt(ctx, req, o, selection)
	}
	byRecord := !req.GetAll() && isEverything(selection)
	st, err := m.s.ownersStore(ctx, req.GetLocation())
	if err != nil && (byRecord || !isStoreAway(err)) { // else no record is needed
		return nil, err
	}
	if byRecord && st == nil {
		return nil, &Error{Reason: ReasonUsage, Message: "no store with ownership records is named",
			Hint:    "name the store, or select what to fence",
			HintKey: object.HintStoreURL}
	}
	f, err := m.s.openFencing(ctx, o, st)
	if err != nil {
		return nil, err
	}
	f.fence.Wait = req.GetWait().AsDuration()
	clusters, err := fence.Select(f.clusters, selection)
	if err != nil {
		return nil, err
	}
	var r fence.Result
	if byRecord {
		lost, findings := f.owners.Lost(clusters)
		r = f.pause(ctx, lost, capi.FencedByRecord, req.GetDryRun())
		r.Findings = slices.Concat(aboutCopy(st), findings, r.Findings)
	} else {
		r = f.pause(ctx, clusters, capi.FencedByOperator, req.GetDryRun())
	}
	return f.response(r), ctx.Err()
}

// liftMgmt is FenceMgmt that gives back what is fenced. Workload clusters that are named and not
// there any more are taken off the list of the admission policy.
func (m *mgmtService) liftMgmt(ctx context.Context, req *mgmtv1.FenceMgmtRequest, o kube.Options,
	selection restore.Selection) (*mgmtv1.FenceMgmtResponse, error) {
	stores, err := m.s.ownersStores(ctx, req.GetLocation())
	if err != nil {
		return nil, err
	}
	f, err := m.s.openFencing(ctx, o, nil)
	if err != nil {
		return nil, err
	}
	var owners []fence.Owners
	for _, st := range stores {
		o, err := readOwnersIn(ctx, st, f.mgmt)
		if err != nil {
			return nil, err
		}
		owners = append(owners, o)
	}
	if len(stores) > 0 {
		f.fence.Owners = func(ctx context.Context, c fence.Cluster) ([]fence.Owners, error) {
			return recordsOf(ctx, stores, f.mgmt, c.ID)
		}
	}
	everything := isEverything(selection)
	gone, err := f.fence.Gone(ctx, f.clusters, selection.Workloads)
	if err != nil {
		return nil, err
	}
	selection.Workloads = slices.DeleteFunc(selection.Workloads, func(w object.Key) bool {
		return slices.ContainsFunc(gone, func(c fence.Cluster) bool { return c.Unit() == w.String() })
	})
	var clusters []fence.Cluster
	if everything || !isEverything(selection) {
		if clusters, err = fence.Select(f.clusters, selection); err != nil {
			return nil, err
		}
	}
	var r fence.Result
	if req.GetDryRun() {
		_, r = f.fence.Liftable(ctx, clusters, owners)
	} else {
		r = f.fence.Lift(ctx, clusters, owners)
	}
	forgotten := f.fence.Forget(ctx, gone, owners, req.GetDryRun())
	r.Lifted = append(r.Lifted, forgotten.Lifted...)
	r.Findings = append(r.Findings, forgotten.Findings...)
	return f.response(r), ctx.Err()
}

func (f *fencing) response(r fence.Result) *mgmtv1.FenceMgmtResponse {
	resp := &mgmtv1.FenceMgmtResponse{Mgmt: &mgmtv1.Mgmt{Name: f.mgmt.Name(), Uid: f.mgmt.UID(),
		KubernetesVersion: f.mgmt.KubernetesVersion(), WorkloadClusters: int64(len(f.clusters))},
		Paused: r.Paused, Already: r.Already, Lifted: r.Lifted}
	for _, finding := range r.Findings {
		resp.Findings = append(resp.Findings, findingToProto(finding))
	}
	return resp
}

func isEverything(s restore.Selection) bool {
	return len(s.Namespaces) == 0 && len(s.Workloads) == 0 && strings.TrimSpace(s.Selector) == ""
}

// pause fences Clusters and waits for the acknowledgements; a dry run returns which it would pause.
func (f *fencing) pause(ctx context.Context, clusters []fence.Cluster, why string, dry bool) (
	r fence.Result) {
	if !dry {
		r = f.fence.Pause(ctx, clusters, why)
		r.Findings = append(r.Findings, f.fence.Arm(ctx, r.FencedOf(clusters))...)
		_, findings := f.fence.Acknowledge(ctx, slices.Concat(r.Paused, r.Already))
		r.Findings = append(r.Findings, findings...)
		return r
	}
	for _, c := range clusters {
		if c.Paused {
			r.Already = append(r.Already, c.Unit())
		} else {
			r.Paused = append(r.Paused, c.Unit())
		}
	}
	return r
}
