package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/task"
)

// This file asks, for the watch of a management cluster, what may hang in an outage: the management
// cluster, by a program that fetches credentials, and a store in a folder of a network file system.

// connect reaches the management cluster, over the connections of the last try if that succeeded.
// began is when the try began that it returns the answer of, or that has none yet: an earlier one
// that hangs.
func (m *mgmtWatch) connect(ctx context.Context) (_ *kube.Mgmt, began time.Time, _ error) {
	if m.asking == nil || m.asking.isOver() { // what ended since says nothing of now
		was := m.mgmt
		m.asked = time.Now()
		m.asking = beginCall(func() (*kube.Mgmt, error) {
			if was == nil {
				return kube.Connect(ctx, m.options)
			}
			return was.Again(ctx)
		})
	}
	mgmt, _, err := m.asking.wait(ctx)
	m.mgmt = mgmt
	return mgmt, m.asked, err
}

// confirmed returns those of the Clusters that are lost by their records of this moment as well:
// the records are cached, and one may have been claimed back since. Where the store does not answer
// in time, the cached record decides. It does so, too, of what is fixed: paused, fenced and on the
// list of the admission policy, so that a pass changes nothing of it.
func (m *mgmtWatch) confirmed(ctx context.Context, f *fencing, location string, o locationOwners,
	lost []fence.Cluster, listed func(object.Ref) bool) []fence.Cluster {
	now := ownersIn(o.store, f.mgmt, map[string]ownership.Record{})
	var ask []string
	for _, c := range lost {
		now.Records[c.ID] = o.records[c.ID]
		if !c.Paused || c.Fenced() == "" || c.Lifting() || !listed(c.Ref) {
			ask = append(ask, c.ID)
		}
	}
	maps.Copy(now.Records, m.readNow(ctx, location, o, ask))
	still, _ := now.Lost(lost)
	return still
}

// readNow reads ownership records of a location, and returns those that it read within confirmTime.
// It reads none while an earlier read hangs.
func (m *mgmtWatch) readNow(ctx context.Context, location string, o locationOwners,
	ids []string) map[string]ownership.Record {
	if hangs := m.confirming[location]; len(ids) == 0 || hangs != nil && !hangs.isOver() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	var mu sync.Mutex
	read := map[string]ownership.Record{}
	c := beginCall(func() (none struct{}, _ error) {
		var g task.Group
		g.SetLimit(mgmtRequests)
		for _, id := range ids {
			g.Go(func() error {
				if ctx.Err() != nil {
					return nil
				}
				var r ownership.Record
				err := task.Call(func() (err error) {
					r, err = ownership.Read(ctx, o.store, id)
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					read[id] = r
				}
				return nil
			})
		}
		g.Finish()
		return none, nil
	})
	m.confirming[location] = c
	_, _, _ = c.wait(ctx) // what was not read in time is not in read
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(read)
}

// takenFrom returns, by location, the Clusters that another management cluster owns since an
// operation of this catalog took them from this one by a move, or restored them from its snapshots.
func (m *mgmtWatch) takenFrom(ctx context.Context, uid string,
	owners map[string]locationOwners) map[string][]fence.Cluster {
	c, err := m.s.openCatalog(ctx)
	if err != nil {
		return nil
	}
	taken := map[string][]fence.Cluster{}
	for location, o := range owners {
		for id, r := range o.records {
			if !r.Trusted || r.By.UID == uid {
				continue
			}
			key, keyErr := object.ParseKey(r.Workload)
			op, opErr := catalog.ParseOperationID(r.Operation)
			if errors.Join(keyErr, opErr) != nil {
				continue
			}
			by, err := c.Operation(ctx, op)
			took := by.Kind == catalog.KindMove || by.Kind == catalog.KindRestore
			if err == nil && took && by.Source.UID == uid { // else by another host, or forgotten
				taken[location] = append(taken[location], fence.Cluster{Ref: object.Ref{
					Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: key.Namespace,
					Name: key.Name}, ID: id})
			}
		}
	}
	return taken
}

// toDeny returns those of the taken Clusters that are not there, that the admission policy does not
// know yet, and that are taken by their records of this moment: somebody may create them again. A
// move has put its own on the list; a restore cannot while the management cluster is away.
func (m *mgmtWatch) toDeny(ctx context.Context, f *fencing, owners map[string]locationOwners,
	taken map[string][]fence.Cluster, state fence.PolicyState) (deny []fence.Cluster) {
	there := map[object.Ref]bool{}
	for _, c := range f.clusters {
		there[c.Ref] = true
	}
	for location, clusters := range taken {
		var ids []string
		clusters = slices.DeleteFunc(slices.Clone(clusters),
			func(c fence.Cluster) bool { return there[c.Ref] || state.Known(c.Ref) })
		for _, c := range clusters {
			ids = append(ids, c.ID)
		}
		now := m.readNow(ctx, location, owners[location], ids)
		for _, c := range clusters {
			r := now[c.ID]
			if r.Trusted && !r.WentBack() && r.By.UID != f.mgmt.UID() {
				deny = append(deny, c)
			}
		}
	}
	return deny
}
