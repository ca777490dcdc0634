package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	workloadsPerNamespace = 10
	bareConcurrency       = 16
)

// BareOptions of a bare fleet. The same options give the same names and shapes
// in the same order, whatever the machine; keys, UIDs and times differ.
type BareOptions struct {
	// Prefix of all namespaces.
	Prefix string
	// Workloads is the number of workload clusters, ten in a namespace, every second one with a
	// ClusterClass.
	Workloads int
	// Machines of each workload cluster. Every third has three control planes when it has four
	// Machines or more.
	Machines int
	// Old makes them as Cluster API 1.10 left them, at v1beta1.
	Old bool
	// MachinePools adds a MachinePool to each workload cluster without a class.
	MachinePools bool
	// Fast leaves out what makes server-side apply managers owners of fields, for thousands of
	// objects.
	Fast bool
	// Seed of all random names.
	Seed uint64
	// KeyDir stores RSA keys for the next fleet; empty stores none.
	KeyDir string
	// Progress is called with one line for each thing that happens.
	Progress func(string)
}

// bareFleet is a bare fleet in the making.
type bareFleet struct {
	opts   BareOptions
	client client.Client
	// recordings are the one without a class, for every even workload cluster, and the one with it.
	recordings  [2]*recording
	machinePool []prototype
	keys        keyPool
	slots       chan struct{} // bounds the requests in flight
	created     atomic.Int64
}

// CreateBare writes finished workload clusters into an API server that has
// Cluster API's CRDs but no controllers and no webhooks. It returns the number
// of objects. It is not meant to be run twice with the same names.
func CreateBare(ctx context.Context, c client.Client, opts BareOptions) (int, error) {
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	f := &bareFleet{opts: opts, client: c, slots: make(chan struct{}, bareConcurrency)}
	var err error
	names := []string{"plain", "classy"}
	if opts.Old {
		names = []string{oldPlainName, oldClassyName}
	}
	for i, name := range names {
		if f.recordings[i], err = loadRecording(name); err != nil {
			return 0, err
		}
	}
	if f.machinePool, err = loadPrototypes("machinepool"); err != nil {
		return 0, err
	}
	if f.keys, err = newKeyPool(opts.KeyDir, 5*opts.Workloads); err != nil {
		return 0, err
	}
	stop := f.reportProgress()
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(bareConcurrency)
	for first := 0; first < opts.Workloads; first += workloadsPerNamespace {
		last := min(first+workloadsPerNamespace, opts.Workloads)
		group.Go(func() error { return f.createNamespace(ctx, first, last) })
	}
	err = group.Wait()
	return int(f.created.Load()), err
}

// reportProgress reports every few seconds how many objects exist, until stop.
func (f *bareFleet) reportProgress() (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				n := f.created.Load()
				f.opts.Progress(fmt.Sprintf("%d objects, %.0f a second", n,
					float64(n)/time.Since(begin).Seconds()))
			}
		}
	}()
	return func() { close(done); <-ended }
}

// createNamespace creates workload clusters first to last-1 with what they share.
func (f *bareFleet) createNamespace(ctx context.Context, first, last int) error {
	name := fmt.Sprintf("%steam-%04d", f.opts.Prefix, first/workloadsPerNamespace)
	if err := apply(ctx, f.client, shared(name)[0]); err != nil {
		return err
	}
	f.created.Add(1)
	// The recording with a class has all that the other one shares, and the class.
	classy := f.recordings[1]
	s := f.scope(classy, name, uint64(first)<<32)
	if err := f.createGroup(ctx, s, classy.shared, sizes{}, -1); err != nil {
		return err
	}
	sharedUIDs := map[string]string{} // kind and name → live UID
	for _, p := range classy.shared {
		sharedUIDs[p.kind+"/"+p.name] = s.rename(p.uid)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := first; i < last; i++ {
		group.Go(func() error {
			r := f.recordings[i%2]
			s := f.scope(r, name, uint64(i))
			for _, p := range r.shared {
				s.pairs = append(s.pairs, p.uid, sharedUIDs[p.kind+"/"+p.name])
			}
			if err := f.createWorkload(ctx, r, s, i); err != nil {
				return fmt.Errorf("create workload cluster %d: %w", i, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (f *bareFleet) scope(r *recording, namespace string, stream uint64) *scope {
	rng := rand.New(rand.NewPCG(f.opts.Seed, stream))
	return &scope{
		rng:   rng,
		shift: -time.Duration(rng.IntN(60*24*3600)) * time.Second,
		pairs: []string{recordedNamespace + r.name, namespace},
	}
}

// createWorkload creates workload cluster i, owners first.
func (f *bareFleet) createWorkload(ctx context.Context, r *recording, s *scope, i int) error {
	name := fmt.Sprintf("w-%05d", i)
	host := fmt.Sprintf("10.%d.%d.%d", 64+i/65536, i/256%256, i%256)
	certs, err := newCertificates(f.keys, s.rng.IntN, name, "https://"+host+":6443")
	if err != nil {
		return err
	}
	s.certs = certs
	base := s.child(r.base, recordedWorkload, name)
	base.pairs = append(base.pairs, r.endpoint(host)...)
	base.pairs = append(base.pairs, caHashMark, certs.caHash)

	size, controlPlanes, pools := f.plan(r, base, i)
	if err := f.createGroup(ctx, base, r.base, size, -1); err != nil {
		return err
	}
	for _, p := range r.base {
		if p.kind == "Cluster" {
			base.pairs = append(base.pairs, clusterUIDMark, base.rename(p.uid))
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	if f.opts.MachinePools && i%2 == 0 {
		group.Go(func() error {
			return f.createGroup(ctx, base.child(f.machinePool), f.machinePool, size,
				-1)
		})
	}
	for n, machine := range controlPlanes {
		prototypes := r.joinMachine
		if n == 0 {
			prototypes = r.initMachine
		}
		group.Go(func() error { return f.createGroup(ctx, machine, prototypes, size, -1) })
	}
	for n, pool := range pools {
		group.Go(func() error {
			if err := f.createGroup(ctx, pool.scope, r.pool, size, n); err != nil {
				return err
			}
			machines, ctx := errgroup.WithContext(ctx)
			for _, machine := range pool.machines {
				machines.Go(func() error { return f.createGroup(ctx, machine, r.worker, size, n) })
			}
			return machines.Wait()
		})
	}
	return group.Wait()
}

// plannedPool is a MachineDeployment to create, and the scopes of its Machines.
type plannedPool struct {
	scope    *scope
	machines []*scope
}

// plan names all Machines of workload cluster i before any is created: some
// objects that come earlier list them.
func (f *bareFleet) plan(r *recording, base *scope, i int) (size sizes, controlPlanes []*scope,
	pools []plannedPool) {
	count := 1
	if i%3 == 2 && f.opts.Machines >= 4 {
		count = 3
	}
	for n := range count {
		group := r.joinMachine
		if n == 0 {
			group = r.initMachine
		}
		machine := base.child(group)
		controlPlanes = append(controlPlanes, machine)
		size.controlPlanes = append(size.controlPlanes, machine.rename(group[0].name))
	}
	workers := max(0, f.opts.Machines-count)
	for n := range min(2, max(1, workers)) {
		pool := plannedPool{scope: base.child(r.pool, recordedPool, poolName(n))}
		var names []string
		// The first pool has the odd one.
		for range (workers + 1 - n) / min(2, max(1, workers)) {
			machine := pool.scope.child(r.worker)
			pool.machines = append(pool.machines, machine)
			names = append(names, machine.rename(r.worker[0].name))
		}
		pools = append(pools, pool)
		size.pools = append(size.pools, names)
	}
	return size, controlPlanes, pools
}

// createGroup creates the objects of one group, one after the other, and
// notes their UIDs in the scope for the owner references of what follows.
func (f *bareFleet) createGroup(ctx context.Context, s *scope, group []prototype, size sizes,
	pool int) error {
	for _, p := range group {
		o, err := s.instantiate(p)
		if err != nil {
			return err
		}
		size.resize(o, pool)
		live, err := f.create(ctx, o)
		if err != nil {
			return err
		}
		s.pairs = append(s.pairs, p.uid, string(live.GetUID()))
	}
	return nil
}

// create replays one object when there is a free slot.
func (f *bareFleet) create(ctx context.Context, o *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	write := replay
	if f.opts.Fast {
		write = createAtOnce
	}
	live, err := write(ctx, f.client, o)
	if err == nil {
		f.created.Add(1)
	}
	return live, err
}
