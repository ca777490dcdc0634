package cloud

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	infrav1beta1 "sigs.k8s.io/cluster-api/test/infrastructure/docker/api/v1beta1" //nolint:staticcheck // served by the lab's CRDs until Cluster API drops it
	infrav1 "sigs.k8s.io/cluster-api/test/infrastructure/docker/api/v1beta2"
	"sigs.k8s.io/cluster-api/test/infrastructure/docker/controllers"
	infrawebhooks "sigs.k8s.io/cluster-api/test/infrastructure/docker/webhooks"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/mgmtd/mgmtd/e2e/cloud/control"
)

// runProvider runs the in-memory infrastructure provider of one management
// cluster until ctx ends, and calls ready when its webhooks answer and its
// caches are filled.
func (c *Cloud) runProvider(ctx context.Context, mgmt control.Mgmt, ready func()) error {
	mgr, err := c.newManager(ctx, mgmt)
	if err != nil {
		return err
	}
	if err := c.setupReconcilers(ctx, mgr, mgmt.WatchFilter); err != nil {
		return err
	}
	if err := setupWebhooks(mgr); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		webhooks := mgr.GetWebhookServer().StartedChecker()
		for !mgr.GetCache().WaitForCacheSync(ctx) || webhooks(nil) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
		ready()
	}()
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run provider: %w", err)
	}
	return nil
}

func (c *Cloud) newManager(ctx context.Context, mgmt control.Mgmt) (ctrl.Manager, error) {
	restConfig, err := clientcmd.BuildConfigFromFlags("", mgmt.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	restConfig.QPS, restConfig.Burst = 100, 200
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		infrav1beta1.AddToScheme, infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	ofWorkload, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("build selector: %w", err)
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme,
		Logger: klog.FromContext(ctx),
		// Controllers of the same names run once per management cluster in this process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true),
			UsePriorityQueue: ptr.To(true)},
		HealthProbeBindAddress: "0",
		// Reconcilers of a dead management cluster hang in requests; detaching does not wait for
		// them.
		GracefulShutdownTimeout: ptr.To(time.Second),
		Metrics:                 server.Options{BindAddress: "0"},
		Cache: cache.Options{
			SyncPeriod: &c.syncPeriod,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Label: labels.NewSelector().Add(*ofWorkload)},
			},
		},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor:   []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}},
			Unstructured: true,
		}},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: mgmt.WebhookPort,
			CertDir: mgmt.CertDir}),
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	return mgr, nil
}

func (c *Cloud) setupReconcilers(ctx context.Context, mgr ctrl.Manager, filter string) error {
	secretClient, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Cache:      &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return fmt.Errorf("make secret client: %w", err)
	}
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     secretClient,
		WatchFilterValue: filter,
		Client: clustercache.ClientOptions{
			QPS:       20,
			Burst:     30,
			UserAgent: "mgmtd-lab-cloud",
			Cache: clustercache.ClientCacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{},
				&corev1.Secret{}}},
		},
	}, controller.Options{MaxConcurrentReconciles: 20})
	if err != nil {
		return fmt.Errorf("set up the cache of workload clusters: %w", err)
	}
	options := controller.Options{MaxConcurrentReconciles: 20}
	if err := (&controllers.DevMachineReconciler{
		Client:           mgr.GetClient(),
		WatchFilterValue: filter,
		ContainerRuntime: c.containerRuntime,
		ClusterCache:     clusterCache,
		InMemoryManager:  c.machines,
		APIServerMux:     c.apiServers,
	}).SetupWithManager(ctx, mgr, options); err != nil {
		return fmt.Errorf("set up DevMachine controller: %w", err)
	}
	if err := (&controllers.DevClusterReconciler{
		Client:           mgr.GetClient(),
		WatchFilterValue: filter,
		ContainerRuntime: c.containerRuntime,
		InMemoryManager:  c.machines,
		APIServerMux:     c.apiServers,
	}).SetupWithManager(ctx, mgr, options); err != nil {
		return fmt.Errorf("set up DevCluster controller: %w", err)
	}
	if err := (&controllers.DevMachineTemplateReconciler{
		Client:           mgr.GetClient(),
		WatchFilterValue: filter,
		ContainerRuntime: c.containerRuntime,
	}).SetupWithManager(ctx, mgr, options); err != nil {
		return fmt.Errorf("set up DevMachineTemplate controller: %w", err)
	}
	return nil
}

// setupWebhooks serves all webhooks that the provider's manifests name, those
// of the Docker kinds included: their kinds are installed, and a webhook
// configuration whose server does not know the path would refuse them.
func setupWebhooks(mgr ctrl.Manager) error {
	for _, hook := range []interface{ SetupWebhookWithManager(ctrl.Manager) error }{
		&infrawebhooks.DevCluster{}, &infrawebhooks.DevClusterTemplate{},
		&infrawebhooks.DevMachine{}, &infrawebhooks.DevMachineTemplate{},
		&infrawebhooks.DockerCluster{}, &infrawebhooks.DockerClusterTemplate{},
		&infrawebhooks.DockerMachine{}, &infrawebhooks.DockerMachineTemplate{},
	} {
		if err := hook.SetupWebhookWithManager(mgr); err != nil {
			return fmt.Errorf("set up webhook %T: %w", hook, err)
		}
	}
	return nil
}
