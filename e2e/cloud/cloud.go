// Package cloud is the infrastructure of a lab: Cluster API's in-memory
// provider, serving any number of management clusters from one process.
//
// All management clusters share one inventory of virtual machines and one set
// of workload API servers. That is what makes it a cloud: workload clusters
// survive a move and the death of their management cluster, a deletion on the
// wrong side really destroys one, and two management clusters that reconcile
// the same workload cluster really fight over it.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/moby/moby/api/types/system"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/test/infrastructure/container"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"

	"github.com/mgmtd/mgmtd/e2e/cloud/control"
)

// Options of a cloud. All ports are on the loopback.
type Options struct {
	// FirstWorkloadPort and LastWorkloadPort bound the ports of the workload API servers, one each.
	FirstWorkloadPort, LastWorkloadPort int
	// DebugPort lists the workload API servers as JSON.
	DebugPort int
	// SyncPeriod is the resync period of the provider's controllers.
	SyncPeriod time.Duration
}

// Cloud holds what all management clusters share.
type Cloud struct {
	syncPeriod       time.Duration
	containerRuntime container.Runtime
	machines         inmemoryruntime.Manager
	apiServers       *inmemoryserver.WorkloadClustersMux

	mu       sync.Mutex
	attached map[string]*attachment
}

// New starts an empty cloud; it ends with ctx.
func New(ctx context.Context, opts Options) (*Cloud, error) {
	// The reconcilers read this process-wide gate; the managers of the lab have it on too.
	if err := feature.MutableGates.Set("ClusterTopology=true"); err != nil {
		return nil, fmt.Errorf("set feature gate: %w", err)
	}
	containerRuntime, err := container.NewDockerClient()
	if err != nil {
		return nil, fmt.Errorf("make container runtime client: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		cloudv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme,
		storagev1.AddToScheme, apiextensionsv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme of the workload clusters: %w", err)
		}
	}
	machines := identified{inmemoryruntime.NewManager(scheme)}
	if err := machines.Start(ctx); err != nil {
		return nil, fmt.Errorf("start machine inventory: %w", err)
	}
	apiServers, err := inmemoryserver.NewWorkloadClustersMux(machines, "127.0.0.1",
		inmemoryserver.CustomPorts{
			MinPort:   int32(opts.FirstWorkloadPort),
			MaxPort:   int32(opts.LastWorkloadPort),
			DebugPort: int32(opts.DebugPort),
		})
	if err != nil {
		return nil, fmt.Errorf("start workload API servers: %w", err)
	}
	return &Cloud{
		syncPeriod:       opts.SyncPeriod,
		containerRuntime: withoutEngine{containerRuntime},
		machines:         machines,
		apiServers:       apiServers,
		attached:         map[string]*attachment{},
	}, nil
}

// withoutEngine is a container runtime where there is none. The in-memory back
// end refuses nil, and asks it for nothing but the size of the host, which
// becomes the capacity in the status of DevMachineTemplates.
type withoutEngine struct{ container.Runtime }

func (withoutEngine) GetSystemInfo(context.Context) (system.Info, error) {
	return system.Info{NCPU: 2, MemTotal: 4 << 30}, nil
}

// attachment is the running provider of one management cluster.
type attachment struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Attach serves one management cluster until ctx ends or it is detached, and
// returns when the provider works or ready ends. A provider that
// ends, for instance because the API server was away for too long, is started
// again.
func (c *Cloud) Attach(ctx, ready context.Context, name string, mgmt control.Mgmt) error {
	c.Detach(name)
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Background().WithValues("mgmt", name)))
	a := &attachment{cancel: cancel, done: make(chan struct{})}
	c.mu.Lock()
	c.attached[name] = a
	c.mu.Unlock()

	started := make(chan struct{})
	go func() {
		defer close(a.done)
		once := sync.OnceFunc(func() { close(started) })
		for ctx.Err() == nil {
			if err := c.runProvider(ctx, mgmt, once); err != nil && !errors.Is(err, context.Canceled) {
				klog.FromContext(ctx).Error(err, "provider ended, starting it again")
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	select {
	case <-started:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("start provider of %s: detached", name)
	case <-ready.Done():
		c.Detach(name)
		return fmt.Errorf("start provider of %s: %w", name, context.Cause(ready))
	}
}

// Detach ends the provider of one management cluster and waits for its end.
func (c *Cloud) Detach(name string) {
	c.mu.Lock()
	a := c.attached[name]
	delete(c.attached, name)
	c.mu.Unlock()
	if a != nil {
		a.cancel()
		<-a.done
	}
}

// Close detaches all management clusters.
func (c *Cloud) Close() {
	c.mu.Lock()
	names := make([]string, 0, len(c.attached))
	for name := range c.attached {
		names = append(names, name)
	}
	c.mu.Unlock()
	for _, name := range names {
		c.Detach(name)
	}
}
