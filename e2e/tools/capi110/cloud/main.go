// Command cloud is the in-memory infrastructure provider of Cluster API 1.10 for one management
// cluster. It does what the provider's own program does (cluster-api/test v1.10.7,
// infrastructure/docker/main.go), but its ports are flags: those of the lab. The inventory of
// machines dies with it. A provider of a newer version makes the same machines and workload API
// servers again, from the objects that name them. It can also hand over a paused workload cluster
// to another cloud, which then continues it on the same port.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	expv1 "sigs.k8s.io/cluster-api/exp/api/v1beta1"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/test/infrastructure/container"
	infrav1 "sigs.k8s.io/cluster-api/test/infrastructure/docker/api/v1beta1"
	"sigs.k8s.io/cluster-api/test/infrastructure/docker/controllers"
	infrawebhooks "sigs.k8s.io/cluster-api/test/infrastructure/docker/webhooks"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// options are the flags. --kubeconfig is a flag of controller-runtime.
type options struct {
	webhookPort, firstPort, lastPort, debugPort int
	certDir, healthAddr, handOverAddr           string
	syncPeriod                                  time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.webhookPort, "webhook-port", 0, "port of the webhooks")
	flag.StringVar(&o.certDir, "webhook-cert-dir", "", "folder of tls.crt and tls.key")
	flag.StringVar(&o.healthAddr, "health-addr", "", "address of the health endpoint")
	flag.StringVar(&o.handOverAddr, "hand-over-addr", "", "address of the hand-over endpoint")
	flag.IntVar(&o.firstPort, "first-workload-port", 0, "first port for workload API servers")
	flag.IntVar(&o.lastPort, "last-workload-port", 0, "last port for workload API servers")
	flag.IntVar(&o.debugPort, "debug-port", 0, "port that lists the workload API servers")
	flag.DurationVar(&o.syncPeriod, "sync-period", 20*time.Second, "resync period")
	klog.InitFlags(nil)
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "cloud:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if err := feature.MutableGates.Set("ClusterTopology=true"); err != nil {
		return fmt.Errorf("set feature gate: %w", err)
	}
	mgr, err := newManager(o)
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	running, err := setupReconcilers(ctx, mgr, o)
	if err != nil {
		return fmt.Errorf("set up controllers: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return running.serve(ctx, o.handOverAddr)
	})); err != nil {
		return err
	}
	for _, hook := range []interface{ SetupWebhookWithManager(ctrl.Manager) error }{
		&infrawebhooks.DevCluster{}, &infrawebhooks.DevClusterTemplate{},
		&infrawebhooks.DevMachine{}, &infrawebhooks.DevMachineTemplate{},
		&infrawebhooks.DockerCluster{}, &infrawebhooks.DockerClusterTemplate{},
		&infrawebhooks.DockerMachineTemplate{},
	} {
		if err := hook.SetupWebhookWithManager(mgr); err != nil {
			return fmt.Errorf("set up webhook %T: %w", hook, err)
		}
	}
	if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newManager(o options) (ctrl.Manager, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 100, 200
	scheme, err := schemeOf(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		clusterv1.AddToScheme, expv1.AddToScheme, infrav1.AddToScheme)
	if err != nil {
		return nil, err
	}
	ofWorkload, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		HealthProbeBindAddress: o.healthAddr,
		Metrics:                server.Options{BindAddress: "0"},
		Cache: cache.Options{SyncPeriod: &o.syncPeriod, ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Label: labels.NewSelector().Add(*ofWorkload)},
		}},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor:   []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}},
			Unstructured: true,
		}},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: o.webhookPort,
			CertDir: o.certDir}),
	})
}

func schemeOf(adds ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range adds {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func setupReconcilers(ctx context.Context, mgr ctrl.Manager, o options) (*inventory, error) {
	containers, err := container.NewDockerClient() // needs no engine
	if err != nil {
		return nil, err
	}
	scheme, err := schemeOf(cloudv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme,
		rbacv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	machines := inmemoryruntime.NewManager(scheme)
	if err := machines.Start(ctx); err != nil {
		return nil, err
	}
	apiServers, err := inmemoryserver.NewWorkloadClustersMux(machines, "127.0.0.1",
		inmemoryserver.CustomPorts{MinPort: o.firstPort, MaxPort: o.lastPort, DebugPort: o.debugPort})
	if err != nil {
		return nil, err
	}
	secretClient, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache()}})
	if err != nil {
		return nil, err
	}
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secretClient,
		Client:       clustercache.ClientOptions{QPS: 20, Burst: 30, UserAgent: "mgmtd-lab-cloud"},
	}, controller.Options{MaxConcurrentReconciles: 20})
	if err != nil {
		return nil, err
	}
	options := controller.Options{MaxConcurrentReconciles: 20}
	if err := (&controllers.DevMachineReconciler{
		Client: mgr.GetClient(), ContainerRuntime: containers, ClusterCache: clusterCache,
		InMemoryManager: machines, APIServerMux: apiServers,
	}).SetupWithManager(ctx, mgr, options); err != nil {
		return nil, err
	}
	return &inventory{mgmt: mgr.GetClient(), machines: machines, apiServers: apiServers},
		(&controllers.DevClusterReconciler{
			Client: mgr.GetClient(), ContainerRuntime: containers, InMemoryManager: machines,
			APIServerMux: apiServers,
		}).SetupWithManager(ctx, mgr, options)
}
